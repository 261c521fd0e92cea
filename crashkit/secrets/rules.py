"""Reads rules.toml: which names and which shapes are those of secrets.

A process that calls `crashkit.enable()` pays for it: nothing heavy is imported.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Optional

import msgspec
from ahocorasick_rs import AhoCorasick

from crashkit.own_tables import own_table
from crashkit.regex import regex

CERTAIN, STRONG, WEAK, NUMBER = "certain", "strong", "weak", "number"
"""How sure a name is: CERTAIN also makes numbers secret, STRONG every string, WEAK those like a secret, NUMBER only long numbers."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_LONGEST_NAME = 256
_ENDINGS = ("certain_endings", "strong_endings", "weak_endings")

# A secret may follow an escape sequence of a repr: in '\nghp_...' the n belongs to the line feed.
_BEGINS = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf0])|(?<=\\x[0-9a-fA-F]{2}))"


class Shape(msgspec.Struct, frozen=True):
    """Texts that are secrets because of how they look."""

    name: str
    source: str
    """Where the shape is documented."""
    contains: tuple[str, ...]
    """Without one of these, in lower case, a text cannot match."""
    pattern: re.Pattern[str]


class Command(msgspec.Struct, frozen=True):
    """A program whose options for passwords have names that do not tell."""

    apart: frozenset[str]
    """Options whose value is the next argument."""
    joined: tuple[str, ...]
    """Options whose value follows in the same argument."""


class Names(msgspec.Struct, frozen=True):
    """Names of secrets, as words: see rules.toml."""

    certain: frozenset[str]
    certain_endings: tuple[str, ...]
    strong: frozenset[tuple[str, ...]]
    strong_endings: tuple[str, ...]
    weak: frozenset[str]
    weak_endings: tuple[str, ...]
    neutral: frozenset[str]
    about: frozenset[str]
    harmless_before: frozenset[str]
    paths: frozenset[str]
    calls: frozenset[str]
    numbers: frozenset[tuple[str, ...]]
    headers: frozenset[str]
    hints: tuple[str, ...]
    """Without one of these, in lower case, a text names no secret."""


class Rules(msgspec.Struct, frozen=True):
    """The contents of rules.toml."""

    names: Names
    commands: dict[str, Command]
    """By the program's name."""
    shapes: tuple[Shape, ...]
    words: AhoCorasick
    """Finds the hints and what the shapes contain, in one pass."""
    meanings: tuple[Optional[Shape], ...]
    """For each of these words its shape; None for a hint."""

    def fitting(self, text: str) -> tuple[list[Shape], bool]:
        """The shapes that the text may have, and whether it may name a secret."""
        found = {self.meanings[match[0]] for match in matches(self.words, text.lower(), overlapping=True)}
        return [shape for shape in self.shapes if shape in found], None in found


def matches(words: AhoCorasick, text: str, overlapping: bool = False) -> list[tuple[int, int, int]]:
    """The index of each word that the text contains, and where it begins and ends."""
    try:
        return words.find_matches_as_indexes(text, overlapping)
    except UnicodeEncodeError:
        # Bytes that were not Unicode: each is one character, and in no word.
        return words.find_matches_as_indexes(text.encode("utf-8", "replace").decode(), overlapping)


@cache
def rules() -> Rules:
    """The rules, read once."""
    table = own_table(Path(__file__).with_name("rules.toml"))
    lists: dict[str, list[str]] = table["names"]
    phrases = {name: frozenset(tuple(phrase.split()) for phrase in lists[name]) for name in ("strong", "numbers")}
    telling = {max(phrase, key=len) for name in phrases for phrase in phrases[name]}
    names = Names(
        certain=frozenset(lists["certain"]),
        certain_endings=tuple(lists["certain_endings"]),
        strong=phrases["strong"],
        strong_endings=tuple(lists["strong_endings"]),
        weak=frozenset(lists["weak"]),
        weak_endings=tuple(lists["weak_endings"]),
        neutral=frozenset(lists["neutral"]),
        about=frozenset(lists["about"]),
        harmless_before=frozenset(lists["harmless_before"]),
        paths=frozenset(lists["paths"]),
        calls=frozenset(lists["calls"]),
        numbers=phrases["numbers"],
        headers=frozenset(lists["headers"]),
        hints=_fewest({*telling, *(word for name in ("weak", "certain", *_ENDINGS) for word in lists[name])}),
    )
    shapes = tuple(
        Shape(
            shape["name"],
            shape["source"],
            tuple(shape["contains"]),
            regex(_from_a_word(shape["pattern"]) if shape.get("word", True) else shape["pattern"]),
        )
        for shape in table["shape"]
    )
    commands = {
        program: Command(frozenset(one.get("apart", ())), tuple(one.get("joined", ())))
        for one in table["command"]
        for program in one["programs"]
    }
    words = [*((word, shape) for shape in shapes for word in shape.contains), *((word, None) for word in names.hints)]
    return Rules(names, commands, shapes, AhoCorasick([word for word, _ in words]), tuple(shape for _, shape in words))


def _from_a_word(pattern: str) -> str:
    flags = "(?i)" if pattern.startswith("(?i)") else ""
    return f"{flags}{_BEGINS}(?:{pattern[len(flags) :]})"


def _fewest(words: set[str]) -> tuple[str, ...]:
    """Without those that contain another one."""
    return tuple(sorted(word for word in words if not any(other != word and other in word for other in words)))


@lru_cache(4096)
def kind(name: str) -> Optional[str]:
    """How sure it is that a value of this name is a secret: CERTAIN, STRONG, WEAK, NUMBER; None if it is none."""
    names = rules().names
    words = [word.lower() for word in _WORD.findall(name[-_LONGEST_NAME:])]
    for word, after in zip(words, [*words[1:], ""], strict=False):
        if word in names.certain or word.endswith(names.certain_endings):
            return None if after in names.about else CERTAIN
    while len(words) > 1 and (words[-1] in names.neutral or words[-1].isdigit()):
        words.pop()
    if not words:
        return None
    ends = [tuple(words[-length:]) for length in (1, 2, 3)]
    if any(end in names.numbers for end in ends):
        return NUMBER
    if any(end in names.strong for end in ends) or words[-1].endswith(names.strong_endings):
        return STRONG
    is_weak = words[-1] in names.weak or words[-1].endswith(names.weak_endings)
    return WEAK if is_weak and not names.harmless_before & set(words[-2:-1]) else None


@lru_cache(256)
def last_word(name: str) -> str:
    """The last word of a name, in lower case."""
    words = _WORD.findall(name[-_LONGEST_NAME:])
    return words[-1].lower() if words else ""
