"""Looks up function names in an ELF file's own symbol table, for a few addresses at once.

gdb reads and sorts all symbols of a module before it names the first one; libtorch_cpu.so has half a million. Here one
pass over the table, in compiled code, keeps the few symbols that cover a wanted address. The choice among them
is gdb's (`lookup_minimal_symbol_by_pc_section`, gdb/minsyms.c): the highest start wins; of several at one address the last
by name, but a global one before that; a symbol without a size (hand-written assembly) only if no sized one covers the
address; otherwise no name.
"""

from __future__ import annotations

import lzma
import mmap
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import compress, repeat
from operator import add, ne
from pathlib import Path
from typing import NamedTuple, Optional

from ahocorasick_rs import BytesAhoCorasick

from crashkit.elf.file import open_elf, read_elf
from crashkit.elf.headers import SHF_EXECINSTR, Section, of_bytes
from crashkit.elf.unwind_table import UnwindTable
from crashkit.limits import LONGEST_TEXT

_ENTRY = struct.Struct("<3Q")
"""An entry as three words: name, info and section number; st_value; st_size."""
_START = 8
"""Where st_value is."""
_MAX_SYMBOLS = 20_000_000
_MAX_MINI_TABLE = 64 << 20
_LOCAL, _IFUNC = 0, 10
_OBJECT = 1
_FUNCTIONS = {0, 2, _IFUNC}
"""STT_NOTYPE (assembly labels), STT_FUNC, STT_GNU_IFUNC."""


class Symbol(NamedTuple):
    """A function symbol."""

    name: str
    """Mangled as in the table, without a version."""
    start: int
    size: int
    """Bytes; 0 if unknown."""
    is_global: bool
    """Visible outside its object file, including weak symbols; False for IFUNC resolvers."""


class SymbolTable:
    """The functions of one 64-bit little-endian ELF file; other kinds of files have no names.

    Addresses are relative to the file (st_value): program counter minus load bias.
    """

    def __init__(self, data: bytes | mmap.mmap, sections: Sequence[Section], unwind: Optional[UnwindTable] = None) -> None:
        self._data = data
        self._sections = sections
        self._table = _table_of(sections)
        self._unwind = unwind

    @classmethod
    def load(cls, path: Path) -> SymbolTable:
        """Load .symtab or, for a stripped file, .dynsym with the symbols of .gnu_debugdata.

        Raises OSError; a file that is not ELF has no names.
        """
        elf = open_elf(path)
        if elf is None or not (elf.wide and elf.order == "<" and sys.byteorder == "little"):
            return cls(b"", ())
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            return cls(data, elf.sections, UnwindTable(data, elf))

    @property
    def kind(self) -> str:
        """As in `Module.symbols`: table, exports or none."""
        if self._table is None:
            return "none"
        return "table" if self._table.name == ".symtab" else "exports"

    def name(self, address: int) -> Optional[Symbol]:
        """The function that covers `address`; None if none does. For several addresses, call `names` once."""
        return self.names([address]).get(address)

    def find(self, name: str) -> Optional[Symbol]:
        """The function of that (mangled) name; None if there is none. Does not search .gnu_debugdata."""
        words = self._words() if self._table else array("Q")
        return next((symbol for index in self._named(words, name) if (symbol := self._symbol(index))), None)

    def variable(self, name: str) -> Optional[Symbol]:
        """The variable of that (mangled) name; None if there is none."""
        words = self._words() if self._table else array("Q")
        for index in self._named(words, name):
            first = words[3 * index]
            if first >> 32 & 0xF == _OBJECT and 0 < first >> 48 < len(self._sections):
                return Symbol(name, words[3 * index + 1], words[3 * index + 2], first >> 36 & 0xF != _LOCAL)
        return None

    def _named(self, words: array[int], name: str) -> Iterator[int]:
        """The numbers of the table's entries of that name."""
        if self._table is None or self._table.link >= len(self._sections):
            return iter(())
        strings = self._sections[self._table.link]
        text = bytes(self._data[strings.offset : strings.offset + strings.size])
        wanted, at = set(), -1
        while (at := text.find(name.encode() + b"\0", at + 1)) >= 0:
            wanted.add(at)
        return compress(range(len(words) // 3), ((first & 0xFFFFFFFF) in wanted for first in words[::3]))

    def names(self, addresses: Iterable[int]) -> dict[int, Symbol]:
        """Map each address to the function that covers it; omit addresses without one. Each call reads the whole table."""
        wanted = sorted(set(addresses))
        found = self._look_up(wanted) if self._table else {}
        left = [address for address in wanted if address not in found]
        mini = self._mini_table() if left and self.kind != "table" else None
        if mini:
            found.update(mini.names(left))
        return found

    def usual_names(self, addresses: Iterable[int]) -> dict[int, Symbol]:
        """As `names`, but only what takes a quarter of the time: no function whose symbol spans anything else than its unwind entry.

        The same for each address, and for the one before it: of a return address, that counts.
        """
        wanted = sorted({near for address in addresses for near in (address - 1, address)})
        return self._by_unwind_table(wanted) if self._table and self._unwind and wanted else {}

    def _look_up(self, wanted: list[int]) -> dict[int, Symbol]:
        found = self._by_unwind_table(wanted) if self._unwind else {}
        left = [address for address in wanted if address not in found]
        return found | self._covering(self._words(), left) if left else found

    def _by_unwind_table(self, wanted: list[int]) -> dict[int, Symbol]:
        """Functions whose symbol spans what the unwind tables say of them: a quarter of the time, because starts are only compared."""
        assert self._unwind is not None
        functions = {address: function for address in wanted if (function := self._unwind.function(address))}
        at: dict[int, list[Symbol]] = {function.start: [] for function in functions.values()}
        for index in self._starting(at):
            symbol = self._symbol(index)
            if symbol:
                at[symbol.start].append(symbol)
        # Where sizes differ there may be more than one symbol in this range: that is for the long way.
        return {
            address: _choose(at[function.start])
            for address, function in functions.items()
            if at[function.start] and all(symbol.size == len(function) for symbol in at[function.start])
        }

    def _covering(self, words: array[int], wanted: list[int]) -> dict[int, Symbol]:
        starts, sizes = words[1::3], words[2::3]
        # How many wanted addresses lie below each symbol's start, and below its end.
        before_start = list(map(bisect_left, repeat(wanted), starts))
        before_end = map(bisect_left, repeat(wanted), map(add, starts, sizes))
        covering: dict[int, list[Symbol]] = {}
        for index in compress(range(len(starts)), map(ne, before_start, before_end)):
            symbol = self._symbol(index)
            if symbol:
                for address in wanted[before_start[index] : bisect_left(wanted, symbol.start + symbol.size)]:
                    covering.setdefault(address, []).append(symbol)
        found = {address: _choose(symbols) for address, symbols in covering.items()}
        return self._unsized(starts, [address for address in wanted if address not in found]) | found

    def _unsized(self, starts: array[int], addresses: list[int]) -> dict[int, Symbol]:
        """The nearest function before each address, where that one has no size."""
        ordered = sorted(starts) if addresses else []
        before = {address: ordered[bisect_right(ordered, address) - 1] for address in addresses if ordered and ordered[0] <= address}
        nearest = frozenset(start for address, start in before.items() if self._section_of(start) == self._section_of(address) is not None)
        named: dict[int, list[Symbol]] = {}
        for index in self._starting(nearest):
            symbol = self._symbol(index)
            if symbol and not symbol.size:
                named.setdefault(symbol.start, []).append(symbol)
        return {address: _choose(named[start]) for address, start in before.items() if start in named}

    def _section_of(self, address: int) -> Optional[Section]:
        return next((one for one in self._sections if one.flags & SHF_EXECINSTR and one.address <= address < one.address + one.size), None)

    def _entries(self) -> memoryview:
        """The table's own bytes; not copied, for it may have 12 MB."""
        assert self._table is not None
        size = min(self._table.size, _MAX_SYMBOLS * _ENTRY.size)
        data = memoryview(self._data)[self._table.offset : self._table.offset + size]
        return data[: len(data) - len(data) % _ENTRY.size]

    def _words(self) -> array[int]:
        """The entries as 64-bit words, three an entry."""
        words = array("Q")
        words.frombytes(self._entries())
        return words

    def _starting(self, starts: Collection[int]) -> Iterator[int]:
        """The numbers of the entries with these values. Other threads go on while they are searched for."""
        values = [start.to_bytes(8, "little") for start in starts if 0 < start < 1 << 64]
        found = BytesAhoCorasick(values).find_matches_as_indexes(self._entries(), overlapping=True) if values else ()
        # Other words of the table may have the same value, or parts of two of them.
        return (at // _ENTRY.size for _, at, _ in found if at % _ENTRY.size == _START)

    def _symbol(self, index: int) -> Optional[Symbol]:
        """None where the entry is no function of this file."""
        first, start, size = _ENTRY.unpack_from(self._entries(), index * _ENTRY.size)
        kind, binding, number = first >> 32 & 0xF, first >> 36 & 0xF, first >> 48
        if kind not in _FUNCTIONS or number >= len(self._sections) or not self._sections[number].flags & SHF_EXECINSTR:
            return None
        name = self._string(first & 0xFFFFFFFF)
        return Symbol(name, start, size, binding != _LOCAL and kind != _IFUNC) if name else None

    def _string(self, offset: int) -> str:
        assert self._table is not None
        if self._table.link >= len(self._sections):
            return ""
        strings = self._sections[self._table.link]
        if offset >= strings.size:
            return ""
        raw = self._data[strings.offset + offset : strings.offset + min(offset + LONGEST_TEXT, strings.size)]
        return bytes(raw.partition(b"\0")[0]).decode("utf-8", "replace")

    def _mini_table(self) -> Optional[SymbolTable]:
        """Fedora and its kin keep the local functions of a stripped file in a small ELF inside it (gdb manual, "MiniDebugInfo")."""
        section = next((one for one in self._sections if one.name == ".gnu_debugdata"), None)
        if section is None:
            return None
        packed = bytes(self._data[section.offset : section.offset + section.size])
        with suppress(lzma.LZMAError):
            plain = lzma.LZMADecompressor(memlimit=1 << 28).decompress(packed, _MAX_MINI_TABLE)
            elf = read_elf(of_bytes(plain))
            return SymbolTable(plain, elf.sections) if elf and elf.wide and elf.order == "<" else None
        return None


def _table_of(sections: Sequence[Section]) -> Optional[Section]:
    found = {section.name: section for section in sections if section.size and section.kind in (2, 11)}
    return found.get(".symtab") or found.get(".dynsym")


def _choose(symbols: Sequence[Symbol]) -> Symbol:
    highest = max(symbol.start for symbol in symbols)
    aliases = sorted((symbol for symbol in symbols if symbol.start == highest), key=lambda symbol: symbol.name.encode())
    last, before = aliases[-1], aliases[-2:][0]
    chosen = before if before.is_global and not last.is_global and before.size == last.size else last
    return chosen._replace(name=chosen.name[:1] + chosen.name[1:].partition("@")[0])
