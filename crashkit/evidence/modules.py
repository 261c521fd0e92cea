"""Which ELF files were mapped into the crashed process, where, and which builds they were."""

from __future__ import annotations

import bisect
import struct
from collections.abc import Sequence
from typing import NamedTuple, Optional

from crashkit.evidence.core import Core
from crashkit.evidence.notes import split

_NT_GNU_BUILD_ID = 3
_PT_LOAD, _PT_NOTE = 1, 4
_MOST_HEADERS = 64
_MOST_NOTE = 64 << 10
_MOST_MODULES = 20_000


class LoadedModule(NamedTuple):
    """An executable or shared library as it lay in memory.

    `bias` is what the loader added to the addresses in the file.
    """

    path: str
    base: int
    end: int
    bias: int
    build_id: Optional[str]


class ModuleIndex:
    """Finds the module at an address."""

    def __init__(self, modules: Sequence[LoadedModule]) -> None:
        self._modules = sorted(modules, key=lambda module: module.base)
        self._bases = [module.base for module in self._modules]

    def at(self, address: int) -> Optional[LoadedModule]:
        index = bisect.bisect_right(self._bases, address) - 1
        if index >= 0 and address < self._modules[index].end:
            return self._modules[index]
        return None


class _Header(NamedTuple):
    bias: int
    build_id: Optional[str]


def loaded_modules(core: Core) -> list[LoadedModule]:
    """ELF files among the file mappings, by base address.

    Their first page is in the core (coredump_filter bit 4, on by default), and with it the build-id. Where that page is
    missing, a mapping of executable code still makes a module, without a build-id; but not where the file is a module already: libffi
    maps pages of its own code once more, elsewhere, beside the data that they jump by.
    """
    code_paths = {file.path for file in core.files if (segment := core.segment(file.start)) and segment.flags & 1}
    groups: list[tuple[str, int, int]] = []
    for file in sorted(core.files):
        if not file.path or file.end <= file.start or file.offset > file.start:
            continue
        if groups and groups[-1][0] == file.path and file.offset > 0:
            groups[-1] = (file.path, groups[-1][1], max(groups[-1][2], file.end))
        else:
            groups.append((file.path, file.start - file.offset, file.end))
    headers = {base: header for _path, base, _end in groups[:_MOST_MODULES] if (header := _read_header(core, base))}
    known = {path for path, base, _end in groups if base in headers}
    modules = []
    for path, base, end in groups[:_MOST_MODULES]:
        header = headers.get(base)
        if header is not None:
            modules.append(LoadedModule(path, base, end, header.bias, header.build_id))
        elif path in code_paths and path not in known:
            modules.append(LoadedModule(path, base, end, base, None))
    return modules


def _read_header(core: Core, base: int) -> Optional[_Header]:
    head = core.read(base, 64)
    if len(head) < 52 or head[:4] != b"\x7fELF" or head[4] not in (1, 2):
        return None
    wide = head[4] == 2
    order = "<" if head[5] == 1 else ">"
    if wide:
        if len(head) < 64:
            return None
        (table,) = struct.unpack_from(order + "Q", head, 32)
        entry_size, count = struct.unpack_from(order + "HH", head, 54)
        layout = order + "IIQQQQQQ"
    else:
        (table,) = struct.unpack_from(order + "I", head, 28)
        entry_size, count = struct.unpack_from(order + "HH", head, 42)
        layout = order + "IIIIIIII"
    entry_size = max(entry_size, struct.calcsize(layout))
    data = core.read(base + table, min(count, _MOST_HEADERS) * entry_size)
    bias, notes_at = None, []
    for at in range(0, len(data) - struct.calcsize(layout) + 1, entry_size):
        fields = struct.unpack_from(layout, data, at)
        kind = fields[0]
        position, address, stored = (fields[2], fields[3], fields[5]) if wide else (fields[1], fields[2], fields[4])
        if kind == _PT_LOAD and bias is None:
            bias = base - (address - position)
        elif kind == _PT_NOTE:
            notes_at.append((address, stored))
    if bias is None:
        return _Header(base, None)
    for address, stored in notes_at:
        for name, kind, payload in split(core.read(bias + address, min(stored, _MOST_NOTE)), order):
            if name == "GNU" and kind == _NT_GNU_BUILD_ID and payload:
                return _Header(bias, payload.hex())
    return _Header(bias, None)
