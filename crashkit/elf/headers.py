"""The one reader of ELF headers: of a file, of an open core, of a module's first page in the memory of a process. Layout: elf(5).

Whatever is read may be hostile or cut. The sizes of table entries are those of elf(5) whatever the file says (Linux and gdb accept no
others), counts and offsets are taken only as far as there are bytes, and `bounded` caps what one look may read.

Not pyelftools: the supervisor reads cores with this and cannot wait 0.1 s for the import, `ELFFile` takes forty times as long for
a build-id (4.6 ms against 0.1 ms), believes the header's counts, and raises five kinds of exceptions. The tests compare with it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, Optional

ET_REL, ET_EXEC, ET_DYN, ET_CORE = 1, 2, 3, 4
PT_LOAD, PT_NOTE = 1, 4
PT_GNU_EH_FRAME = 0x6474E550
SHT_NULL, SHT_PROGBITS, SHT_NOTE, SHT_NOBITS = 0, 1, 7, 8
SHF_EXECINSTR = 4

PN_XNUM = 0xFFFF
"""e_phnum where the number of program headers stands in section header 0."""
_SHN_XINDEX = 0xFFFF

MOST_HEADERS = 4096
"""Program headers and sections read of a file; a process has far more segments than any file has."""
_MOST_NAMES = 1 << 20
_MOST_OFFSET = (1 << 63) - 1

Read = Callable[[int, int], bytes]
"""Up to `size` bytes at `offset` (or address); fewer, or none, where they are not there. Never raises."""


class Word(NamedTuple):
    """How a machine lays out a word: size in bytes and struct's byte-order character."""

    size: int
    order: str

    @property
    def code(self) -> str:
        """The struct format of one unsigned word, such as `<Q`."""
        return self.order + ("Q" if self.size == 8 else "I")


class Table(NamedTuple):
    """Position of a header table in the file: offset and entry size in bytes, number of entries."""

    offset: int
    entry_size: int
    entries: int


class Header(NamedTuple):
    """The ELF header."""

    word: Word
    kind: int
    """e_type: ET_CORE and so on."""
    machine: int
    """e_machine."""
    entry: int
    """Address."""
    programs: Table
    sections: Table
    names: int
    """The section that holds the sections' names."""


class ProgramHeader(NamedTuple):
    """One program header (Elf64_Phdr or Elf32_Phdr)."""

    kind: int
    """p_type."""
    flags: int
    """1 execute, 2 write, 4 read."""
    offset: int
    address: int
    stored: int
    """Bytes in the file."""
    size: int
    """Bytes in memory."""


class Section(NamedTuple):
    """One section header, with its name resolved."""

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


def of_descriptor(descriptor: int) -> Read:
    """Reads an open file, wherever its position is."""

    def read(offset: int, size: int) -> bytes:
        try:
            return os.pread(descriptor, size, offset)
        except (OSError, ValueError, OverflowError):
            return b""

    return read


def of_file(file: BinaryIO) -> Read:
    """Read a seekable file; moves its position."""

    def read(offset: int, size: int) -> bytes:
        try:
            file.seek(offset)
            return file.read(max(0, size))
        except (OSError, ValueError, OverflowError):
            return b""

    return read


def of_bytes(data: bytes) -> Read:
    """Read from bytes in memory."""
    return lambda offset, size: data[offset : offset + size]


def bounded(read: Read, most: int) -> Read:
    """`read`, until it has given `most` bytes in all; then nothing."""
    left = most

    def limited(offset: int, size: int) -> bytes:
        nonlocal left
        if not 0 <= offset <= _MOST_OFFSET or size <= 0 or left <= 0:
            return b""
        data = read(offset, min(size, left))
        left -= len(data)
        return data

    return limited


def read_header(read: Read) -> Optional[Header]:
    """None where there is no ELF header, or not all of it."""
    head = read(0, 64)
    if len(head) < 52 or head[:4] != b"\x7fELF" or head[4] not in (1, 2) or head[5] not in (1, 2):
        return None
    word = Word(8 if head[4] == 2 else 4, "<" if head[5] == 1 else ">")
    if len(head) < (64 if word.size == 8 else 52):
        return None
    layout = word.order + ("HHIQQQIHHHHHH" if word.size == 8 else "HHIIIIIHHHHHH")
    kind, machine, _, entry, phoff, shoff, _, _, _, phnum, _, shnum, names = struct.unpack_from(layout, head, 16)
    programs = Table(phoff, 56 if word.size == 8 else 32, phnum)
    sections = Table(shoff, 64 if word.size == 8 else 40, shnum)
    return Header(word, kind, machine, entry, programs, sections, names)


def count_program_headers(read: Read, header: Header) -> Optional[int]:
    """How many there are; None where the file says that section header 0 has the number, and that is not there."""
    if header.programs.entries != PN_XNUM:
        return header.programs.entries
    first = _section_fields(read(header.sections.offset, header.sections.entry_size), header.word)
    return first.info if first else None


def read_program_headers(read: Read, header: Header, most: int = MOST_HEADERS) -> Iterator[ProgramHeader]:
    """Yield up to `most` program headers; stops where the file ends."""
    count = count_program_headers(read, header)
    for entry in _entries(read, header.programs, min(PN_XNUM if count is None else count, most)):
        if header.word.size == 8:
            kind, flags, offset, address, _physical, stored, size = struct.unpack_from(header.word.order + "IIQQQQQ", entry)
        else:
            kind, offset, address, _physical, stored, size, flags = struct.unpack_from(header.word.order + "IIIIIII", entry)
        yield ProgramHeader(kind, flags, offset, address, stored, size)


def read_sections(read: Read, header: Header) -> tuple[Section, ...]:
    """By section number; none where their names are not there."""
    table, names_number = header.sections, header.names
    if table.offset and (not table.entries or names_number == _SHN_XINDEX):
        # More of them than the header can count: section header 0 has the numbers.
        first = _section_fields(read(table.offset, table.entry_size), header.word)
        if first is None:
            return ()
        table = table._replace(entries=table.entries or first.size)
        names_number = first.link if names_number == _SHN_XINDEX else names_number
    found = [_section_fields(entry, header.word) for entry in _entries(read, table, min(table.entries, MOST_HEADERS))]
    fields = [one for one in found if one is not None]
    if names_number >= len(fields):
        return ()
    names = read(fields[names_number].offset, min(fields[names_number].size, _MOST_NAMES))
    return tuple(
        Section(
            names[one.name : max(names.find(b"\0", one.name), one.name)].decode("ascii", "replace"),
            *one[1:7],
            table.offset + number * table.entry_size,
        )
        for number, one in enumerate(fields)
    )


class _SectionFields(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int


def _section_fields(entry: bytes, word: Word) -> Optional[_SectionFields]:
    layout = word.order + ("IIQQQQII" if word.size == 8 else "IIIIIIII")
    return _SectionFields._make(struct.unpack_from(layout, entry)) if len(entry) >= struct.calcsize(layout) else None


def _entries(read: Read, table: Table, count: int) -> Iterator[bytes]:
    if not table.offset:
        return
    size = table.entry_size
    data = read(table.offset, size * count)
    yield from (data[start : start + size] for start in range(0, len(data) - size + 1, size))
