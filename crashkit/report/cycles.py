"""Finds what a stack repeats, so that a recursion is shown once with its count. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType

import msgspec

_FEWEST_ROUNDS = 3
_FEWEST_FRAMES = 8
"""Fewer frames are shown as they are: folding them would hide more than it saves."""
_LONGEST = 60
_NONE: Mapping[int, tuple[int, int]] = MappingProxyType({})


class Part(msgspec.Struct, frozen=True):
    """A stretch of a stack: `length` frames from `start` on, which occur `rounds` times in a row."""

    start: int
    length: int
    rounds: int = 1
    end: int | None = None
    """The index behind its last row, where a row stands for frames of it that were omitted; `rounds` counts those, too."""

    @property
    def repeated(self) -> range:
        """The frames after the first round."""
        return range(self.start + self.length, self.start + self.length * self.rounds if self.end is None else self.end)


def parts(keys: Sequence[Hashable], omitted: Mapping[int, tuple[int, int]] = _NONE) -> list[Part]:
    """The stack as stretches that occur once and cycles that occur several times, in order. Equal keys are equal frames.

    `omitted` has the rows that stand for frames that were omitted, because they repeat: how many, and the length of their cycle.
    """
    found: list[Part] = []
    plain = at = 0
    while at < len(keys):
        cycle = _cycle(keys, at)
        if cycle is None:
            at += 1
            continue
        cycle = _with_omitted(keys, cycle, omitted)
        if at > plain:
            found.append(Part(plain, at - plain))
        found.append(cycle)
        plain = at = cycle.repeated.stop
    if plain < len(keys):
        found.append(Part(plain, len(keys) - plain))
    return found


def _with_omitted(keys: Sequence[Hashable], part: Part, omitted: Mapping[int, tuple[int, int]]) -> Part:
    """The cycle with the frames of it that were omitted behind its last whole round, and those that follow them."""
    frames = part.length * part.rounds
    at = _follow(keys, part, part.repeated.stop, frames)
    count, length = omitted.get(at, (0, 0))
    if length != part.length:
        return part
    frames += at - part.repeated.stop + count
    end = _follow(keys, part, at + 1, frames)
    return msgspec.structs.replace(part, rounds=(frames + end - at - 1) // part.length, end=end)


def _follow(keys: Sequence[Hashable], part: Part, at: int, frames: int) -> int:
    """The index of the first frame from `at` on that does not go on with the cycle, of which there were so many frames before."""
    start = at
    while at < len(keys) and keys[at] == keys[part.start + (frames + at - start) % part.length]:
        at += 1
    return at


def _cycle(keys: Sequence[Hashable], start: int) -> Part | None:
    """The shortest cycle that begins here and is worth folding."""
    for period in range(1, min(_LONGEST, (len(keys) - start) // _FEWEST_ROUNDS) + 1):
        if keys[start] != keys[start + period]:
            continue
        at = start
        while at + period < len(keys) and keys[at] == keys[at + period]:
            at += 1
        rounds = (at - start) // period + 1
        if rounds >= _FEWEST_ROUNDS and rounds * period >= _FEWEST_FRAMES:
            return Part(start, period, rounds)
    return None
