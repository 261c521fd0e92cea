"""Line tables of code objects: the position in the source of an instruction. Pure.

An instruction that belongs to no line is given the last line before it, as faulthandler does.
Formats: Objects/lnotab_notes.txt of 3.6 to 3.9 (`co_lnotab`), of 3.10 (`co_linetable`), and Objects/locations.md of 3.11 and newer.
"""

from __future__ import annotations

from typing import Optional

import msgspec


class Position(msgspec.Struct, frozen=True):
    """Where an instruction is in the source. Columns, from 3.11 on, count bytes of UTF-8 from 0."""

    line: int
    end_line: Optional[int] = None
    column: Optional[int] = None
    end_column: Optional[int] = None


def lnotab(table: bytes, first: int, instruction: int) -> Position:
    """3.6 to 3.9: pairs of (bytes of code, signed lines); `instruction` in bytes (PyCode_Addr2Line, Objects/codeobject.c)."""
    line, address = first, 0
    for index in range(0, len(table) - 1, 2):
        address += table[index]
        if address > instruction:
            break
        line += _signed_byte(table[index + 1])
    return Position(line)


def linetable_310(table: bytes, first: int, instruction: int) -> Position:
    """3.10: pairs of (bytes of code, signed lines), -128 for code without a line; the line counts from the range's start."""
    line, end = first, 0
    if instruction < 0:
        return Position(first)
    for index in range(0, len(table) - 1, 2):
        delta = _signed_byte(table[index + 1])
        end += table[index]
        if delta != -128:
            line += delta
        if instruction < end:
            break
    return Position(line)


def locations(table: bytes, first: int, instruction: int) -> Position:
    """3.11 and newer: an entry of varying length for each range of instructions; `instruction` in code units of two bytes."""
    if instruction < 0:
        return Position(first)
    line, unit, at = first, 0, 0
    while at < len(table):
        head = table[at]
        code, length = head >> 3 & 15, (head & 7) + 1
        start = at + 1
        at = start
        # Only an entry's first byte has its highest bit set.
        while at < len(table) and not table[at] & 0x80:
            at += 1
        entry = table[start:at]
        if code in (13, 14):
            line += _signed(_number(entry, 0)[0])
        elif 10 <= code <= 12:
            line += code - 10
        unit += length
        if instruction < unit:
            return _position(code, line, entry)
    return Position(line)


def _position(code: int, line: int, entry: bytes) -> Position:
    """The position that an entry of this code tells, after its line was added."""
    if code < 10 and entry:
        column = code << 3 | entry[0] >> 4
        return Position(line, line, column, column + (entry[0] & 15))
    if code <= 12 and len(entry) >= 2:
        return Position(line, line, entry[0], entry[1])
    if code == 14:
        at = _number(entry, 0)[1]
        lines, at = _number(entry, at)
        column, at = _number(entry, at)
        end_column, at = _number(entry, at)
        return Position(line, line + lines, column - 1 if column else None, end_column - 1 if end_column else None)
    return Position(line)


def _signed_byte(byte: int) -> int:
    return byte - 256 if byte >= 128 else byte


def _signed(number: int) -> int:
    return -(number >> 1) if number & 1 else number >> 1


def _number(entry: bytes, at: int) -> tuple[int, int]:
    """A varint of six bits a byte, the lowest first, and where it ends."""
    value, shift = 0, 0
    while at < len(entry):
        byte = entry[at]
        at += 1
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return value, at
