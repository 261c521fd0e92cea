"""What shells and the C library say of a signal in other languages (translations.toml), as patterns of log lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from crashkit.own_tables import own_table
from crashkit.prepared import prepared

_DUMPED = (
    r" {0,20}[(\uff08«][^)\uff09»]{0,60}(?:[Cc]ore|CORE|转储|傾印|吐核|轉儲|ダンプ|コア|덤프|[Дд]амп|памят|памет"
    r"|пам[\x27\u2019]ят|Speicheraus|Speicherab|geheugendump"
    r"|minnes|zrzut|n[úu]cleo|kjerne|kerne|muisti|bellek|çekirdek|mem[oò]r|obraz|výpis|izpis|избачај|đổ lõi)"
)
# Not without the head: `14 Abgebrochen` is a row of a table.
_AFTER_PID = r"^[^\d\s][^:\uff1a]{0,200} ?[:\uff1a] ?[^\s\d:\uff1a][^\d:\uff1a]{0,11}\d{1,7} ?[:\uff1a] {0,8}\d{1,10} {1,8}"
_JOB = r"^\[\d{1,4}\][-+]? {1,8}(?:\d{1,10} {1,8})?"
_MAKE = r"\*\*\* \[[^\]]{0,200}\] "
# bash's LONGEST_SIGNAL_DESC (siglist.h): the command follows such a text after one space, or none.
_PADDED_TO = 24
_NO_SENTENCE = r"(?![,;:.!?](?:\s|$))"
_ENDS = r"(?! ?\((?:Killed|Terminated)\))(?: {2,}| ?[(\uff08]|$)"


class _Signal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    anywhere: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    shell: tuple[str, ...] = ()


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    common: tuple[str, ...]
    signal: tuple[_Signal, ...]


class Translated(NamedTuple):
    """A pattern, and the signal that it tells of."""

    signal: str
    pattern: str


@cache
def _table() -> _Table:
    return msgspec.convert(own_table(Path(__file__).with_name("translations.toml")), prepared(_Table))


@cache
def common() -> tuple[Translated, ...]:
    """For logs of any size, where a line that is nothing but such a word may be the state of a task."""
    kept = set(_table().common)
    return tuple(one for signal in _table().signal for one in _translated(_as_shells_write(_only(signal, kept))))


@cache
def every() -> tuple[Translated, ...]:
    """For short texts."""
    return tuple(one for signal in _table().signal for one in _translated(signal))


def _only(signal: _Signal, kept: set[str]) -> _Signal:
    several = {name: tuple(text for text in getattr(signal, name) if text in kept) for name in ("anywhere", "alone", "whole", "shell")}
    return msgspec.structs.replace(signal, **several)


def _as_shells_write(signal: _Signal) -> _Signal:
    return msgspec.structs.replace(signal, whole=(), shell=signal.shell + signal.whole)


def _translated(signal: _Signal) -> Iterator[Translated]:
    return (Translated(signal.name, pattern) for pattern in _patterns(signal))


def _patterns(signal: _Signal) -> Iterator[str]:
    if signal.anywhere:
        yield _any(signal.anywhere)
    words = (*signal.anywhere, *signal.alone, *signal.whole, *signal.shell)
    if not words:
        return
    for before in (_AFTER_PID, _JOB, _MAKE):
        yield before + _any(words) + _ENDS
    if long := tuple(word for word in words if len(word) >= _PADDED_TO - 1):
        yield _AFTER_PID + _any(long) + _NO_SENTENCE
    yield r"(?<!\w)" + _any(words) + _DUMPED
    if signal.alone:
        yield r"^(?:.*[:\uff1a] ?)?" + _any(signal.alone) + r"\.?$"
    if signal.whole:
        yield "^" + _any(signal.whole) + r"\.?$"


def _any(texts: tuple[str, ...]) -> str:
    """Longer ones first: one may begin with another."""
    return f"(?:{'|'.join(map(_literal, sorted(texts, key=lambda text: (-len(text), text))))})"


def _literal(text: str) -> str:
    """Apostrophes are written in two ways."""
    return re.escape(text).replace("\\ ", " ").replace("\u2019", "[\x27\u2019]")
