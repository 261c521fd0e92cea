"""Writes ELF cores (64 bit) as debuggers read them: the header, the segments' headers, the notes, the memory."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple, Union

from crashkit.elf.headers import ET_CORE, PN_XNUM, PT_LOAD, PT_NOTE, Word

_ALIGNED = 128
"""elfutils takes a segment to begin at the multiple of this, or of the processor's pages if no segment says less."""
_HEADER, _PROGRAM, _SECTION = 64, 56, 64


class Part(NamedTuple):
    """One segment: `size` bytes of address space, and its memory; none where that is not known."""

    start: int
    size: int
    flags: int
    """1 execute, 2 write, 4 read."""
    data: Union[bytes, memoryview]


def write_core(file: BinaryIO, machine: int, word: Word, notes: bytes, parts: Sequence[Part]) -> None:
    """Write a core to the beginning of an empty file. Raises OSError."""
    order = word.order
    count = 1 + len(parts)
    # As many segments as the header cannot count stand in section header 0 (elf(5), PN_XNUM).
    extended = count >= PN_XNUM
    sections_at = _HEADER + _PROGRAM * count
    notes_at = sections_at + _SECTION * extended
    first = -(-(notes_at + len(notes)) // _ALIGNED) * _ALIGNED
    ident = b"\x7fELF" + bytes([2, 1 if order == "<" else 2, 1]) + bytes(9)
    numbers = (ET_CORE, machine, 1, 0, _HEADER, sections_at * extended, 0, _HEADER, _PROGRAM, min(count, PN_XNUM), _SECTION * extended)
    file.write(ident + struct.pack(order + "HHIQQQIHHHHHH", *numbers, int(extended), 0))
    file.write(struct.pack(order + "IIQQQQQQ", PT_NOTE, 0, notes_at, 0, 0, len(notes), 0, 4))
    aligned = _ALIGNED if all(part.start % _ALIGNED == 0 for part in parts) else 1
    position = first
    for part in parts:
        position += -position % aligned
        file.write(struct.pack(order + "IIQQQQQQ", PT_LOAD, part.flags, position, part.start, 0, len(part.data), part.size, aligned))
        position += len(part.data)
    if extended:
        file.write(struct.pack(order + "IIQQQQIIQQ", 0, 0, 0, 0, 0, 1, 0, count, 0, 0))
    file.write(notes)
    file.write(bytes(first - notes_at - len(notes)))
    written = 0
    for part in parts:
        file.write(bytes(-written % aligned))
        written += -written % aligned + len(part.data)
        file.write(part.data)


def note(order: str, name: str, kind: int, payload: bytes) -> bytes:
    """One note as it stands in a file, padded."""
    text = name.encode() + b"\0"
    return struct.pack(order + "III", len(text), len(payload), kind) + _padded(text) + _padded(payload)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
