"""Comparing version numbers as far as signatures need it: by their release numbers (PEP 440)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.version import Version

_COMPARISONS: dict[str, Callable[[Version, Version], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_LONGEST = 200
"""Characters that are looked at: evidence may hold anything, and Python refuses to convert thousands of digits."""
_NUMBERS = r"\d+(?:\.\d+)*"
_TERM = re.compile(rf"(<=|>=|==|<|>)({_NUMBERS})")


def parse_requirement(text: str) -> list[tuple[Callable[[Version, Version], bool], Version]]:
    """Comparisons of `>=3.12,<3.14`. Raises ValueError."""
    from packaging.version import Version  # few signatures are about versions

    terms = []
    for part in text.split(","):
        match = _TERM.fullmatch(part.strip())
        if match is None:
            raise ValueError("not of the form >=3.12 or >=3.8,<3.10")
        terms.append((_COMPARISONS[match[1]], Version(match[2])))
    return terms


def satisfies(version: str, requirement: str) -> bool:
    """Whether a version such as `3.12.1` or `2.11.0+cu130` satisfies; compared as far as the requirement's numbers go.

    So 3.12.1 is not newer than 3.12, and a pre-release counts as its release.
    """
    have = _release(version)
    return bool(have) and all(compare(_cut(have, len(wanted.release)), wanted) for compare, wanted in parse_requirement(requirement))


def _release(text: str) -> tuple[int, ...]:
    """The numbers that lead where PEP 440 does not know the version (`3.15.0a1+`, `12.4-1~exp2`); none where there are none."""
    from packaging.version import InvalidVersion, Version

    text = text[:_LONGEST]
    try:
        return Version(text).release
    except InvalidVersion:
        match = re.match(_NUMBERS, text)
        return Version(match[0]).release if match else ()


def _cut(numbers: tuple[int, ...], length: int) -> Version:
    from packaging.version import Version

    return Version(".".join(map(str, numbers[:length])))
