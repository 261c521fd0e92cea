"""Looks up addresses in a module's unwind tables: a frame found without them was guessed from code.

`.eh_frame_hdr` is a table sorted by address, made for binary search (Linux Standard Base, "Exception Frames"); each
entry points to a frame description entry in `.eh_frame`, which contains the length of its range.
"""

from __future__ import annotations

import mmap
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import msgspec

from crashkit.elf.file import ElfFile, open_elf
from crashkit.elf.frame_rules import Rules, rules
from crashkit.elf.headers import PT_GNU_EH_FRAME, PT_LOAD

_MAX_AUGMENTATION = 64
_LONGEST_ENTRY = 1 << 16
# Pointer encodings, DW_EH_PE_*: the low four bits are the format, the next three what it is relative to.
_FORMATS = {0x0: "Q", 0x2: "H", 0x3: "I", 0x4: "Q", 0xA: "h", 0xB: "i", 0xC: "q"}
_PC_RELATIVE, _DATA_RELATIVE, _OMITTED = 0x10, 0x30, 0xFF


class Entry(msgspec.Struct, frozen=True):
    """A frame description entry with the common entry that it refers to, each from its length on."""

    parent: int
    """File offset of the common entry."""
    common: bytes
    own: bytes
    form: str
    """How `own` has the function's beginning, behind its first eight bytes: a code of `struct`."""
    is_relative: Optional[bool]
    """Whether that counts from itself, or else is the address; None if it counts from something else."""


class UnwindTable:
    """The unwind tables of one ELF file. Addresses are those of the file: program counter minus load bias."""

    def __init__(self, data: bytes | mmap.mmap, elf: Optional[ElfFile]) -> None:
        self._data = data
        self._elf = elf
        self._order = elf.order if elf else "<"
        self._start, self._count = self._search_table()
        self._sorted: Optional[Sequence[int]] = None
        self._functions: dict[int, Optional[range]] = {}
        """By address: the threads of a pool all stand at the same ones."""

    @classmethod
    def load(cls, path: Path) -> UnwindTable:
        """Load the tables of a file. Raises OSError; a file that is not ELF, or has no such table, covers nothing."""
        elf = open_elf(path)
        if elf is None:
            return cls(b"", None)
        with path.open("rb") as file:
            return cls(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), elf)

    @property
    def is_known(self) -> bool:
        """Whether there is a table to search; if not, `covers` is always False and means nothing."""
        return self._count > 0

    def covers(self, address: int) -> bool:
        """Whether a frame description entry covers `address`. For a return address, pass the address before it."""
        return self.function(address) is not None

    def function(self, address: int) -> Optional[range]:
        """The address range of the entry that covers `address`: a function, or a part that the compiler moved elsewhere."""
        if address not in self._functions:
            self._functions[address] = self._function(address)
        return self._functions[address]

    def _function(self, address: int) -> Optional[range]:
        try:
            entry = self._entry(address)
            found = None if entry is None else self._range(entry)
        except (struct.error, IndexError, OverflowError):
            return None
        return found if found is not None and address in found else None

    def rules(self, address: int) -> Optional[Rules]:
        """How the caller of the code at `address` is restored; None if unknown. For a return address, pass the address before it."""
        entry, reach = self.entry(address), self.function(address)
        return rules(entry.common, entry.own, address - reach.start) if entry is not None and reach is not None else None

    def entry(self, address: int) -> Optional[Entry]:
        """The entry that covers `address`; None if none does, or it makes no sense."""
        try:
            place = self._entry(address) if self.function(address) is not None else None
            position = None if place is None else self._offset(place)
            if position is None:
                return None
            length, parent = struct.unpack_from(self._order + "II", self._data, position)
            above = position + 4 - parent
            (above_length,) = struct.unpack_from(self._order + "I", self._data, max(above, 0))
            encoding = self._encoding(above)
        except (struct.error, IndexError, OverflowError):
            return None
        if self._order != "<" or above < 0 or max(length, above_length) > _LONGEST_ENTRY:
            return None
        relative = {0: False, _PC_RELATIVE: True}.get(encoding & 0x70)
        own, common = self._data[position : position + 4 + length], self._data[above : above + 4 + above_length]
        return Entry(above, bytes(common), bytes(own), _FORMATS[encoding & 0xF], relative)

    def code(self, addresses: range) -> bytes:
        """The file's bytes at these addresses; fewer if the file ends before."""
        position = self._offset(addresses.start) if self._elf else None
        return b"" if position is None else bytes(self._data[position : position + len(addresses)])

    def _search_table(self) -> tuple[int, int]:
        """File offset and number of entries."""
        header = next((one for one in self._elf.program_headers if one.kind == PT_GNU_EH_FRAME), None) if self._elf else None
        if header is None or header.offset + 12 > len(self._data):
            return 0, 0
        version, pointer, count, table = self._data[header.offset : header.offset + 4]
        # What GNU ld, gold and lld write: sdata4 pointers, udata4 count, a table of sdata4 relative to this header.
        if (version, count, table) != (1, 0x03, 0x3B) or pointer & 0xF not in (0x3, 0xB):
            return 0, 0
        self._base = header.address
        (entries,) = struct.unpack_from(self._order + "I", self._data, header.offset + 8)
        return header.offset + 12, min(entries, (header.stored - 12) // 8)

    def _entry(self, address: int) -> Optional[int]:
        """Address of the last entry that begins at or before `address`."""
        after = bisect_right(self._begins(), address - self._base) if self._count else 0
        return self._pair(after - 1)[1] if after else None

    def _begins(self) -> Sequence[int]:
        """Where the functions of the search table begin, relative to its header."""
        if self._sorted is None:
            table = memoryview(self._data)[self._start : self._start + 8 * self._count]
            table = table[: len(table) // 8 * 8]
            if self._order == ("<" if sys.byteorder == "little" else ">"):
                self._sorted = table.cast("i")[::2]
            else:
                numbers = array("i", table.tobytes())
                numbers.byteswap()
                self._sorted = numbers[::2]
        return self._sorted

    def _pair(self, index: int) -> tuple[int, int]:
        begin, entry = struct.unpack_from(self._order + "ii", self._data, self._start + 8 * index)
        return self._base + begin, self._base + entry

    def _range(self, entry: int) -> Optional[range]:
        position = self._offset(entry)
        if position is None:
            return None
        length, parent = struct.unpack_from(self._order + "II", self._data, position)
        if length in (0, 0xFFFFFFFF):
            return None
        encoding = self._encoding(position + 4 - parent)
        form = _FORMATS.get(encoding & 0xF)
        if form is None or encoding == _OMITTED:
            return None
        size = struct.calcsize(form)
        (begin,) = struct.unpack_from(self._order + form, self._data, position + 8)
        (reach,) = struct.unpack_from(self._order + form.upper(), self._data, position + 8 + size)
        if encoding & 0x70 == _PC_RELATIVE:
            begin += entry + 8
        elif encoding & 0x70 == _DATA_RELATIVE:
            begin += self._base
        return range(begin, begin + reach)

    def _encoding(self, parent: int) -> int:
        """How the entries of the common entry at this file offset write addresses: its augmentation's `R`."""
        if parent < 0:
            return _OMITTED
        letters = bytes(self._data[parent + 9 : parent + 9 + _MAX_AUGMENTATION]).partition(b"\0")[0]
        if not letters.startswith(b"z"):
            return 0
        position = parent + 9 + len(letters) + 1
        for _ in ("code alignment", "data alignment", "return address register", "augmentation length"):
            while self._data[position] & 0x80:
                position += 1
            position += 1
        for letter in letters[1:]:
            if letter == ord("R"):
                return self._data[position]
            if letter == ord("P"):
                position += struct.calcsize(_FORMATS.get(self._data[position] & 0xF, "Q"))
            position += letter in b"LP"
        return 0

    def _offset(self, address: int) -> Optional[int]:
        """File offset of an address; the entries lie in a segment of the file."""
        assert self._elf is not None
        for section in self._elf.sections:
            if section.name == ".eh_frame" and section.address <= address < section.address + section.size:
                return section.offset + address - section.address
        for header in self._elf.program_headers:
            if header.kind == PT_LOAD and header.address <= address < header.address + header.stored:
                return header.offset + address - header.address
        return None
