"""CPython's line tables: the line of an instruction, from a code object's bytes. No gdb.

An instruction that belongs to no line is given the last line before it.
Formats: Objects/lnotab_notes.txt of 3.6 to 3.9 (`co_lnotab`), of 3.10 (`co_linetable`), and Objects/locations.md of 3.11 and newer.
"""

# interpreter/linetable.py is the same for crashkit's own reader. It is not loaded here: gdb's Python executes no file beside its scripts.
from typing import Tuple


def lnotab(table: bytes, first: int, instruction: int) -> int:
    """3.6 to 3.9: pairs of (bytes of code, signed lines); `instruction` in bytes (PyCode_Addr2Line, Objects/codeobject.c)."""
    line, address = first, 0
    for index in range(0, len(table) - 1, 2):
        address += table[index]
        if address > instruction:
            break
        delta = table[index + 1]
        line += delta - 256 if delta >= 128 else delta
    return line


def linetable_310(table: bytes, first: int, instruction: int) -> int:
    """3.10: pairs of (bytes of code, signed lines), -128 for code without a line; the line counts from the range's start."""
    if instruction < 0:
        return first
    line, end = first, 0
    for index in range(0, len(table) - 1, 2):
        delta = table[index + 1]
        delta = delta - 256 if delta >= 128 else delta
        end += table[index]
        if delta != -128:
            line += delta
        if instruction < end:
            return line
    return line


def locations(table: bytes, first: int, instruction: int) -> int:
    """3.11 and newer: a varying-length entry for each range of instructions; `instruction` in code units of two bytes."""
    if instruction < 0:
        return first
    line, unit, at = first, 0, 0
    while at < len(table):
        head = table[at]
        at += 1
        code, length = head >> 3 & 15, (head & 7) + 1
        if code in (13, 14):
            delta, at = _signed(table, at)
            line += delta
        elif 10 <= code <= 12:
            line += code - 10
        unit += length
        if instruction < unit:
            return line
        while at < len(table) and not table[at] & 0x80:
            at += 1
    return line


def _signed(table: bytes, at: int) -> Tuple[int, int]:
    value, shift = 0, 0
    while at < len(table):
        byte = table[at]
        at += 1
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return (-(value >> 1) if value & 1 else value >> 1), at
