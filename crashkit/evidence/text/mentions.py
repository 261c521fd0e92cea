"""The low bar behind all recognisers: a text with the words of a crash in it is a report of one, though nothing else is known of it.

Which words is data (mentions.toml). Nothing is concluded from them: a healthy log may speak of crashes, too. So only a text that somebody
picked is searched for them, and only if nothing else was found in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from crashkit.evidence.text.letters import Dictionary, Letters, Spelling, words_of
from crashkit.evidence.text.prefixes import clean
from crashkit.limits import LONGEST_LINE
from crashkit.model import SoftError
from crashkit.own_tables import own_table
from crashkit.prepared import prepared

KIND = "mentioned"
FAILURE = "failure"
"""Field of a line that tells of a failure, in words that are not those of a crash."""
_OURS = "crashkit"
"""Our own name mentions no crash."""
MOST = 5
"""Lines that are quoted."""
_MOST_HITS = 40
HEAD, TAIL = 512 << 10, 2 << 20
"""Bytes that are searched at the beginning and the end of a text."""
MOST_POSTED = 8 << 10
"""Bytes of a text that somebody may have typed or picked by hand: one that tells of any failure is not refused."""


class _Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    beginnings: tuple[str, ...]
    whole: tuple[str, ...]
    others: tuple[str, ...]
    patterns: tuple[str, ...]
    failures: tuple[str, ...]
    languages: dict[str, tuple[str, ...]]


@cache
def words() -> _Words:
    """The words of a crash."""
    return msgspec.convert(own_table(Path(__file__).with_name("mentions.toml")), prepared(_Words))


@cache
def _dictionary() -> Dictionary:
    known = words()
    return Dictionary((*known.beginnings, *(word for several in known.languages.values() for word in several)), known.whole)


@cache
def _spelling() -> Spelling:
    known = words()
    return Spelling(
        (*known.beginnings, "terminated"),
        (*known.others, *known.whole, *(word for several in known.languages.values() for word in several)),
    )


def mention_patterns() -> tuple[str, ...]:
    """Regular expressions for the reduced words, with one space between them."""
    return (*words().patterns, *words().failures)


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, words().patterns))


@cache
def _failures() -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, words().failures))


def righted(text: str) -> str:
    """The words of a sentence, without punctuation and with their typos righted."""
    return " ".join(map(_spelling().righted, words_of([text])))


def mentioned(file: BinaryIO) -> dict[int, str]:
    """The first lines with the words of a crash, by their numbers."""
    found: dict[int, str] = {}
    for first, rows in _pieces(file):
        for number in sorted(_lines_in(Letters([row.replace(_OURS, "") for row in rows], first, _spelling())))[: MOST - len(found)]:
            found.setdefault(number, rows[number - first].strip())
    return found


def failures(file: BinaryIO) -> dict[int, str]:
    """The first lines of a short text that tell of any failure, by their numbers; none of a longer one."""
    if file.seek(0, 2) > MOST_POSTED:
        return {}
    file.seek(0)
    rows = _rows(file.read())
    letters = Letters(rows)
    found = sorted({letters.line_of_spaced(match.start()) for pattern in _failures() for match in pattern.finditer(letters.spaced)})
    return {number: rows[number - 1].strip() for number in found[:MOST]}


def _lines_in(letters: Letters) -> set[int]:
    found = set()
    for hit in islice(_dictionary().find(letters), _MOST_HITS):
        found.add(letters.line_of_joined(hit.start))
        if len(found) >= MOST:
            break
    for pattern in _patterns():
        match = pattern.search(letters.spaced)
        if match is not None:
            found.add(letters.line_of_spaced(match.start()))
    return found


def _pieces(file: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    """The lines at the beginning and at the end of a text, with the number of the first."""
    size = file.seek(0, 2)
    file.seek(0)
    if size <= HEAD + TAIL:
        yield 1, _rows(file.read())
        return
    head = file.read(HEAD)
    yield 1, _rows(head)
    first, left = 1 + head.count(b"\n"), size - HEAD - TAIL
    while left > 0 and (skipped := file.read(min(left, HEAD))):
        first += skipped.count(b"\n")
        left -= len(skipped)
    yield first, _rows(file.read())


def _rows(data: bytes) -> list[str]:
    return [_row(raw) for raw in data.split(b"\n")]


def _row(raw: bytes) -> str:
    """A line, of an endless one what stands at its ends; line ends that were written as letters are spaces."""
    if len(raw) > 2 * LONGEST_LINE:
        raw = raw[:LONGEST_LINE] + b" " + raw[-LONGEST_LINE:]
    text = clean(raw).replace("\n", " ")
    return text.replace("\\n", " ").replace("\\r", " ").replace("\\t", " ") if "\\" in text else text


def only_failed(number: int) -> SoftError:
    """What a report of nothing but a failure has to say; `number`: the first line that tells of it."""
    return SoftError(
        stage="log",
        message=f"the text reports a failure (line {number}), but no crash",
        hint="If the process died, pass what it printed last, with the lines around it, or its core.",
    )


def only_cause(number: int) -> SoftError:
    """What a report of nothing but somebody's word of a cause has to say; `number`: the first line that tells it."""
    return SoftError(
        stage="log",
        message=f"the text tells what may make a process crash (line {number}), but of no crash",
        hint="If a process died of it, pass what it printed last, with the lines around it, or its core.",
    )


def only_mentioned(number: int, size: int) -> tuple[SoftError, ...]:
    """What a report of nothing but such words has to say of a text of `size` bytes; `number`: the first line with one."""
    nothing = SoftError(
        stage="log",
        message=f"the text mentions a crash (line {number}), but contains nothing that a crash leaves behind",
        hint="Pass what the process printed last, with the lines around it, or its core.",
    )
    if size <= HEAD + TAIL:
        return (nothing,)
    ends = f"its first {HEAD >> 10} KiB and its last {TAIL >> 20} MiB"
    return nothing, SoftError(stage="log", message=f"words of a crash were not looked for between {ends}")
