"""What a search goes through: a module's variables, the heap, and which addresses are mapped."""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Optional

from crashkit.evidence.core.modules import LoadedModule
from crashkit.interpreter.view import View
from crashkit.memory import SCANNED, Memory
from crashkit.model import Mapping

_MOST_VARIABLES = 64 << 20
"""Bytes of a module's variables."""
MOST_FOR_STACKS = 1 << 30
"""Bytes of the heap that are searched for Python stacks to which nothing leads: half a second. They lie behind what malloc() has."""
_MOST_HEAP = 128 << 20
_ZEROS = bytes(SCANNED)
"""What a piece is where the process has memory that it never touched: a free-threaded build has a gigabyte of it."""
_ZEROS_COST = 8
"""How many times faster such a piece is searched."""


class Ranges:
    """Address ranges of a process: all, or the writable ones."""

    def __init__(self, memory: Memory, writable: bool = False) -> None:
        self._mappings = [one for one in memory.mappings() if not writable or "w" in (one.permissions or "")]
        self._starts = [int(one.start) for one in self._mappings]
        self._ends = [int(one.end) for one in self._mappings]

    def holds(self, address: int) -> bool:
        """Whether the process had memory at the address."""
        return self.at(address) is not None

    def at(self, address: int) -> Optional[Mapping]:
        """The memory that the process had at the address; None if it had none."""
        index = bisect_right(self._starts, address) - 1
        return self._mappings[index] if index >= 0 and address < self._ends[index] else None


def variables(memory: Memory, module: LoadedModule) -> Iterator[tuple[int, bytes]]:
    """The module's writable memory; variables without an initial value lie behind what was mapped of the file."""
    end, room = module.end, _MOST_VARIABLES
    for mapping in memory.mappings():
        if not module.base <= mapping.start <= end or room <= 0:
            continue
        if mapping.start >= module.end and _is_of_file(mapping):
            continue
        end = max(end, mapping.end)
        if "w" in (mapping.permissions or ""):
            for start, data in memory.scan(mapping.start, min(mapping.end, mapping.start + room)):
                room -= len(data)
                yield start, data


def heap(view: View, most: int = _MOST_HEAP) -> Iterator[tuple[int, array[int]]]:
    """Writable memory of no file, by address, as words: the first `most` bytes of it. Raises TimeUp."""
    for start, data in _pieces(view, most):
        yield start, words(view.memory, data)


def places_of(view: View, wanted: Sequence[int], most: int) -> Iterator[int]:
    """Where words that equal one of `wanted` lie in writable memory of no file, in the first `most` bytes of it. Raises TimeUp."""
    # Without the zeros that most pointers end in, which are everywhere.
    needles = [struct.pack(view.memory.word.code, word).rstrip(b"\0") for word in wanted]
    known = frozenset(wanted)
    for start, data in _pieces(view, most):
        for needle in needles:
            at = data.find(needle)
            while at >= 0:
                if at % 8 == 0 and at + 8 <= len(data) and struct.unpack_from(view.memory.word.code, data, at)[0] in known:
                    yield start + at
                at = data.find(needle, at + 1)


def _pieces(view: View, most: int) -> Iterator[tuple[int, bytes]]:
    """The first `most` bytes of writable memory of no file, piece by piece, but for what was never touched. Raises TimeUp."""
    for mapping in view.memory.mappings():
        if most <= 0:
            return
        if _is_of_file(mapping) or "w" not in (mapping.permissions or ""):
            continue
        for start, data in view.memory.scan(mapping.start, mapping.end):
            view.check_time()
            if most <= 0:
                return
            if _ZEROS.startswith(data):
                most -= len(data) // _ZEROS_COST
                continue
            most -= len(data)
            yield start, data


def words(memory: Memory, data: bytes) -> array[int]:
    """The data as words of 8 bytes."""
    found = array("Q", data[: len(data) // 8 * 8])
    if memory.word.order != ("<" if sys.byteorder == "little" else ">"):
        found.byteswap()
    return found


def _is_of_file(mapping: Mapping) -> bool:
    """A live process has names such as [heap], too."""
    return mapping.path is not None and mapping.path.startswith("/")
