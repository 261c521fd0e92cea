"""What the head and the tables of an ELF file tell, read in a fraction of a millisecond. Layout: elf(5).

The file may be hostile or cut: what cannot be read is left out.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Optional

PT_NOTE = 4
PT_GNU_EH_FRAME = 0x6474E550
SHT_NULL, SHT_PROGBITS, SHT_NOTE, SHT_NOBITS = 0, 1, 7, 8
SHF_EXECINSTR = 4

_MAX_HEADERS = 4096
_MAX_NOTES = 1 << 16
_MAX_NAMES = 1 << 20
_NT_GNU_BUILD_ID = 3


class Section(NamedTuple):
    name: str
    kind: int
    """sh_type."""
    flags: int
    address: int
    offset: int
    size: int
    link: int
    header: int
    """Where its section header lies in the file."""


class ProgramHeader(NamedTuple):
    kind: int
    """p_type."""
    offset: int
    address: int
    size: int
    """In the file."""


class _Table(NamedTuple):
    offset: int
    entry_size: int
    entries: int


class ElfFile(NamedTuple):
    order: str
    """For struct: < or >."""
    wide: bool
    """64 bit."""
    machine: int
    program_headers: tuple[ProgramHeader, ...]
    sections: tuple[Section, ...]
    """By section number."""
    program_table: _Table
    section_table: _Table

    def section(self, name: str) -> Optional[Section]:
        return next((section for section in self.sections if section.name == name), None)


def open_elf(path: Path) -> Optional[ElfFile]:
    """The headers of the file at `path`; None where it is no ELF file or cannot be read."""
    try:
        with _open(path) as file:
            return read_elf(file)
    except (OSError, ValueError):
        return None


def _open(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb", buffering=0)


def read_elf(file: BinaryIO, sections: bool = True) -> Optional[ElfFile]:
    """The headers of an opened file, those of its sections only if asked for; None where it is no ELF file."""
    head = _read(file, 0, 64)
    if len(head) < 64 or head[:4] != b"\x7fELF" or head[4] not in (1, 2) or head[5] not in (1, 2):
        return None
    wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
    (machine,) = struct.unpack_from(order + "H", head, 18)
    layout = order + ("QQIHHHHHH" if wide else "IIIHHHHHH")
    phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, names = struct.unpack_from(layout, head, 32 if wide else 28)
    programs, table = _Table(phoff, phentsize, phnum), _Table(shoff, shentsize, shnum)
    return ElfFile(
        order,
        wide,
        machine,
        tuple(_program_headers(file, order, wide, programs)),
        tuple(_sections(file, order, wide, table, names)) if sections else (),
        programs,
        table,
    )


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    try:
        file.seek(offset)
        return file.read(size)
    except (OSError, ValueError, OverflowError):
        return b""


def _entries(file: BinaryIO, table: _Table, smallest: int) -> Iterator[bytes]:
    if table.entry_size < smallest or not table.offset:
        return
    size = table.entry_size
    data = _read(file, table.offset, size * min(table.entries, _MAX_HEADERS))
    yield from (data[start : start + size] for start in range(0, len(data) - size + 1, size))


def _program_headers(file: BinaryIO, order: str, wide: bool, table: _Table) -> Iterator[ProgramHeader]:
    for entry in _entries(file, table, smallest=56 if wide else 32):
        if wide:
            kind, _, offset, address, _, size = struct.unpack_from(order + "IIQQQQ", entry)
        else:
            kind, offset, address, _, size = struct.unpack_from(order + "IIIII", entry)
        yield ProgramHeader(kind, offset, address, size)


def _sections(file: BinaryIO, order: str, wide: bool, table: _Table, names_number: int) -> Iterator[Section]:
    layout = order + ("IIQQQQI" if wide else "IIIIIII")
    entries = [struct.unpack_from(layout, entry) for entry in _entries(file, table, smallest=64 if wide else 40)]
    if names_number >= len(entries):
        return
    names = _read(file, entries[names_number][4], min(entries[names_number][5], _MAX_NAMES))
    for number, (name, *rest) in enumerate(entries):
        text = names[name : max(names.find(b"\0", name), name)].decode("ascii", "replace")
        yield Section._make((text, *rest, table.offset + number * table.entry_size))


def read_build_id(path: Path) -> Optional[str]:
    """The GNU build-id of an ELF file, in hexadecimal; None where there is none or the file cannot be read."""
    try:
        with _open(path) as file:
            elf = read_elf(file, sections=False)
            return _build_id(file, elf) if elf else None
    except (OSError, ValueError):
        return None


def _build_id(file: BinaryIO, elf: ElfFile) -> Optional[str]:
    notes = [(header.offset, header.size) for header in elf.program_headers if header.kind == PT_NOTE]
    found = _build_id_in(file, elf.order, notes)
    if found:
        return found
    # A file that was split into code and debug info keeps its notes, but its program headers may point astray.
    elf = read_elf(file) or elf
    return _build_id_in(file, elf.order, [(section.offset, section.size) for section in elf.sections if section.kind == SHT_NOTE])


def _build_id_in(file: BinaryIO, order: str, notes: list[tuple[int, int]]) -> Optional[str]:
    found = (_find_build_id(_read(file, offset, min(size, _MAX_NOTES)), order) for offset, size in notes)
    return next(filter(None, found), None)


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
    elf = open_elf(path)
    names = (".debug_info", ".zdebug_info", ".symtab")
    return elf is not None and any(section.name in names and section.kind not in (SHT_NULL, SHT_NOBITS) for section in elf.sections)


def has_dwarf(path: Path) -> bool:
    """Whether an ELF file holds DWARF: types, lines and variables, not only names."""
    elf = open_elf(path)
    names = (".debug_info", ".zdebug_info")
    return elf is not None and any(section.name in names and section.kind not in (SHT_NULL, SHT_NOBITS) for section in elf.sections)


def holds_code(path: Path) -> bool:
    """False for a separate debug file: its code takes no room in it."""
    elf = open_elf(path)
    text = elf.section(".text") if elf else None
    return text is not None and text.kind == SHT_PROGBITS
