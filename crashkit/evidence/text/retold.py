"""Messages that somebody retold: the fixed words of the patterns of log lines, whatever stands between them and however they are written.

The words come from the patterns themselves, and from retold.toml, which has other wordings of the same messages. Endings of words, small
words, case, punctuation, line breaks and a typo do not count. What is found so is somebody's word, so no finding on it is above `possible`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Optional

import msgspec

from crashkit.evidence.text import hearsay
from crashkit.evidence.text.letters import Dictionary, Letters, Spelling, words_of
from crashkit.evidence.text.log_patterns import line_patterns
from crashkit.evidence.text.required import parser
from crashkit.own_tables import own_table
from crashkit.prepared import prepared

LEAST = 16
"""Letters of the words of a message by which it can be known."""
LEAST_CUT = 26
"""The same, of one whose first or last word was cut off."""
_LONGEST_GAP = 80
"""Letters between two of its pieces."""
_MOST_WORDINGS = 24
"""Of one pattern."""
_MOST_HITS = 4000
_GAP = "\0"
_ENDING = re.compile(r"(?<=[a-z]{4})(?:ingly|edly|ings|ing|ions|ion|ed|es|ly|e|s)$")


class Message(NamedTuple):
    """The words of a message, in pieces between which anything may stand."""

    kind: str
    signal: Optional[str]
    pieces: tuple[str, ...]
    rank: int
    """Of several messages in one line the first counts."""
    negative: bool
    """Whether it says itself that something is missing: `without an active exception`."""


class Retold(NamedTuple):
    """A message that was found."""

    line: int
    kind: str
    signal: Optional[str]


class _Other(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    words: tuple[str, ...]
    """Each a message; `...` is a gap."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    small: tuple[str, ...]
    same: dict[str, str]
    left_out: tuple[str, ...]
    other: tuple[_Other, ...]


@cache
def _table() -> _Table:
    return msgspec.convert(own_table(Path(__file__).with_name("retold.toml")), prepared(_Table))


def plain(word: str) -> Optional[str]:
    """The word without its ending, or the one that means the same; None for a small one."""
    table = _table()
    word = table.same.get(word, word)
    return None if word in table.small else _ENDING.sub("", word)


@cache
def messages() -> tuple[Message, ...]:
    """Every message that can be known by its words."""
    table = _table()
    found: dict[tuple[str, tuple[str, ...]], Message] = {}
    for other in table.other:
        for words in other.words:
            pieces = _pieces(words.split("..."))
            found.setdefault((other.kind, pieces), Message(other.kind, None, pieces, len(found), _says_not(words)))
    for line in line_patterns():
        if line.kind in table.left_out:
            continue
        for wording in _wordings(parser.parse(line.pattern)):
            pieces = _pieces(wording.split(_GAP))
            if sum(map(len, pieces)) >= LEAST:
                found.setdefault((line.kind, pieces), Message(line.kind, line.signal, pieces, len(found), _says_not(wording)))
    # After all whole ones, which count more.
    for line in line_patterns():
        if line.kind not in table.left_out:
            for cut in (cut for wording in _wordings(parser.parse(line.pattern)) for cut in _cut(wording)):
                pieces = _pieces(cut.split(_GAP))
                if sum(map(len, pieces)) >= LEAST_CUT:
                    found.setdefault((line.kind, pieces), Message(line.kind, line.signal, pieces, len(found), _says_not(cut)))
    return tuple(found.values())


def _cut(wording: str) -> tuple[str, ...]:
    """The message without its first word, and without its last."""
    first, _, rest = wording.strip().partition(" ")
    before, _, last = wording.strip().rpartition(" ")
    return tuple(text for text, missing in ((rest, first), (before, last)) if text and _GAP not in missing)


def _says_not(wording: str) -> bool:
    return not {"no", "not", "without", "never"}.isdisjoint(words_of([wording]))


def _pieces(texts: Iterable[str]) -> tuple[str, ...]:
    pieces = ("".join(filter(None, map(plain, words_of([text])))) for text in texts)
    return tuple(piece for piece in pieces if len(piece) > 2)


@cache
def _dictionary() -> Dictionary:
    return Dictionary(piece for message in messages() for piece in message.pieces)


@cache
def _spelling() -> Spelling:
    wordings = (
        wording for line in line_patterns() if line.kind not in _table().left_out for wording in _wordings(parser.parse(line.pattern))
    )
    known = {word for wording in wordings for word in words_of([wording])}
    return Spelling((f"{word} x" for word in known), _table().small)


def retold(rows: Sequence[str]) -> tuple[Retold, ...]:
    """The messages in these lines, by their numbers from 1; one for each line."""
    letters = Letters(rows, spelling=_spelling(), plain=plain)
    hits: dict[str, list[tuple[int, int]]] = {}
    for hit in sorted(islice(_dictionary().find(letters), _MOST_HITS), key=lambda hit: hit.start):
        # An error's number is another error where a digit of it is wrong.
        if _digits(hit.key) == _digits(letters.joined[hit.start : hit.end]):
            hits.setdefault(hit.key, []).append((hit.start, hit.end))
    found: dict[int, Message] = {}
    for message in messages():
        if all(piece in hits for piece in message.pieces):
            place = _place(message, hits)
            if place is not None:
                line = letters.line_of_joined(place)
                found[line] = min(found.get(line, message), message, key=lambda one: one.rank)
    return tuple(Retold(line, found[line].kind, found[line].signal) for line in sorted(found) if not _denied(found[line], rows[line - 1]))


def _denied(message: Message, row: str) -> bool:
    text = " ".join(row.split())
    return hearsay.undoes(text) if message.negative else hearsay.denies(text)


def _digits(text: str) -> str:
    return "".join(letter for letter in text if letter.isdigit())


def _place(message: Message, hits: dict[str, list[tuple[int, int]]]) -> Optional[int]:
    """Where the pieces stand in their order, each near the one before."""
    for start, end in hits[message.pieces[0]]:
        for piece in message.pieces[1:]:
            following = bisect_left(hits[piece], (end, 0))
            if following == len(hits[piece]) or hits[piece][following][0] - end > _LONGEST_GAP:
                break
            end = hits[piece][following][1]
        else:
            return start
    return None


def _wordings(items: Iterable[tuple[Any, Any]]) -> list[str]:
    """The texts that a parsed pattern stands for, with gaps; one gap where there are too many."""
    found = [""]
    for operation, argument in items:
        further = _wordings_of(str(operation), argument)
        found = list(dict.fromkeys(text + one for text in found for one in further))
        if len(found) > _MOST_WORDINGS:
            return [_GAP]
    return found


def _wordings_of(name: str, argument: Any) -> list[str]:
    if name == "LITERAL":
        return [chr(argument)]
    if name == "IN":
        return [_of_class(argument)]
    if name == "SUBPATTERN":
        return _wordings(argument[-1])
    if name == "BRANCH":
        return [text for branch in argument[1] for text in _wordings(branch)]
    if name in ("AT", "ASSERT", "ASSERT_NOT", "GROUPREF"):
        return [""]
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, repeated = argument
        texts = _wordings(repeated)
        if least == 0:
            return ["", *texts] if most == 1 and not any(_GAP in text for text in texts) else [_GAP]
        return [text + _GAP if most > 1 else text for text in texts]
    return [_GAP]


def _of_class(members: Sequence[tuple[Any, Any]]) -> str:
    """One of some letters: `[Ss]` is s, `[-_ ]` is a space."""
    letters = {chr(value).lower() for name, value in members if str(name) == "LITERAL"}
    if len(letters) == 0 or any(str(name) != "LITERAL" for name, _ in members):
        return _GAP
    if not any(letter.isalnum() for letter in letters):
        return " "
    return min(letters) if len(letters) == 1 else _GAP
