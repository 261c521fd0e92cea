"""Comparing version numbers as far as signatures need it."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

_Compare = Callable[[tuple[int, ...], tuple[int, ...]], bool]

_COMPARISONS: dict[str, _Compare] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_TERM = re.compile(r"(<=|>=|==|<|>)(\d+(?:\.\d+)*)")


def parse_requirement(text: str) -> list[tuple[_Compare, tuple[int, ...]]]:
    """Comparisons of `>=3.12,<3.14`. Raises ValueError."""
    terms = []
    for part in text.split(","):
        match = _TERM.fullmatch(part.strip())
        if match is None:
            raise ValueError("not of the form >=3.12 or >=3.8,<3.10")
        terms.append((_COMPARISONS[match[1]], _numbers(match[2])))
    return terms


def satisfies(version: str, requirement: str) -> bool:
    """Whether a version such as `3.12.1` or `2.11.0+cu130` satisfies; compared as far as the requirement's numbers go."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    if match is None:
        return False
    have = _numbers(match[0])
    return all(compare(_cut(have, len(wanted)), wanted) for compare, wanted in parse_requirement(requirement))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split("."))


def _cut(numbers: tuple[int, ...], length: int) -> tuple[int, ...]:
    return (numbers + (0,) * length)[:length]
