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


class Laid(NamedTuple):
    """A segment of which the file has the first `stored` bytes."""

    start: int
    size: int
    flags: int
    stored: int


def write_core(file: BinaryIO, machine: int, word: Word, notes: bytes, parts: Sequence[Part]) -> None:
    """Write a core to the beginning of an empty file. Raises OSError."""
    head, positions = core_head(machine, word, notes, [Laid(part.start, part.size, part.flags, len(part.data)) for part in parts])
    file.write(head)
    written = len(head)
    for part, position in zip(parts, positions, strict=True):
        file.write(bytes(position - written))
        file.write(part.data)
        written = position + len(part.data)


def core_head(machine: int, word: Word, notes: bytes, segments: Sequence[Laid]) -> tuple[bytes, list[int]]:
    """How a core with these segments begins, up to the first one's memory; where in the file the memory of each one is."""
    order = word.order
    count = 1 + len(segments)
    # As many segments as the header cannot count stand in section header 0 (elf(5), PN_XNUM).
    extended = count >= PN_XNUM
    sections_at = _HEADER + _PROGRAM * count
    notes_at = sections_at + _SECTION * extended
    first = -(-(notes_at + len(notes)) // _ALIGNED) * _ALIGNED
    ident = b"\x7fELF" + bytes([2, 1 if order == "<" else 2, 1]) + bytes(9)
    numbers = (ET_CORE, machine, 1, 0, _HEADER, sections_at * extended, 0, _HEADER, _PROGRAM, min(count, PN_XNUM), _SECTION * extended)
    head = [ident + struct.pack(order + "HHIQQQIHHHHHH", *numbers, int(extended), 0)]
    head.append(struct.pack(order + "IIQQQQQQ", PT_NOTE, 0, notes_at, 0, 0, len(notes), 0, 4))
    aligned = _ALIGNED if all(one.start % _ALIGNED == 0 for one in segments) else 1
    position = first
    positions = []
    for one in segments:
        position += -position % aligned
        positions.append(position)
        head.append(struct.pack(order + "IIQQQQQQ", PT_LOAD, one.flags, position, one.start, 0, one.stored, one.size, aligned))
        position += one.stored
    if extended:
        head.append(struct.pack(order + "IIQQQQIIQQ", 0, 0, 0, 0, 0, 1, 0, count, 0, 0))
    return b"".join((*head, notes, bytes(first - notes_at - len(notes)))), positions


def note(order: str, name: str, kind: int, payload: bytes) -> bytes:
    """One note as it stands in a file, padded."""
    text = name.encode() + b"\0"
    return struct.pack(order + "III", len(text), len(payload), kind) + _padded(text) + _padded(payload)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
