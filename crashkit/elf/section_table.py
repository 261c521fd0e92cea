"""The section table of a 64-bit little-endian file of any size, kept as bytes.

A GPU core has a few sections per GPU thread, so a million of them: too many for one object each (`headers.read_sections` reads 4096).
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Container, Iterator
from typing import NamedTuple, Optional

from crashkit.elf.headers import Header, Read, Section

_ROW = struct.Struct("<IIQQQQIIQQ")
_MOST_NAMES = 1 << 28
_LONGEST_NAME = 1 << 16


class SectionRow(NamedTuple):
    """One section header (Elf64_Shdr)."""

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


class SectionTable:
    """Section headers by number; those that the file declares but does not contain are missing from the end."""

    def __init__(self, read: Read, header: Header, most: int) -> None:
        """Read at most `most` headers; none of a 32-bit or big-endian file."""
        self._read = read
        self.declared = 0
        """The number of sections by the file's header."""
        self.names = 0
        """The number of the section that contains the section names."""
        self._data = b""
        if header.word.size != 8 or header.word.order != "<" or not header.sections.offset:
            return
        count, self.names = header.sections.entries, header.names
        first = read(header.sections.offset, _ROW.size)
        if len(first) == _ROW.size and (not count or self.names == 0xFFFF):
            row = SectionRow._make(_ROW.unpack(first))
            count, self.names = count or row.size, row.link if self.names == 0xFFFF else self.names
        self.declared = count
        data = read(header.sections.offset, min(count, most) * _ROW.size)
        self._data = data[: len(data) - len(data) % _ROW.size]
        words = array("I")
        words.frombytes(self._data)
        if sys.byteorder == "big":
            words.byteswap()
        self._kinds, self._links = words[1::16], words[10::16]

    def __len__(self) -> int:
        return len(self._data) // _ROW.size

    def row(self, number: int) -> Optional[SectionRow]:
        """The header of that number; None if there is none."""
        if not 0 <= number < len(self):
            return None
        return SectionRow._make(_ROW.unpack_from(self._data, number * _ROW.size))

    def of_kinds(self, kinds: Container[int]) -> Iterator[tuple[int, SectionRow]]:
        """Number and header of each section of these types, in the table's order."""
        if not self._data:
            return
        for number, kind in enumerate(self._kinds):
            if kind in kinds:
                yield number, SectionRow._make(_ROW.unpack_from(self._data, number * _ROW.size))

    def linked_to(self, link: int) -> Iterator[tuple[int, SectionRow]]:
        """Number and header of each section behind number `link` whose sh_link it is."""
        start = link
        while self._data:
            try:
                start = self._links.index(link, start)
            except ValueError:
                return
            yield start, SectionRow._make(_ROW.unpack_from(self._data, start * _ROW.size))
            start += 1

    def named(self) -> tuple[Section, ...]:
        """All sections with their names, as `headers.read_sections` gives them."""
        names = self.row(self.names)
        strings = self._read(names.offset, min(names.size, _MOST_NAMES)) if names else b""
        found = []
        for number, fields in enumerate(_ROW.iter_unpack(self._data)):
            row = SectionRow._make(fields)
            end = strings.find(b"\0", row.name, row.name + _LONGEST_NAME)
            name = strings[row.name : max(end, row.name)].decode("utf-8", "replace")
            found.append(Section(name, row.kind, row.flags, row.address, row.offset, row.size, row.link, number * _ROW.size))
        return tuple(found)
