"""Finds what a stack repeats, so that a recursion is shown once with its count. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

_FEWEST_ROUNDS = 3
_FEWEST_FRAMES = 8
"""Fewer frames are shown as they are: folding them would hide more than it saves."""
_LONGEST = 60


class Part(msgspec.Struct, frozen=True):
    """A stretch of a stack: `length` frames from `start` on, which occur `rounds` times in a row."""

    start: int
    length: int
    rounds: int = 1

    @property
    def repeated(self) -> range:
        """The frames after the first round."""
        return range(self.start + self.length, self.start + self.length * self.rounds)


def parts(keys: Sequence[Hashable]) -> list[Part]:
    """The stack as stretches that occur once and cycles that occur several times, in order. Equal keys are equal frames."""
    found: list[Part] = []
    plain = at = 0
    while at < len(keys):
        cycle = _cycle(keys, at)
        if cycle is None:
            at += 1
            continue
        if at > plain:
            found.append(Part(plain, at - plain))
        found.append(cycle)
        plain = at = cycle.repeated.stop
    if plain < len(keys):
        found.append(Part(plain, len(keys) - plain))
    return found


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
