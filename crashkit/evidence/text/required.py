"""Texts that a match of a regular expression cannot do without: a text that has none of them need not be searched for it. Pure."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Collection, Iterable
from typing import Any

SHORTEST_LITERAL = 4
SHORTEST_NEEDED = 3
"""Of the texts that a line must have besides, before its pattern is tried."""

parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


def literals(pattern: str, shared: Collection[str] = (), shortest: int = SHORTEST_LITERAL) -> tuple[str, ...]:
    """Texts of which every match of `pattern` contains at least one; empty if there are none of that many bytes.

    `shared`: texts that other patterns need, too. Raises re.error for an invalid pattern.
    """
    parsed = parser.parse(pattern)
    if parsed.state.flags & re.IGNORECASE:
        return ()
    found = _required(parsed, shared)
    return found if found and min(len(text.encode()) for text in found) >= shortest else ()


def needs(pattern: str) -> tuple[tuple[str, ...], ...]:
    """Every set of texts of which a match of the pattern contains one, but for short ones."""
    parsed = parser.parse(pattern)
    if parsed.state.flags & re.IGNORECASE:
        return ()
    return tuple(texts for texts in _candidates(parsed, ()) if texts and min(map(len, texts)) >= SHORTEST_NEEDED)


def shorten(text: str, shared: Collection[str]) -> str:
    """The shared text that it contains, if there is one."""
    return next((one for one in shared if one in text), text)


def _required(sequence: Iterable[tuple[Any, Any]], shared: Collection[str]) -> tuple[str, ...]:
    """The best set of texts that a sequence of parsed items cannot do without: of those that are shared, else the longest."""

    def worth(texts: tuple[str, ...]) -> tuple[bool, int]:
        if not texts:
            return False, 0
        return all(shorten(text, shared) != text or text in shared for text in texts), min(map(len, texts))

    return max(_candidates(sequence, shared), key=worth)


def _candidates(sequence: Iterable[tuple[Any, Any]], shared: Collection[str]) -> list[tuple[str, ...]]:
    """The sets of texts that a sequence of parsed items cannot do without."""
    candidates: list[tuple[str, ...]] = []
    run = ""
    for operation, argument in sequence:
        name = str(operation)
        if name == "LITERAL":
            run += chr(argument)
            continue
        if name == "AT":
            continue
        candidates.append((run,))
        run = ""
        candidates.append(_required_of(name, argument, shared))
    candidates.append((run,))
    return candidates


def _required_of(name: str, argument: Any, shared: Collection[str]) -> tuple[str, ...]:
    if name == "SUBPATTERN":
        return _required(argument[-1], shared)
    if name == "BRANCH":
        branches = [_required(branch, shared) for branch in argument[1]]
        return tuple(text for branch in branches for text in branch) if all(branches) else ()
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and argument[0] >= 1:
        return _required(argument[2], shared)
    if name == "ASSERT":
        return _required(argument[1], shared)
    return ()
