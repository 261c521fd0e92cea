"""The only reader of ELF headers: in a file, an open core, or a module's first page in process memory. Layout: elf(5).

Input may be hostile or truncated. Table entries have the sizes of elf(5) whatever the file says (Linux and gdb accept no others),
counts and offsets are limited by the available bytes, and `bounded` limits how much is read.

Not pyelftools: the supervisor reads cores with this and cannot wait 0.1 s for the import, `ELFFile` takes forty times as long for
a build-id (4.6 ms against 0.1 ms), believes the header's counts, and raises five kinds of exceptions. The tests compare with it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, Optional

ET_REL, ET_EXEC, ET_DYN, ET_CORE = 1, 2, 3, 4
PT_LOAD, PT_NOTE, PT_TLS = 1, 4, 7
PT_GNU_EH_FRAME = 0x6474E550
SHT_NULL, SHT_PROGBITS, SHT_NOTE, SHT_NOBITS = 0, 1, 7, 8
SHF_EXECINSTR = 4

PN_XNUM = 0xFFFF
"""Value of e_phnum if the number of program headers is in section header 0."""
_SHN_XINDEX = 0xFFFF

MOST_HEADERS = 4096
"""Most program headers and sections read of a file; only cores have more."""
_MOST_NAMES = 1 << 20
_MOST_OFFSET = (1 << 63) - 1

Read = Callable[[int, int], bytes]
"""Up to `size` bytes at `offset` (or address); fewer or none if they are missing. Never raises."""


class Word(NamedTuple):
    """Layout of a machine word: size in bytes, and the byte order as a `struct` character."""

    size: int
    order: str

    @property
    def code(self) -> str:
        """The struct format of one unsigned word, such as `<Q`."""
        return self.order + ("Q" if self.size == 8 else "I")

    @property
    def most(self) -> int:
        """The largest number that a word holds, and the last address there is."""
        return (1 << 8 * self.size) - 1


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
    """Number of the section that contains the section names."""


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
    """File offset of its section header."""


def of_descriptor(descriptor: int) -> Read:
    """Read an open file descriptor; its position does not matter."""

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
    """Limit `read` to `most` bytes in total; after that it returns nothing."""
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
    """Read the ELF header; None if there is none or it is incomplete."""
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
    """The number of program headers; None if it is in section header 0 (PN_XNUM) and that is missing."""
    if header.programs.entries != PN_XNUM:
        return header.programs.entries
    first = section_header(read(header.sections.offset, header.sections.entry_size), header.word)
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
    """Read up to MOST_HEADERS sections, by section number; empty if the section names are missing."""
    table = header.sections
    count, names_number = count_sections(read, header)
    found = [section_header(entry, header.word) for entry in _entries(read, table, min(count, MOST_HEADERS))]
    rows = [one for one in found if one is not None]
    if names_number >= len(rows):
        return ()
    names = read(rows[names_number].offset, min(rows[names_number].size, _MOST_NAMES))
    return tuple(
        Section(
            names[row.name : max(names.find(b"\0", row.name), row.name)].decode("ascii", "replace"),
            *row[1:7],
            table.offset + number * table.entry_size,
        )
        for number, row in enumerate(rows)
    )


def count_sections(read: Read, header: Header) -> tuple[int, int]:
    """The number of sections that the file declares, and the number of the one that contains their names."""
    table = header.sections
    if not table.offset:
        return 0, 0
    if table.entries and header.names != _SHN_XINDEX:
        return table.entries, header.names
    # More of them than the header can count: section header 0 has the numbers.
    first = section_header(read(table.offset, table.entry_size), header.word)
    if first is None:
        return 0, 0
    return table.entries or first.size, first.link if header.names == _SHN_XINDEX else header.names


class SectionHeader(NamedTuple):
    """One section header (Elf64_Shdr or Elf32_Shdr)."""

    name: int
    """Offset into the section names."""
    kind: int
    """sh_type."""
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


def section_header(data: bytes, word: Word, at: int = 0) -> Optional[SectionHeader]:
    """The section header at this offset; None if it is incomplete."""
    layout = word.order + ("IIQQQQIIQQ" if word.size == 8 else "IIIIIIIIII")
    return SectionHeader._make(struct.unpack_from(layout, data, at)) if len(data) - at >= struct.calcsize(layout) else None


def _entries(read: Read, table: Table, count: int) -> Iterator[bytes]:
    if not table.offset:
        return
    size = table.entry_size
    data = read(table.offset, size * count)
    yield from (data[start : start + size] for start in range(0, len(data) - size + 1, size))
