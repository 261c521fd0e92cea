"""Reads the header and the tables of an ELF file on disk in a fraction of a millisecond.

The file may be hostile or truncated: unreadable parts are omitted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.elf import notes
from crashkit.elf.headers import (
    PT_NOTE,
    SHT_NOBITS,
    SHT_NOTE,
    SHT_NULL,
    SHT_PROGBITS,
    Header,
    ProgramHeader,
    Read,
    Section,
    bounded,
    of_descriptor,
    read_header,
    read_program_headers,
    read_sections,
)

MOST_BYTES = 2 << 20
"""Most bytes read of one file at a time, whatever its headers say."""
_MOST_NOTES = 1 << 16


class ElfFile(NamedTuple):
    """The headers and section table of one ELF file."""

    header: Header
    program_headers: tuple[ProgramHeader, ...]
    sections: tuple[Section, ...]
    """By section number."""

    @property
    def order(self) -> str:
        """For struct: < or >."""
        return self.header.word.order

    @property
    def wide(self) -> bool:
        """64 bit."""
        return self.header.word.size == 8

    def section(self, name: str) -> Optional[Section]:
        """The first section of that name; None if there is none."""
        return next((section for section in self.sections if section.name == name), None)


def open_elf(path: Path) -> Optional[ElfFile]:
    """The headers of the file at `path`; None if it is not an ELF file or cannot be read."""
    with _opened(path) as read:
        return read_elf(read) if read else None


@contextmanager
def _opened(path: Path) -> Iterator[Optional[Read]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        yield None
        return
    try:
        yield bounded(of_descriptor(descriptor), MOST_BYTES)
    finally:
        os.close(descriptor)


def read_elf(read: Read) -> Optional[ElfFile]:
    """The headers of the file behind `read`; None if it is not an ELF file."""
    header = read_header(read)
    if header is None:
        return None
    return ElfFile(header, tuple(read_program_headers(read, header)), read_sections(read, header))


def read_build_id(path: Path) -> Optional[str]:
    """The GNU build-id of an ELF file, in hexadecimal; None if there is none or the file cannot be read."""
    with _opened(path) as read:
        header = read_header(read) if read else None
        if read is None or header is None:
            return None
        places = _places_of_notes(read, header)
        found = (notes.build_id(read(offset, min(size, _MOST_NOTES)), header.word.order) for offset, size in places)
        return next(filter(None, found), None)


def _places_of_notes(read: Read, header: Header) -> Iterator[tuple[int, int]]:
    """Offset and size of each note section or segment. Few files need their sections to be read: that takes the most time."""
    yield from ((one.offset, one.stored) for one in read_program_headers(read, header) if one.kind == PT_NOTE)
    # A file that was split into code and debug info keeps its notes, but its program headers may point astray.
    yield from ((one.offset, one.size) for one in read_sections(read, header) if one.kind == SHT_NOTE)


def has_debug_symbols(path: Path) -> bool:
    """Whether an ELF file contains DWARF or a `.symtab`."""
    return _holds(path, ".debug_info", ".zdebug_info", ".symtab")


def has_dwarf(path: Path) -> bool:
    """Whether an ELF file contains DWARF: types, lines and variables, not only names."""
    return _holds(path, ".debug_info", ".zdebug_info")


def _holds(path: Path, *names: str) -> bool:
    elf = open_elf(path)
    return elf is not None and any(section.name in names and section.kind not in (SHT_NULL, SHT_NOBITS) for section in elf.sections)


def debug_link(path: Path) -> Optional[str]:
    """Name of the separate debug file, without its folder (`.gnu_debuglink`); None if the file names none."""
    name = _linked(path, ".gnu_debuglink")[0].decode("utf-8", "surrogateescape").rpartition("/")[2]
    return name or None


def alternate_debug_file(path: Path) -> Optional[str]:
    """Build-id, in hexadecimal, of the debug file that this one shares with others (`.gnu_debugaltlink`, as dwz writes it)."""
    return _linked(path, ".gnu_debugaltlink")[1].hex() or None


def _linked(path: Path, name: str) -> tuple[bytes, bytes]:
    """A file name, and what follows it in the section of this name; empty if there is none."""
    with _opened(path) as read:
        elf = read_elf(read) if read else None
        section = elf.section(name) if elf else None
        if read is None or section is None or section.kind == SHT_NOBITS:
            return b"", b""
        file, _, rest = read(section.offset, min(section.size, _MOST_NOTES)).partition(b"\0")
        return file, rest


def holds_code(path: Path) -> bool:
    """Whether an ELF file contains code; False for a separate debug file, whose `.text` is empty (SHT_NOBITS)."""
    elf = open_elf(path)
    text = elf.section(".text") if elf else None
    return text is not None and text.kind == SHT_PROGBITS
