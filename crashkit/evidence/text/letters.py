"""A text reduced to its letters and digits, in which case, accents, hyphens, quotation marks and line breaks do not count. Pure.

Words are found in it as a whole, and the long ones with one letter wrong.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from typing import Optional

import msgspec
from ahocorasick_rs import AhoCorasick

from crashkit.regex import regex

LONG = 8
"""Letters of a word that is recognised with one of them wrong, missing, added, or exchanged with the next."""
_ANYWHERE = 12
"""Letters of a word that is recognised within another one, as in `StatusAccessViolation`."""
_SPELT, _LONGEST_SPELT = 6, 24
_MOST_TRIED = 50_000
"""Places at which a misspelt word is tried: an ordinary text of a megabyte has a few thousand."""
_WORDS = regex(r"(?:(?<!\w)-(?=\d))?[^\W_]+")
_SENTENCE_ENDS = regex(r"[.!?;](?=\s)|\n(?=[ \t]{0,8}\n)")
_SAME = str.maketrans({"\u2212": "-", "\u2013": "-", "\u2010": "-", "\u2011": "-", "\u0131": "i"})
"""What looks the same, and the only letter that changes with its case."""
_UNSPACED = regex(r"[\u0e00-\u0eff\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Scripts that are written without spaces, or that add endings without one."""


def reduced(text: str) -> str:
    """The text without case, accents and ligatures."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text.casefold().translate(_SAME))
    return unicodedata.normalize("NFC", "".join(letter for letter in plain if not unicodedata.combining(letter)))


class Spelling:
    """Rights the longer ones of the words it knows, where one letter is wrong. `others` are words of their own, however near they come."""

    def __init__(self, phrases: Iterable[str], others: Iterable[str] = ()) -> None:
        self._right: dict[str, str] = {word: word for phrase in others for word in _WORDS.findall(reduced(phrase))}
        found = [_WORDS.findall(reduced(phrase)) for phrase in phrases]
        known = {word for words in found for word in words if len(word) >= _SPELT + (len(words) == 1) and not _UNSPACED.search(word)}
        self._without: dict[str, list[str]] = {}
        for word in sorted(known):
            self._right[word] = word
            for short in _shortened(word):
                self._without.setdefault(short, []).append(word)

    def righted(self, word: str) -> str:
        """The word that is meant; the word as it is where that is not clear."""
        if len(word) < _SPELT - 1:
            return word
        right = self._right.get(word)
        if right is not None:
            return right
        near = {known for known in self._near(word) if one_wrong(known, word)}
        most = max(map(len, near), default=0)
        longest = [known for known in near if len(known) == most]
        return longest[0] if len(longest) == 1 else word

    def _near(self, word: str) -> Iterator[str]:
        for short in _shortened(word):
            yield from self._without.get(short, ())


def _shortened(word: str) -> set[str]:
    """The word, and without each of its letters."""
    return {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))} if len(word) <= _LONGEST_SPELT else {word}


class Letters:
    """The words of some lines."""

    def __init__(
        self,
        lines: Iterable[str],
        first: int = 1,
        spelling: Optional[Spelling] = None,
        plain: Callable[[str], Optional[str]] = lambda word: word,
    ) -> None:
        """`first` is the number of the first line. `plain` makes words equal that shall count as the same, or leaves one out."""
        self._first = first
        self._text = reduced("\n".join(lines))
        words = _WORDS.findall(self._text)
        if spelling is not None:
            right = {word: plain(spelling.righted(word)) or "" for word in set(words)}
            words = [right[word] for word in words]
        self.spaced = " ".join(words)
        """The words with one space between them: a number keeps its minus."""
        self.joined = "".join(words)
        self._begins = list(accumulate(map(len, words), initial=0))
        self._begin_set = frozenset(self._begins)

    def line_of_joined(self, at: int) -> int:
        """The number of the line in which this place of `joined` is."""
        return self._line(bisect_right(self._begins, at) - 1)

    def line_of_spaced(self, at: int) -> int:
        """The number of the line in which this place of `spaced` is."""
        return self._line(self.spaced.count(" ", 0, at))

    def sentence_of_spaced(self, at: int) -> tuple[int, int]:
        """Where the sentence begins and ends in which this place of `spaced` is."""
        after = bisect_right(self._sentences, at)
        return (self._sentences[after - 1] if after else 0), (self._sentences[after] if after < len(self._sentences) else len(self.spaced))

    def _line(self, word: int) -> int:
        return self._first + bisect_left(self._line_ends, self._starts[word])

    @cached_property
    def _starts(self) -> array[int]:
        """Where each word begins."""
        return array("q", (found.start() for found in _WORDS.finditer(self._text)))

    @cached_property
    def _sentences(self) -> list[int]:
        """Where in `spaced` a sentence begins, but for the first."""
        words = (bisect_left(self._starts, found.start()) for found in _SENTENCE_ENDS.finditer(self._text))
        return [self._begins[word] + word for word in words]

    @cached_property
    def _line_ends(self) -> array[int]:
        return array("q", (found.start() for found in re.finditer("\n", self._text)))

    def begins_word(self, at: int) -> bool:
        return at in self._begin_set or self._changes_script(at)

    ends_word = begins_word
    """A word ends where the next one begins."""

    def _changes_script(self, at: int) -> bool:
        """Whether a word of a script without spaces touches one of another here: `会core dump`."""
        beside = self.joined[at - 1 : at + 1]
        return at > 0 and len(beside) == 2 and (_UNSPACED.match(beside[0]) is None) != (_UNSPACED.match(beside[1]) is None)


class Hit(msgspec.Struct, frozen=True):
    """A word that was found."""

    key: str
    start: int
    """Its place in `Letters.joined`."""
    end: int


class _Part(msgspec.Struct, frozen=True):
    """A piece of a word that is as it should be, wherever one letter is wrong: the head or the tail."""

    key: str
    whole: bool
    offset: int


class Dictionary:
    """Words to look for. `whole` ones end where they end; others may go on (`crash`, `crashes`)."""

    def __init__(self, beginnings: Iterable[str], whole: Iterable[str] = ()) -> None:
        self._whole = frozenset(_compact(word) for word in whole)
        keys = {*self._whole, *map(_compact, beginnings)}
        parts: dict[str, list[_Part]] = {}
        for key in sorted(keys):
            parts.setdefault(key, []).append(_Part(key, True, 0))
            if len(key) >= LONG and not _UNSPACED.search(key):
                middle = len(key) // 2
                # Two letters that were exchanged across the middle are in neither part.
                for offset, piece in ((0, key[: middle - 1]), (middle, key[middle:])):
                    parts.setdefault(piece, []).append(_Part(key, False, offset))
        self._texts = list(parts)
        self._parts = [parts[text] for text in self._texts]
        self._search = AhoCorasick(self._texts)

    def find(self, letters: Letters) -> Iterator[Hit]:
        """The words in the order in which they stand; a misspelt one may be found more than once."""
        tried = 0
        for index, start, end in self._search.find_matches_as_indexes(letters.joined, overlapping=True):
            for part in self._parts[index]:
                if part.whole:
                    hit = Hit(part.key, start, end)
                    if self._is_word(hit, letters):
                        yield hit
                elif tried < _MOST_TRIED:
                    for hit in _misspelt(part, start, end, letters):
                        tried += 1
                        if one_wrong(part.key, letters.joined[hit.start : hit.end]):
                            yield hit
                            break

    def _is_word(self, hit: Hit, letters: Letters) -> bool:
        if _UNSPACED.search(hit.key):
            return True
        if hit.key in self._whole and not letters.ends_word(hit.end):
            return False
        return len(hit.key) >= _ANYWHERE or letters.begins_word(hit.start)


def _compact(word: str) -> str:
    return "".join(_WORDS.findall(reduced(word)))


def _misspelt(part: _Part, start: int, end: int, letters: Letters) -> Iterator[Hit]:
    """Where the word may begin and end, if this part of it is right."""
    size, text = len(part.key), letters.joined
    if part.offset == 0:
        if letters.begins_word(start):
            yield from (Hit(part.key, start, start + length) for length in (size, size - 1, size + 1) if start + length <= len(text))
        return
    for before in (part.offset, part.offset - 1, part.offset + 1):
        if start - before >= 0 and letters.begins_word(start - before):
            yield Hit(part.key, start - before, end)


def one_wrong(key: str, text: str) -> bool:
    """Whether the text is the key with at most one letter wrong, missing, added, or exchanged with the next."""
    if abs(len(key) - len(text)) > 1:
        return False
    head = next((at for at, (a, b) in enumerate(zip(key, text)) if a != b), min(len(key), len(text)))  # noqa: B905
    if len(key) == len(text):
        return key[head + 1 :] == text[head + 1 :] or (
            key[head : head + 2] == text[head : head + 2][::-1] and key[head + 2 :] == text[head + 2 :]
        )
    longer, shorter = (key, text) if len(key) > len(text) else (text, key)
    return longer[head + 1 :] == shorter[head:]


def words_of(lines: Iterable[str]) -> list[str]:
    """The reduced words of some lines, in order."""
    return [word for line in lines for word in _WORDS.findall(reduced(line))]
