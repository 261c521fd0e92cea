"""What the first pages of a fresh core say: whose it is, and whether it is whole.

The supervisor reads this of every core that appears, so it stays small: the full reader is `crashkit.evidence`.
Layouts: elf(5); `struct elf_prstatus` and `struct elf_prpsinfo` of linux/elfcore.h on 64-bit machines.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple, Optional

_MAX_NOTES = 1 << 20
_NT_PRSTATUS = 1
_NT_PRPSINFO = 3


class CoreHead(NamedTuple):
    pid: int
    """In the process's own namespace, as are the others."""
    ppid: int
    group: int
    session: int
    signal: int
    name: str
    """comm, hostile text."""
    arguments: str
    """The first 80 bytes of the command line, hostile text too."""
    expected: int
    """Bytes that the program headers promise."""


def read_head(descriptor: int) -> Optional[CoreHead]:
    """None where this is no 64-bit little-endian core, or its notes are not (yet) there."""
    header = os.pread(descriptor, 64, 0)
    if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", header, 16)[0] != 4:
        return None
    table = struct.unpack_from("<Q", header, 32)[0]
    size, count = struct.unpack_from("<HH", header, 54)
    if size != 56:
        return None
    if count == 0xFFFF:  # PN_XNUM: the count stands in the first section header
        section = os.pread(descriptor, 64, struct.unpack_from("<Q", header, 40)[0])
        count = struct.unpack_from("<I", section, 44)[0] if len(section) == 64 else 0
    programs = os.pread(descriptor, size * min(count, 1 << 20), table)
    expected, notes = 0, b""
    for at in range(0, len(programs) - 55, 56):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", programs, at)
        expected = max(expected, offset + length)
        if kind == 4 and not notes:
            notes = os.pread(descriptor, min(length, _MAX_NOTES), offset)
    status, info = _note(notes, _NT_PRSTATUS), _note(notes, _NT_PRPSINFO)
    if status is None or info is None or len(status) < 48 or len(info) < 136:
        return None
    signal = struct.unpack_from("<H", status, 12)[0]
    pid, ppid, group, session = struct.unpack_from("<iiii", info, 24)
    name, arguments = (text.split(b"\0", 1)[0].decode("utf-8", "replace") for text in (info[40:56], info[56:136]))
    return CoreHead(pid, ppid, group, session, signal, name, arguments.rstrip(), expected)


def _note(notes: bytes, wanted: int) -> Optional[bytes]:
    """The first note of the kernel ("CORE") of this type."""
    at = 0
    while at + 12 <= len(notes):
        name_size, data_size, kind = struct.unpack_from("<III", notes, at)
        start = at + 12 + (name_size + 3) // 4 * 4
        if kind == wanted and notes[at + 12 : at + 16] == b"CORE":
            return notes[start : start + data_size]
        at = start + (data_size + 3) // 4 * 4
    return None
