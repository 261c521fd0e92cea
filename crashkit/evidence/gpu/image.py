"""One relocated image (cubin) of a GPU core: which function an address is in, its code, and its source lines.

`sh_addr` and `st_value` are absolute addresses on the GPU. Functions that were never loaded have the address 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple, Optional

from crashkit.elf.headers import SHF_EXECINSTR, SHT_NOBITS, Read, Section, SectionHeader, of_bytes, read_header
from crashkit.elf.section_table import SectionTable
from crashkit.elf.symbols import Symbol, SymbolTable
from crashkit.evidence.gpu.dump import GpuDump
from crashkit.evidence.gpu.lines import LineTable, Place

_MOST_SECTIONS = 1 << 20
_MOST_LINES = 64 << 20
_MOST_SYMBOLS = 256 << 20
_TEXT = ".text."


class Code(NamedTuple):
    """One function's code in an image: a kernel with the functions that it calls, or a function shared by several."""

    start: int
    end: int
    offset: int
    name: str
    """Mangled."""


class Image:
    """One relocated image."""

    def __init__(self, read: Read, size: int) -> None:
        self._read = read
        self._size = size
        header = read_header(read)
        self._table = SectionTable(read, header, _MOST_SECTIONS) if header is not None else None

    @cached_property
    def codes(self) -> tuple[Code, ...]:
        """The functions that are loaded, without names: `name` gives them."""
        if self._table is None:
            return ()
        rows = (row for _, row in self._table.of_kinds({1}))
        return tuple(Code(row.address, row.address + row.size, row.offset, "") for row in rows if row.flags & SHF_EXECINSTR and row.address)

    def covers(self, address: int) -> bool:
        """Whether the address is in the image's code."""
        return any(code.start <= address < code.end for code in self.codes)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """All sections, with names."""
        return self._table.named() if self._table is not None else ()

    def code(self, address: int) -> Optional[Code]:
        """The function whose code holds the address, with its callees."""
        for section in self.sections:
            if section.name.startswith(_TEXT) and section.address and section.address <= address < section.address + section.size:
                return Code(section.address, section.address + section.size, section.offset, section.name.removeprefix(_TEXT))
        return None

    def instruction(self, address: int, size: int) -> bytes:
        """The bytes of one instruction; empty if they are missing."""
        code = self.code(address)
        if code is None or address + size > code.end:
            return b""
        data = self._read(code.offset + address - code.start, size)
        return data if len(data) == size and any(data) else b""

    def functions(self, addresses: Iterable[int]) -> dict[int, Symbol]:
        """The innermost function at each address: a callee that was not inlined, or the kernel itself."""
        return self._symbols.names(addresses)

    def places(self, address: int) -> tuple[Place, ...]:
        """Source lines of an address, the innermost inlined function first."""
        return self._lines.places(address)

    @cached_property
    def _lines(self) -> LineTable:
        return LineTable(self._content(".debug_line", _MOST_LINES), self._content(".debug_str", _MOST_LINES))

    @cached_property
    def _symbols(self) -> SymbolTable:
        table = next((section for section in self.sections if section.name == ".symtab"), None)
        if table is None or not 0 <= table.link < len(self.sections):
            return SymbolTable(b"", ())
        # The table and its strings side by side, so that the rest of a large image need not be read.
        strings = self.sections[table.link]
        symbols = self._read(table.offset, min(table.size, _MOST_SYMBOLS))
        data = symbols + self._read(strings.offset, min(strings.size, _MOST_SYMBOLS))
        moved = list(self.sections)
        moved[table.link] = strings._replace(offset=len(symbols))
        number = self.sections.index(table)
        moved[number] = table._replace(offset=0, size=len(symbols))
        return SymbolTable(data, moved)

    def _content(self, name: str, most: int) -> bytes:
        section = next((one for one in self.sections if one.name == name and one.kind != SHT_NOBITS), None)
        return self._read(section.offset, min(section.size, most)) if section else b""


class Images:
    """The images of a dump, opened as addresses need them."""

    def __init__(self, dump: GpuDump) -> None:
        self._dump = dump
        self._opened: list[Image] = []
        self._unopened: Iterator[tuple[int, SectionHeader]] = iter(dump.images)

    def at(self, address: int) -> Optional[Image]:
        """The image whose code holds the address."""
        if not address:
            return None
        for image in self._opened:
            if image.covers(address):
                return image
        for _, section in self._unopened:
            image = Image(self._dump.image(section), section.size)
            self._opened.append(image)
            if image.covers(address):
                return image
        return None


def of_image(data: bytes) -> Image:
    """An image in memory, such as a cubin file."""
    return Image(of_bytes(data), len(data))
