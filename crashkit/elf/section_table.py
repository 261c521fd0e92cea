"""The section table of a 64-bit little-endian file of any size, kept as bytes.

A GPU core has a few sections per GPU thread, so a million of them: too many for one object each (`headers.read_sections` reads 4096).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Container, Iterator
from typing import Optional

from crashkit.elf.headers import Header, Read, Section, SectionHeader, Word, count_sections, section_header

_WORD = Word(8, "<")
_ROW = 64
_MOST_NAMES = 1 << 28
_LONGEST_NAME = 1 << 16


class SectionTable:
    """Section headers by number; those that the file declares but does not contain are missing from the end."""

    def __init__(self, read: Read, header: Header, most: int) -> None:
        """Read at most `most` headers; none of a 32-bit or big-endian file."""
        self._read = read
        self.declared, self.names = 0, 0
        """How many sections the file declares; the number of the one that contains their names."""
        self._data = b""
        if header.word != _WORD or not header.sections.offset:
            return
        self.declared, self.names = count_sections(read, header)
        data = read(header.sections.offset, min(self.declared, most) * _ROW)
        self._data = data[: len(data) - len(data) % _ROW]
        words = array("I")
        words.frombytes(self._data)
        if sys.byteorder == "big":
            words.byteswap()
        self._kinds, self._links = words[1::16], words[10::16]

    def __len__(self) -> int:
        return len(self._data) // _ROW

    def row(self, number: int) -> Optional[SectionHeader]:
        """The header of that number; None if there is none."""
        return section_header(self._data, _WORD, number * _ROW) if 0 <= number < len(self) else None

    def of_kinds(self, kinds: Container[int]) -> Iterator[tuple[int, SectionHeader]]:
        """Number and header of each section of these types, in the table's order."""
        if not self._data:
            return
        for number, kind in enumerate(self._kinds):
            if kind in kinds and (row := self.row(number)):
                yield number, row

    def linked_to(self, link: int) -> Iterator[tuple[int, SectionHeader]]:
        """Number and header of each section behind number `link` whose sh_link it is."""
        start = link
        while self._data:
            try:
                start = self._links.index(link, start)
            except ValueError:
                return
            if row := self.row(start):
                yield start, row
            start += 1

    def named(self) -> tuple[Section, ...]:
        """All sections with their names, as `headers.read_sections` gives them."""
        names = self.row(self.names)
        strings = self._read(names.offset, min(names.size, _MOST_NAMES)) if names else b""
        found = []
        for number in range(len(self)):
            if (row := self.row(number)) is None:
                continue
            end = strings.find(b"\0", row.name, row.name + _LONGEST_NAME)
            name = strings[row.name : max(end, row.name)].decode("utf-8", "replace")
            found.append(Section(name, row.kind, row.flags, row.address, row.offset, row.size, row.link, number * _ROW))
        return tuple(found)
