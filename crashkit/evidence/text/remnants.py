"""What is left of a text whose decisive lines were cut off: lines that nothing but such a text has.

People pass on the end of a report, its middle, or its frames. Which lines can only come from it is data (remnants.toml). They tell of
what kind the report was, seldom what it found, so no finding on them is above `possible`; and they count only where a text is all there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Optional

import msgspec

from crashkit.evidence.text import hearsay
from crashkit.evidence.text.wrapping import bare, unfold
from crashkit.own_tables import own_table
from crashkit.prepared import prepared
from crashkit.regex import regex

KIND = "cut-report"
"""Of a line that does not tell what the report was about."""
LOOSELY = "a part of its report"
_INTRODUCED = re.compile(
    r"\b(?:[Ff]or example|e\.g\.|[Ss]uch as|[Ll]ooks? like|[Mm]eans?|[Pp]rints|[Ll]egend|[Ff]ormat"
    r"|(?:will|would|may|might|can|could|should) (?:\w{1,20} )?(?:print|show|see|get|look|be|find))\b"
)
"""Of a sentence before them, which explains what a report looks like."""
_ABOVE = 3
"""Lines above the first one in which that sentence is looked for."""


class Remnant(NamedTuple):
    """A line that is left."""

    line: int
    kind: str
    fields: dict[str, str]
    lines: frozenset[int]
    """The numbers of all such lines of its rule."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    of: str
    """Who prints these lines."""
    lines: tuple[str, ...]
    """Patterns of which a line matches one from its beginning; their named groups become fields."""
    signal: Optional[str] = None
    least: int = 1
    """How many such lines there must be: each of them alone may stand elsewhere."""
    unless: Optional[str] = None
    """What another line must not match: then the report has its head, and is another one."""
    message: Optional[str] = None
    """What is said in the place of the message that is missing."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    remnant: tuple[Rule, ...]


@cache
def rules() -> tuple[tuple[Rule, tuple[re.Pattern[str], ...], Optional[re.Pattern[str]]], ...]:
    """Each rule with its compiled patterns: those of its lines, and what no line may match."""
    table = msgspec.convert(own_table(Path(__file__).with_name("remnants.toml")), prepared(_Table))
    return tuple((rule, tuple(map(regex, rule.lines)), regex(rule.unless) if rule.unless else None) for rule in table.remnant)


def kinds() -> frozenset[str]:
    """All kinds that such a line can have."""
    return frozenset(rule.kind for rule, *_ in rules())


def remnants(rows: Sequence[str]) -> Iterator[Remnant]:
    """The first line of each rule that holds, numbered from 1."""
    texts = [(at, bare(piece).strip()) for at, row in enumerate(rows) for piece in (unfold(row) or (row,))]
    for rule, patterns, unless in rules():
        found = [(at, match) for at, text in texts if (match := _first(patterns, text)) is not None]
        if len(found) < rule.least or (unless is not None and any(unless.search(text) for _, text in texts)):
            continue
        if not _explained(rows, found[0][0]):
            told = {"of": rule.of, "signal": rule.signal, "message": rule.message}
            named = {name: value for _, match in reversed(found) for name, value in match.groupdict().items()}
            fields = {name: value for name, value in {**told, **named}.items() if value}
            yield Remnant(found[0][0] + 1, rule.kind, fields, frozenset(at + 1 for at, _ in found))


def _first(patterns: Sequence[re.Pattern[str]], text: str) -> Optional[re.Match[str]]:
    return next((match for pattern in patterns if (match := pattern.match(text)) is not None), None)


def _explained(rows: Sequence[str], at: int) -> bool:
    """Whether somebody explains there what such lines look like."""
    above = [row for row in rows[:at] if row.strip(" `~")][-_ABOVE:]
    return any(_INTRODUCED.search(row) or hearsay.supposes(row) for row in above if _is_prose(row))


def _is_prose(row: str) -> bool:
    return re.match(r"^\W{0,4}[A-Z][a-z']* [a-z]", row) is not None
