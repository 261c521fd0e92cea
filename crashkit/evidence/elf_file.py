"""What the head and the section table of an ELF file tell, read in a fraction of a millisecond. Layout: elf(5)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional

_MAX_HEADERS = 512
_MAX_NOTES = 1 << 16

_PT_NOTE = 4
_SHT_PROGBITS = 1
_SHT_NOTE = 7
_NT_GNU_BUILD_ID = 3


class _Elf(NamedTuple):
    """What of an ELF header the readers below need."""

    order: str
    wide: bool
    program_headers: tuple[int, int, int]
    section_headers: tuple[int, int, int]
    """Offset, size of one, count."""


def _elf_header(descriptor: int) -> Optional[_Elf]:
    head = os.pread(descriptor, 64, 0)
    if len(head) < 52 or head[:4] != b"\x7fELF" or head[4] not in (1, 2) or head[5] not in (1, 2):
        return None
    wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
    if len(head) < 64:
        return None
    phoff, shoff, _, _, phentsize, phnum, shentsize, shnum = struct.unpack_from(
        order + ("QQIHHHHH" if wide else "IIIHHHHH"), head, 32 if wide else 28
    )
    return _Elf(order, wide, (phoff, phentsize, phnum), (shoff, shentsize, shnum))


def read_build_id(path: Path) -> Optional[str]:
    """The GNU build-id of an ELF file, in hexadecimal; None where there is none or the file cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        elf = _elf_header(descriptor)
        return _build_id(descriptor, elf) if elf else None
    except (OSError, struct.error, OverflowError):
        return None
    finally:
        os.close(descriptor)


def _build_id(descriptor: int, elf: _Elf) -> Optional[str]:
    # A file that was split into code and debug info keeps its notes, but its program headers may point astray.
    for kind, offset, size in (*_program_notes(descriptor, elf), *_section_notes(descriptor, elf)):
        found = _find_build_id(os.pread(descriptor, min(size, _MAX_NOTES), offset), elf.order) if kind else None
        if found:
            return found
    return None


def _program_notes(descriptor: int, elf: _Elf) -> Iterator[tuple[bool, int, int]]:
    for entry in _table(descriptor, *elf.program_headers, smallest=56 if elf.wide else 32):
        layout = ("IIQQQQ", (2, 5)) if elf.wide else ("IIIIII", (1, 4))
        values = struct.unpack_from(elf.order + layout[0], entry)
        yield values[0] == _PT_NOTE, values[layout[1][0]], values[layout[1][1]]


def _section_notes(descriptor: int, elf: _Elf) -> Iterator[tuple[bool, int, int]]:
    for entry in _table(descriptor, *elf.section_headers, smallest=64 if elf.wide else 40):
        values = struct.unpack_from(elf.order + ("IIQQQQ" if elf.wide else "IIIIII"), entry)
        yield values[1] == _SHT_NOTE, values[4], values[5]


def _table(descriptor: int, offset: int, size: int, count: int, smallest: int) -> Iterator[bytes]:
    if size < smallest or not offset:
        return
    count = min(count, _MAX_HEADERS)
    table = os.pread(descriptor, size * count, offset)
    yield from (table[start : start + size] for start in range(0, len(table) - size + 1, size))


def _find_build_id(notes: bytes, order: str) -> Optional[str]:
    position = 0
    while position + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from(order + "III", notes, position)
        start = position + 12 + (name_size + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[position + 12 : position + 16] == b"GNU\0" and start + size <= len(notes):
            return notes[start : start + size].hex() or None
        position = start + (size + 3 & ~3)
    return None


def has_debug_symbols(path: Path) -> bool:
    """Whether an ELF file holds DWARF or a symbol table of its own, in the file."""
    names = _section_kinds(path)
    return ".debug_info" in names or ".zdebug_info" in names or ".symtab" in names


def holds_code(path: Path) -> bool:
    """False for a separate debug file: its code takes no room in it."""
    return _section_kinds(path).get(".text") == _SHT_PROGBITS


def _section_kinds(path: Path) -> dict[str, int]:
    """sh_type of every named section; empty where the file has none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return {}
    try:
        elf = _elf_header(descriptor)
        if not elf:
            return {}
        entries = [
            struct.unpack_from(elf.order + ("IIQQQQ" if elf.wide else "IIIIII"), entry)
            for entry in _table(descriptor, *elf.section_headers, smallest=64 if elf.wide else 40)
        ]
        index = struct.unpack(elf.order + "H", os.pread(descriptor, 2, 62 if elf.wide else 50))[0]
        if index >= len(entries):
            return {}
        names = os.pread(descriptor, min(entries[index][5], _MAX_NOTES), entries[index][4])
        return {names[entry[0] : names.find(b"\0", entry[0])].decode("ascii", "replace"): entry[1] for entry in entries}
    except (OSError, struct.error, OverflowError):
        return {}
    finally:
        os.close(descriptor)
