"""The part of a module's unwind tables that some addresses need: `.eh_frame` with few entries instead of a hundred thousand.

gdb reads and sorts all entries of a module before it steps out of the first frame in it; libtorch_cpu.so has 18 MB of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Optional

import msgspec

from crashkit.elf.unwind_table import UnwindTable

_END = bytes(4)


class UnwindPart(msgspec.Struct, frozen=True):
    """A `.eh_frame` with the entries of some functions, for the address at which the module's own one begins."""

    data: bytes
    starts: frozenset[int]
    """Where these functions begin, as `UnwindTable.function` says."""


def part_for(table: UnwindTable, at: int, addresses: Iterable[int]) -> Optional[UnwindPart]:
    """The entries for these addresses, and for those before them: of a return address, that counts. None if some entry cannot be moved.

    `at` is the address of `.eh_frame`; all addresses are those of the file.
    """
    data = bytearray()
    parents: dict[int, int] = {}
    starts: set[int] = set()
    for address in sorted({near for one in addresses for near in (one - 1, one)}):
        function = table.function(address)
        if function is None or function.start in starts:
            continue
        entry = table.entry(address)
        if entry is None or entry.is_relative is None:
            return None
        if entry.parent not in parents:
            parents[entry.parent] = len(data)
            data += entry.common
        own = bytearray(entry.own)
        struct.pack_into("<I", own, 4, len(data) + 4 - parents[entry.parent])
        if entry.is_relative:
            # The function's beginning is counted from the field that says so.
            try:
                struct.pack_into("<" + entry.form.lower(), own, 8, function.start - (at + len(data) + 8))
            except struct.error:
                return None
        data += own
        starts.add(function.start)
    return UnwindPart(bytes(data + _END), frozenset(starts))
