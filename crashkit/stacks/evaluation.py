"""Which function of a stripped interpreter evaluates Python frames, found by counting. Pure.

Its name can be missing with the symbol table. (Where only a part of it lacks the name, elf/function_parts.py finds it for certain.)
But it occurs on every thread's native stack exactly as often as that thread has runs of Python frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Optional

import msgspec

_FEWEST_RUNS = 3
"""Below this many runs in all, too many functions occur as often by chance."""
_MOST_CANDIDATES = 60


class Walk(msgspec.Struct, frozen=True):
    """A whole native stack: where each frame's function starts (None: not in the interpreter's module), innermost first."""

    starts: tuple[Optional[int], ...]
    runs: int
    """Runs of Python frames of that thread."""


def evaluation_starts(walks: Sequence[Walk]) -> frozenset[int]:
    """Where the evaluating function starts: one place, or two if it has a cold part. Empty where counting is not conclusive."""
    walks = [walk for walk in walks if walk.runs]
    if sum(walk.runs for walk in walks) < _FEWEST_RUNS:
        return frozenset()
    counts = [Counter(start for start in walk.starts if start is not None) for walk in walks]
    total: Counter[int] = sum(counts, Counter())
    candidates = [start for start, _count in total.most_common(_MOST_CANDIDATES)]
    for size in (1, 2):
        fitting: list[tuple[int, ...]] = [
            group
            for group in combinations(candidates, size)
            if all(sum(count[start] for start in group) == walk.runs for count, walk in zip(counts, walks, strict=True))
        ]
        if fitting:
            # What calls the evaluating function each time occurs as often, farther out.
            return frozenset(min(fitting, key=lambda starts: _depth(starts, walks)))
    return frozenset()


def _depth(group: Iterable[int], walks: Sequence[Walk]) -> int:
    wanted = set(group)
    return sum(next(index for index, start in enumerate(walk.starts) if start in wanted) for walk in walks)
