"""A trend in one word. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def heights(numbers: Sequence[int], steps: int = len(_BARS)) -> list[int]:
    """How tall each number's bar is, in steps: the largest number's is the tallest, and only none has none."""
    top = max(numbers, default=0)
    return [-(-number * steps // top) if top else 0 for number in numbers]


def sparkline(numbers: Sequence[int]) -> str:
    """One bar per number; a space for none."""
    return "".join(_BARS[height - 1] if height else " " for height in heights(numbers)).rstrip()
