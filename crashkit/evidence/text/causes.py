"""What somebody says of the cause of a crash, in sentences that no program prints: `hid_open returns a pointer, ctypes assumed an int`.

Which words is data (causes.toml). A text that somebody posted is searched for them once something in it tells of a crash; a finding on them
is never above `possible`: the person may be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from crashkit.evidence.text import required
from crashkit.evidence.text.letters import Letters
from crashkit.own_tables import own_derived, own_table
from crashkit.prepared import prepared
from crashkit.regex import regex

PREFIX = "tells-"
"""Of the kinds of lines."""
_GAP = r" (?:(?!(?:not|no|never|isn|wasn)\b)[^ ]{1,40} ){0,8}?"
"""Up to eight words, none of which denies the next."""
_UNTIL = r" (?:[^ ]{1,40} ){0,60}?"
"""Between the first and the last words of a guess."""
_REST = re.compile(r"\*(?=[ )|]|$)")
_LETTERS = r"\\w{0,12}"
_NOT = r"(?<!no )(?<!not )(?<!not a )(?<!not an )(?<!never )(?<!isn t )(?<!without )"


_SENTENCE, _PARAGRAPH = 140, 500
"""Letters before and behind a word in which those near it stand. Where nobody quotes what a program printed, what happened and why may
stand further apart."""
_MOST_PLACES = 50
"""Of the first of words near each other that are tried."""


class Told(msgspec.Struct, frozen=True):
    """A cause that a line tells."""

    line: int
    kind: str


class _Cause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    said: tuple[str, ...] = ()
    near: tuple[tuple[str, ...], ...] = ()
    """Each: words that stand near each other, in any order."""
    sentence: tuple[tuple[str, ...], ...] = ()
    """As `near`, in one sentence: for words that are too common to be near each other by chance."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: dict[str, str]
    """What several patterns have in common: `<crash>`."""
    guesses: tuple[str, ...]
    """What programs print of every such failure, whatever its cause is."""
    cause: tuple[_Cause, ...]


class _Pattern(NamedTuple):
    regex: re.Pattern[str]
    required: tuple[str, ...]
    """Texts of which a match contains at least one; empty if there are none."""


class _Near(NamedTuple):
    kind: str
    in_sentence: bool
    words: tuple[_Pattern, ...]


@cache
def _table() -> _Table:
    return msgspec.convert(own_table(Path(__file__).with_name("causes.toml")), prepared(_Table))


def cause_patterns() -> tuple[tuple[str, str], ...]:
    """The kind and the regular expression of each, for the reduced words with one space between them."""
    said = [(cause.kind, _expression(said)) for cause in _table().cause for said in cause.said]
    near = [(cause.kind, _words(words)) for cause in _table().cause for several in (*cause.near, *cause.sentence) for words in several]
    return (*said, *near)


def kinds() -> frozenset[str]:
    """The kinds of the lines."""
    return frozenset(cause.kind for cause in _table().cause)


def _expression(said: str) -> str:
    return _words(said.replace(" ... ", _GAP))


def _words(words: str) -> str:
    for name, part in _table().parts.items():
        words = words.replace(f"<{name}>", part)
    return rf"\b{_NOT}(?:{_REST.sub(_LETTERS, words)})\b"


@cache
def _guesses() -> re.Pattern[str]:
    return re.compile("|".join(rf"\b{guess.replace(' ... ', _UNTIL)}\b" for guess in _table().guesses))


@cache
def _patterns() -> tuple[tuple[tuple[str, _Pattern], ...], tuple[_Near, ...]]:
    """Those of `said`, and those of `near` and `sentence`."""
    every = iter(_with_required(tuple(expression for _, expression in cause_patterns())))
    said = tuple((cause.kind, next(every)) for cause in _table().cause for _ in cause.said)
    near = tuple(
        _Near(cause.kind, in_sentence, tuple(next(every) for _ in words))
        for cause in _table().cause
        for in_sentence, several in ((False, cause.near), (True, cause.sentence))
        for words in several
    )
    return said, near


def _with_required(expressions: Sequence[str]) -> list[_Pattern]:
    found: list[list[str]] = own_derived(
        Path(__file__).with_name("causes.required"),
        expressions,
        Path(required.__file__),
        lambda: [required.literals(expression, shortest=1) for expression in expressions],
    )
    return [_Pattern(regex(expression), tuple(texts)) for expression, texts in zip(expressions, found, strict=True)]


def _may_match(pattern: _Pattern, text: str) -> bool:
    return not pattern.required or any(one in text for one in pattern.required)


def told(rows: Sequence[str], only_words: bool) -> tuple[Told, ...]:
    """The causes that these lines tell, each once, by the numbers of their lines from 1. `only_words`: no program printed any of them."""
    letters = Letters(rows)
    text = _guesses().sub(lambda guess: "-" * len(guess[0]), letters.spaced)
    found: dict[str, int] = {}
    for kind, at in (*_in_order(text), *_in_any_order(text, letters, _PARAGRAPH if only_words else _SENTENCE)):
        line = letters.line_of_spaced(at)
        found[kind] = min(line, found.get(kind, line))
    return tuple(Told(line, kind) for kind, line in found.items())


def _in_order(text: str) -> Iterator[tuple[str, int]]:
    for kind, pattern in _patterns()[0]:
        match = pattern.regex.search(text) if _may_match(pattern, text) else None
        if match is not None:
            yield kind, match.start()


def _in_any_order(text: str, letters: Letters, near: int) -> Iterator[tuple[str, int]]:
    for kind, in_sentence, words in _patterns()[1]:
        if not all(_may_match(one, text) for one in words):
            continue
        first, *others = (one.regex for one in words)
        for match in islice(first.finditer(text), _MOST_PLACES):
            begin, end = letters.sentence_of_spaced(match.start()) if in_sentence else (0, len(text))
            around = text[max(begin, match.start() - near) : min(end, match.end() + near)]
            if all(other.search(around) for other in others):
                yield kind, match.start()
                break
