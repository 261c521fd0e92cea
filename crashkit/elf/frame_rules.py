"""How a function's caller is restored: the call frame instructions of `.eh_frame` for one program counter (DWARF 5, 6.4).

Only what compilers write for ordinary functions: rules by register and offset. What needs an expression is told as unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Optional

import msgspec

_MOST_INSTRUCTIONS = 4096
_ORDINARY = {0x0: "Q", 0x2: "H", 0x3: "I", 0x4: "Q", 0xA: "h", 0xB: "i", 0xC: "q"}


class Rules(msgspec.Struct, frozen=True):
    """At one program counter."""

    base: int
    """The register from whose value the canonical frame address is counted, by DWARF number."""
    offset: int
    """Added to it: the canonical frame address, the stack pointer in the caller."""
    saved: Mapping[int, int]
    """Where the caller's registers are saved, by DWARF number: the distance from the canonical frame address."""
    return_register: int
    """The one whose saved value is the return address."""


class _Unknown(Exception):
    """An instruction that needs more than a register and an offset."""


class _Cursor:
    """Reads numbers from the bytes. Raises IndexError or struct.error behind their end."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize(code)
        return int(value)

    def unsigned(self) -> int:
        """ULEB128."""
        value, shift = 0, 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self) -> int:
        """SLEB128."""
        start = self.at
        value = self.unsigned()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) else value

    def text(self) -> bytes:
        end = self.data.index(0, self.at)
        found = self.data[self.at : end]
        self.at = end + 1
        return found


def rules(parent: bytes, entry: bytes, distance: int) -> Optional[Rules]:
    """The rules `distance` bytes behind the beginning of the function of a frame description entry.

    `parent` and `entry` are the common and the frame description entry from their length on (Linux Standard Base, "Exception Frames").
    None if they need an expression, or make no sense.
    """
    try:
        return _rules(parent, entry, distance)
    except (_Unknown, IndexError, KeyError, ValueError, struct.error):
        return None


def _rules(parent: bytes, entry: bytes, distance: int) -> Optional[Rules]:
    common = _Cursor(parent, 8)
    version = common.number("B")
    letters = common.text()
    code_step, data_step = common.unsigned(), common.signed()
    return_register = common.unsigned() if version > 1 else common.number("B")
    own = _Cursor(entry, 8)
    size = 8
    if letters.startswith(b"z"):
        end_of_letters = common.unsigned() + common.at
        for letter in letters[1:]:
            encoding = common.number("B") if letter in b"RPL" else 0
            if letter == ord("R"):
                size = struct.calcsize(_ORDINARY[encoding & 0xF])
            elif letter == ord("P"):
                common.at += struct.calcsize(_ORDINARY[encoding & 0xF])
        common.at = end_of_letters
    own.at += 2 * size
    if letters.startswith(b"z"):
        own.at = own.unsigned() + own.at
    state = _State(code_step, data_step)
    state.run(common, len(parent), None)
    state.initial = dict(state.saved)
    state.run(own, len(entry), distance)
    if state.base is None:
        return None
    return Rules(state.base, state.offset, state.saved, return_register)


class _State:
    """What the instructions so far said."""

    def __init__(self, code_step: int, data_step: int) -> None:
        self._code_step = code_step
        self._data_step = data_step
        self.base: Optional[int] = None
        self.offset = 0
        self.saved: dict[int, int] = {}
        self.initial: dict[int, int] = {}
        self._kept: list[tuple[Optional[int], int, dict[int, int]]] = []

    def run(self, at: _Cursor, end: int, distance: Optional[int]) -> None:
        """Up to the instruction for code behind `distance`."""
        here = 0
        for _ in range(_MOST_INSTRUCTIONS):
            if at.at >= end:
                return
            code = at.number("B")
            high, low = code & 0xC0, code & 0x3F
            step = self._advance(code, high, low, at)
            if step is not None:
                here += step
                if distance is not None and here > distance:
                    return
            elif high == 0x80:  # DW_CFA_offset
                self.saved[low] = at.unsigned() * self._data_step
            elif high == 0xC0:  # DW_CFA_restore
                self._restore(low)
            else:
                self._other(code, at)

    def _advance(self, code: int, high: int, low: int, at: _Cursor) -> Optional[int]:
        """Bytes of code, if the instruction is one that goes on in it."""
        if high == 0x40:
            return low * self._code_step
        wide = {0x02: "B", 0x03: "H", 0x04: "I"}.get(code)
        return at.number(wide) * self._code_step if wide else None

    def _restore(self, register: int) -> None:
        self.saved.pop(register, None)
        if register in self.initial:
            self.saved[register] = self.initial[register]

    def _other(self, code: int, at: _Cursor) -> None:
        if code == 0x00:  # nop
            return
        if code == 0x0A:  # remember_state
            self._kept.append((self.base, self.offset, dict(self.saved)))
        elif code == 0x0B:  # restore_state
            self.base, self.offset, self.saved = self._kept.pop()
        elif code == 0x0C:  # def_cfa
            self.base, self.offset = at.unsigned(), at.unsigned()
        elif code == 0x0D:  # def_cfa_register
            self.base = at.unsigned()
        elif code == 0x0E:  # def_cfa_offset
            self.offset = at.unsigned()
        elif code == 0x05:  # offset_extended
            register = at.unsigned()
            self.saved[register] = at.unsigned() * self._data_step
        elif code == 0x06:  # restore_extended
            self._restore(at.unsigned())
        elif code in (0x07, 0x08):  # undefined, same_value
            self.saved.pop(at.unsigned(), None)
        elif code == 0x2E:  # GNU_args_size
            at.unsigned()
        else:
            raise _Unknown(code)
