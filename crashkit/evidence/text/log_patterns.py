"""Finds and classifies the log lines that matter for a crash (log_lines.toml)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Optional

import msgspec
from ahocorasick_rs import AhoCorasick

from crashkit.evidence.text import causes, formats, remnants, required, translations, windows_codes
from crashkit.limits import PATTERN_SECONDS
from crashkit.own_tables import own_derived, own_table
from crashkit.prepared import prepared
from crashkit.processor_time import TooSlow, at_most
from crashkit.regex import regex

_ONLY_AS_IT_IS = "device-assert-line"
"""Of all assertions, those of a GPU are told from GTK's and others' by their letters."""
_TYPED = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\uff07", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\uff02", '"'),
        "\uff08": "(",
        "\uff09": ")",
        "\uff1a": ":",
    }
)
"""What text editors, chats and input methods make of quotation marks, brackets and colons."""
_TURKISH = {ord("\u0131"): "i", 0x307: None}
"""The Turkish i without a dot, and the dot that folding leaves of the capital one: a pattern without regard to case takes them for i."""


class LinePattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lines that match `pattern` are of this kind; named groups become their fields."""

    kind: str
    pattern: str
    signal: Optional[str] = None
    """The signal that such a line tells of, where its text does not name it."""
    told: dict[str, str] = {}
    """Further fields of every such line: what it means and does not spell out, such as who set the limit that it tells of."""


class SaidPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody says of a crash, in words that no program prints."""

    pattern: str
    signal: Optional[str] = None


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shared: tuple[str, ...]
    line: tuple[LinePattern, ...]
    said: tuple[SaidPattern, ...]


@cache
def _table() -> _Table:
    return msgspec.convert(own_table(Path(__file__).with_name("log_lines.toml")), prepared(_Table))


@cache
def line_patterns() -> tuple[LinePattern, ...]:
    """The built-in tables, in order of precedence."""
    codes = (LinePattern(one.kind, one.pattern, one.signal) for one in windows_codes.patterns())
    return (*codes, *_process_ends(translations.common()), *_table().line)


@cache
def _precedences() -> dict[str, int]:
    return {line.kind: place for place, line in reversed(tuple(enumerate(line_patterns())))}


def precedence(kind: Optional[str]) -> int:
    """Where the first pattern of that kind stands: what is more particular stands first. A kind without a pattern comes last."""
    return _precedences().get(kind or "", len(line_patterns()))


@cache
def loose_line_patterns() -> tuple[LinePattern, ...]:
    """Those for short texts, besides `line_patterns`."""
    codes = (LinePattern(one.kind, one.pattern, one.signal) for one in windows_codes.posted_patterns())
    return (*_process_ends(translations.every()), *codes)


def _process_ends(several: Iterable[translations.Translated]) -> tuple[LinePattern, ...]:
    return tuple(LinePattern("process-end", one.pattern, one.signal) for one in several)


def said_patterns() -> tuple[SaidPattern, ...]:
    """The words of people, in order of precedence."""
    return _table().said


@cache
def _said() -> tuple[tuple[re.Pattern[str], dict[str, str]], ...]:
    return tuple((re.compile(one.pattern), {"signal": one.signal} if one.signal else {}) for one in said_patterns())


def said(text: str) -> Optional[dict[str, str]]:
    """What a sentence tells of a crash, as the fields of a line; None if it tells of none."""
    text = text.translate(_TYPED)
    return next((dict(fields) for pattern, fields in _said() if pattern.search(text)), None)


def kinds() -> frozenset[str]:
    """All kinds that a log line can have: of a pattern, of a multi-line text or of what is left of one, of what people say of causes."""
    return frozenset(pattern.kind for pattern in line_patterns()).union(
        causes.kinds(), remnants.kinds(), *(format.kinds for format in formats.FORMATS)
    )


# What says how a process ended, or nothing by itself: less than a cause that the same line tells.
_NO_CAUSES = frozenset(
    {
        "process-end", "exit-status", "windows-exit", "windows-exception", "windows-cxx-exception", "jvm-fatal", "shell", "shell-killed",
        "supervisor-exit", "supervisor-signal", "launcher-child", "launcher-signal", "gdb-signal", "told", "what", "recursion",
        "launch-blocking", "llvm-program", "triton-code", "test-summary", "c-assert-part", "go-goroutine", "go-frame",
    }
)  # fmt: skip


class Classifier:
    """Classifies a line: by the built-in table first, then by further patterns (kind None)."""

    def __init__(self, further: Sequence[str] = ()) -> None:
        rules = _rules(tuple(further))
        self.literals = rules.literals
        self._rules, self._any, self._of_literal = rules.rules, rules.any, rules.of_literal
        self._first_causes = len(line_patterns()) - len(_table().line)
        """Rules before this one are codes and signals: a line may tell more than these."""
        self.too_slow: list[str] = []
        """Further patterns that took so long that they are no longer tried."""

    def classify(self, text: str) -> Optional[tuple[Optional[str], dict[str, str]]]:
        """Kind and fields of a significant line; None for any other line."""
        if not text.isascii():
            text = text.translate(_TYPED)
        found_texts = {literal for literal, _, _ in self._any.find_matches_as_indexes(text, overlapping=True)}
        if not found_texts:
            return None
        end: Optional[tuple[Optional[str], dict[str, str]]] = None
        for index in sorted({rule for literal in found_texts for rule in self._of_literal[literal]}):
            kind, pattern, _, told, needs = self._rules[index]
            if any(found_texts.isdisjoint(one) for one in needs) or pattern.pattern in self.too_slow:
                continue
            match = pattern.search(text) if kind is not None else self._of_user(pattern, text)
            if match is None or (end is not None and kind in _NO_CAUSES):
                continue
            found = kind, {**told, **{name: value for name, value in match.groupdict().items() if value is not None}}
            if index >= self._first_causes:
                return found
            end = end or found
        return end

    def loosely(self, text: str) -> Optional[tuple[Optional[str], dict[str, str], str]]:
        """As `classify` by the built-in table, whatever the case of the letters: who types a message does not keep it. And what matched."""
        loose = _loose()
        found = (loose.of_literal[at] for at, _, _ in loose.any.find_matches_as_indexes(_folded(text), overlapping=True))
        for index in sorted({*loose.always, *chain.from_iterable(found)}):
            line, pattern = loose.patterns[index]
            if match := pattern.search(text):
                return (
                    line.kind,
                    {**_told(line), **{name: value for name, value in match.groupdict().items() if value is not None}},
                    match[0],
                )
        return None

    def _of_user(self, pattern: re.Pattern[str], text: str) -> Optional[re.Match[str]]:
        """Ours are known to take linear time; a user's may not end."""
        try:
            with at_most(PATTERN_SECONDS):
                return pattern.search(text)
        except TooSlow:
            self.too_slow.append(pattern.pattern)
            return None


class _Rule(NamedTuple):
    kind: Optional[str]
    pattern: re.Pattern[str]
    required: tuple[str, ...]
    """Texts of which a match contains at least one."""
    told: dict[str, str]
    needs: tuple[frozenset[int], ...] = ()
    """Texts of which a match contains one of each, by their places in `_Rules.any`."""


class _Rules(NamedTuple):
    rules: tuple[_Rule, ...]
    literals: tuple[str, ...]
    any: AhoCorasick
    """Finds in a line what the rules need, whole: `literals` are shortened, so that there are few to search a file for."""
    of_literal: tuple[tuple[int, ...], ...]
    """For each of its texts, the rules that require it."""


@lru_cache(maxsize=8)
def _rules(further: tuple[str, ...]) -> _Rules:
    """The same for each text of a job with hundreds of them."""
    ours = [
        (_Rule(line.kind, regex(line.pattern), tuple(one), _told(line)), needs)
        for line, (one, needs) in zip(line_patterns(), _required_of_ours(), strict=True)
    ]
    others = [(_Rule(None, regex(pattern), literals(pattern), {}), required.needs(pattern)) for pattern in further]
    rules = [rule for rule, _ in (*ours, *others)]
    kept = fewest(_shorten(literal) for rule in rules for literal in rule.required)
    needed = [tuple(dict.fromkeys((rule.required, *map(tuple, needs)))) for rule, needs in (*ours, *others)]
    places = {text: place for place, text in enumerate(dict.fromkeys(text for several in needed for one in several for text in one))}
    of_literal: list[list[int]] = [[] for _ in places]
    for index, rule in enumerate(rules):
        for text in rule.required:
            of_literal[places[text]].append(index)
    whole = tuple(
        rule._replace(needs=tuple(frozenset(places[text] for text in one) for one in several))
        for rule, several in zip(rules, needed, strict=True)
    )
    return _Rules(whole, kept, AhoCorasick(list(places)), tuple(map(tuple, of_literal)))


def _required_of_ours() -> list[tuple[list[str], list[list[str]]]]:
    """For each of the built-in patterns, what `literals` and `required.needs` tell: to parse them all takes longer than to read a log."""
    found: list[tuple[list[str], list[list[str]]]] = own_derived(
        Path(__file__).with_name("log_lines.required"),
        (*_table().shared, *(line.pattern for line in line_patterns())),
        Path(required.__file__),
        lambda: [(literals(line.pattern), required.needs(line.pattern)) for line in line_patterns()],
    )
    return found


def literals(pattern: str) -> tuple[str, ...]:
    """Texts of which every match of `pattern` contains at least one; empty if there are no useful ones.

    Raises re.error for an invalid pattern.
    """
    return required.literals(pattern, _table().shared)


def _shorten(text: str) -> str:
    return required.shorten(text, _table().shared)


def _told(line: LinePattern) -> dict[str, str]:
    return {**line.told, **({"signal": line.signal} if line.signal else {})}


class _Loose(NamedTuple):
    patterns: tuple[tuple[LinePattern, re.Pattern[str]], ...]
    any: AhoCorasick
    """Finds, in folded text, what the patterns require."""
    of_literal: tuple[tuple[int, ...], ...]
    always: tuple[int, ...]
    """Patterns that require nothing."""


def _folded(text: str) -> str:
    return text.casefold().translate(_TURKISH)


@cache
def _loose() -> _Loose:
    lines = tuple(line for line in (*loose_line_patterns(), *line_patterns()) if line.kind != _ONLY_AS_IT_IS)
    needed: list[list[str]] = own_derived(
        Path(__file__).with_name("loose_lines.required"),
        (line.pattern for line in lines),
        Path(required.__file__),
        lambda: [sorted(set(required.literals(line.pattern))) for line in lines],
    )
    of_literal: dict[str, list[int]] = {}
    for index, texts in enumerate(needed):
        for text in dict.fromkeys(map(_folded, texts)):
            of_literal.setdefault(text, []).append(index)
    return _Loose(
        tuple((line, regex(line.pattern, re.IGNORECASE)) for line in lines),
        AhoCorasick(list(of_literal)),
        tuple(map(tuple, of_literal.values())),
        tuple(index for index, texts in enumerate(needed) if not texts),
    )


def fewest(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts, without those that contain another one: finding the shorter one finds both."""
    return _fewest(frozenset(texts))


@cache
def _fewest(texts: frozenset[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for text in sorted(texts, key=lambda text: (len(text), text)):
        if not any(shorter in text for shorter in kept):
            kept.append(text)
    return tuple(kept)
