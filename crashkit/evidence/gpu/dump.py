"""Opens a GPU core: its tables, and the sections that belong to a row of a table.

The file may be hostile or truncated: what cannot be read is missing. Nothing here raises.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Optional

import msgspec

from crashkit.elf.headers import ET_CORE, Read, SectionHeader, bounded, read_header
from crashkit.elf.section_table import SectionTable
from crashkit.evidence.gpu import layout

MOST_SECTIONS = 4 << 20
"""A GPU of 256 SMs with 64 warps of 32 threads has four sections each."""
MOST_BYTES = 128 << 20
"""Most bytes read of one dump besides its images: tables, registers and backtraces."""
_MOST_ROWS = 1 << 16
_LONGEST_TEXT = 4096
_MOST_STRINGS = 1 << 20
_STRINGS = 3
"""SHT_STRTAB."""


class Table(msgspec.Struct, frozen=True):
    """One table: where it stands in the tree, and its rows."""

    number: int
    """Its section number."""
    kind: int
    parent: int
    """Section number of the parent table."""
    parent_row: int
    """The row of the parent table that this table belongs to."""
    stride: int
    data: bytes

    def __len__(self) -> int:
        return len(self.data) // self.stride

    def get(self, row: int, column: str) -> Optional[int]:
        """The value; None if the driver that wrote the dump had no such column, or the row is missing."""
        field = layout.COLUMNS[self.kind][column]
        if field.offset + field.size > self.stride or not 0 <= row < len(self):
            return None
        start = row * self.stride + field.offset
        return int.from_bytes(self.data[start : start + field.size], "little")

    def column(self, column: str) -> Sequence[int]:
        """The values of a column, in order; empty if the dump lacks it."""
        field = layout.COLUMNS[self.kind][column]
        if field.offset + field.size > self.stride:
            return ()
        skipped = self.stride - field.offset - field.size
        layout_of_row = f"<{field.offset}x{'Q' if field.size == 8 else 'I'}{skipped}x"
        return [value for (value,) in struct.iter_unpack(layout_of_row, self.data)]

    def rows(self) -> Iterator[Row]:
        """Every row, in order."""
        return (Row(self, number) for number in range(len(self)))


class Row(msgspec.Struct, frozen=True):
    """One row of a table."""

    table: Table
    number: int

    def get(self, column: str) -> Optional[int]:
        """The value of a column; None if the dump lacks it."""
        return self.table.get(self.number, column)

    def value(self, column: str) -> int:
        """The value of a column; 0 if the dump lacks it."""
        return self.table.get(self.number, column) or 0

    def triple(self, *columns: str) -> tuple[int, int, int]:
        """The values of three columns: an index or a dimension."""
        x, y, z = (self.value(column) for column in columns)
        return x, y, z


class GpuDump:
    """One GPU core."""

    def __init__(self, read: Read, size: int) -> None:
        """`size`: bytes of the file. Use `open_dump`."""
        self.size = size
        self.missing = 0
        """Bytes that the section headers declare but the file does not contain; all of them are at its end."""
        self._plain = read
        self._read = bounded(read, MOST_BYTES)
        header = read_header(read)
        assert header is not None
        self.sections = SectionTable(read, header, MOST_SECTIONS)
        self.complete = len(self.sections) == self.sections.declared
        """Whether all section headers are there: they stand at the end of the file, after the data."""
        self.cut = False
        """Whether whoever described it gave up before the end."""
        self._tables: dict[int, list[Table]] = {}
        self._children: dict[tuple[int, int, int], Table] = {}
        self.images: list[tuple[int, SectionHeader]] = []
        """Number and header of each relocated image (cubin)."""
        end = 0
        wanted = {*layout.COLUMNS, layout.RELOCATED_IMAGE} - {layout.BACKTRACE}
        for number, row in self.sections.of_kinds(wanted):
            end = max(end, row.offset + row.size)
            if row.kind == layout.RELOCATED_IMAGE:
                self.images.append((number, row))
                continue
            table = self._table(number, row)
            if table is not None:
                self._tables.setdefault(row.kind, []).append(table)
                self._children.setdefault((row.kind, row.link, row.info), table)
        self.missing = max(0, end - size)
        self._strings = self._find_strings()
        self._belongings: Optional[tuple[int, list[tuple[int, SectionHeader]]]] = None

    def tables(self, kind: int) -> list[Table]:
        """Every table of that type, in the file's order."""
        return self._tables.get(kind, [])

    def rows(self, kind: int) -> Iterator[Row]:
        """Every row of every table of that type."""
        return (row for table in self.tables(kind) for row in table.rows())

    def child(self, row: Row, kind: int) -> Optional[Table]:
        """The table of that type that belongs to a row; the first one, if there are several."""
        return self._children.get((kind, row.table.number, row.number))

    def words(self, row: Row, kind: int) -> tuple[int, ...]:
        """The 32-bit words of the section of that type that belongs to a row: a lane's registers, a warp's uniform registers."""
        data = self._belonging(row, kind)
        return struct.unpack(f"<{len(data) // 4}I", data[: len(data) & ~3])

    def backtrace(self, lane: Row) -> list[int]:
        """Return addresses of a lane's callers, innermost first."""
        for _, section in self._sections_of(lane, layout.BACKTRACE):
            table = self._table(0, section)
            return [value for row in table.rows() if (value := row.get("return_address"))] if table else []
        return []

    def text(self, offset: Optional[int]) -> Optional[str]:
        """The string at an offset of the dump's string table."""
        if offset is None or offset >= len(self._strings):
            return None
        return self._strings[offset : offset + _LONGEST_TEXT].partition(b"\0")[0].decode("utf-8", "replace") or None

    def image(self, section: SectionHeader) -> Read:
        """Reads within one image."""

        def read(offset: int, size: int) -> bytes:
            if not 0 <= offset < section.size or size <= 0:
                return b""
            return self._plain(section.offset + offset, min(size, section.size - offset))

        return read

    def _belonging(self, row: Row, kind: int) -> bytes:
        for _, section in self._sections_of(row, kind):
            return self._read(section.offset, min(section.size, _MOST_ROWS))
        return b""

    def _sections_of(self, row: Row, kind: int) -> Iterator[tuple[int, SectionHeader]]:
        link = row.table.number
        if self._belongings is None or self._belongings[0] != link:
            self._belongings = link, list(self.sections.linked_to(link))
        return ((number, section) for number, section in self._belongings[1] if section.kind == kind and section.info == row.number)

    def _table(self, number: int, row: SectionHeader) -> Optional[Table]:
        stride = row.entry_size or (row.size if row.kind == layout.METADATA else 0)
        if not layout.SMALLEST[row.kind] <= stride <= _MOST_ROWS:
            return None
        size = min(row.size, layout.MOST_ROWS.get(row.kind, _MOST_ROWS) * stride)
        data = self._read(row.offset, size - size % stride)
        return Table(number, row.kind, row.link, row.info, stride, data[: len(data) - len(data) % stride])

    def _find_strings(self) -> bytes:
        """Of the two string tables the one that does not hold the sections' names."""
        tables = (row for number, row in self.sections.of_kinds({_STRINGS}) if number != self.sections.names)
        found = next(tables, None)
        return self._read(found.offset, min(found.size, _MOST_STRINGS)) if found else b""


def open_dump(read: Read, size: int) -> Optional[GpuDump]:
    """The GPU core behind `read`, of `size` bytes; None if it is none."""
    header = read_header(read)
    if header is None or header.kind != ET_CORE or header.machine != layout.MACHINE or header.word.size != 8 or header.word.order != "<":
        return None
    return GpuDump(read, size)
