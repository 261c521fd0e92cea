"""What somebody says of the cause of a crash, in sentences that no program prints: `hid_open returns a pointer, ctypes assumed an int`.

Which words is data (causes.toml). A text that somebody posted is searched for them once something in it tells of a crash; a finding on them
is never above `possible`: the person may be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from crashkit.evidence.text.letters import Letters
from crashkit.prepared import prepared

PREFIX = "tells-"
"""Of the kinds of lines."""
_GAP = r" (?:(?!(?:not|no|never|isn|wasn)\b)[^ ]{1,40} ){0,8}?"
"""Up to eight words, none of which denies the next."""
_REST = re.compile(r"\*(?=[ )|]|$)")
_LETTERS = r"\\w{0,12}"
_NOT = r"(?<!no )(?<!not )(?<!not a )(?<!not an )(?<!never )(?<!isn t )(?<!without )"


class Told(NamedTuple):
    """A cause that a line tells."""

    line: int
    kind: str


class _Cause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    said: tuple[str, ...]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cause: tuple[_Cause, ...]


@cache
def _table() -> _Table:
    return msgspec.toml.decode(Path(__file__).with_name("causes.toml").read_bytes(), type=prepared(_Table))


def cause_patterns() -> tuple[tuple[str, str], ...]:
    """The kind and the regular expression of each, for the reduced words with one space between them."""
    return tuple((cause.kind, _expression(said)) for cause in _table().cause for said in cause.said)


def kinds() -> frozenset[str]:
    """The kinds of the lines."""
    return frozenset(cause.kind for cause in _table().cause)


def _expression(said: str) -> str:
    return rf"\b{_NOT}(?:{_REST.sub(_LETTERS, said.replace(' ... ', _GAP))})\b"


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((kind, re.compile(pattern)) for kind, pattern in cause_patterns())


def told(rows: Sequence[str]) -> tuple[Told, ...]:
    """The causes that these lines tell, each once, by the numbers of their lines from 1."""
    letters = Letters(rows)
    found: dict[str, int] = {}
    for kind, pattern in _patterns():
        match = pattern.search(letters.spaced)
        if match is not None:
            line = letters.line_of_spaced(match.start())
            found[kind] = min(line, found.get(kind, line))
    return tuple(Told(line, kind) for kind, line in found.items())
