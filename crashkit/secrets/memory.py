"""Overwrites secrets in pieces of a process's memory with zeros. Pure.

Which texts are secret is known from the report, which masks them, and from their shapes: the same rules as for texts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from crashkit.secrets.text import Secrets, is_telling

_TEXT = re.compile(rb"[\t\n\r\x20-\x7e]{16,}")
_REST = re.compile(rb"[^\0-\x08\x0b\x0c\x0e-\x1f\x7f]*")
_QUOTE = re.compile(r'(?<!\\)((?:\\\\)*)"')
_LEAST = 3
_LONG = 100
"""Bytes of a secret that a report may have cut: what follows it is of it, up to the end of the text."""
_LONGEST = 64 << 10
_LINE = 16
_REGISTER = 8
_CODES = (("utf-8", "surrogateescape"), ("latin-1", "strict"), ("utf-16-le", "surrogatepass"), ("utf-32-le", "surrogatepass"))
"""How processes keep texts; CPython's str has 1, 2 or 4 bytes a character (PEP 393), surrogates for bytes that are no text (PEP 383)."""


class SecretBytes:
    """Finds secrets in memory.

    `hidden` are those that the report masks, as it has them: perhaps with escapes, or cut. `shown` is what it does show: an ordinary word
    that is somebody's password stays where it is a name.
    """

    def __init__(self, hidden: Iterable[str], shown: Collection[str]) -> None:
        words = "\0".join(shown)
        plain = {form for text in hidden for form in _plain(text)}
        self._anywhere = {form for text in plain if _is_long_enough(text) for form in _encoded(text)}
        alone = [text for text in plain if not _is_long_enough(text) and len(text) >= _LEAST and text not in words]
        forms = {(len(form) >= 2 * len(text), form) for text in alone for form in _encoded(text)}
        self._anywhere.update(form for is_wide, form in forms if is_wide)
        self._alone = sorted(form for is_wide, form in forms if not is_wide)
        self.longest = max(map(len, (*self._anywhere, *self._alone, b"")))
        """Bytes: so far may a secret reach into the memory before and behind a piece."""

    def learn(self, memory: bytes) -> None:
        """Add what this memory has in the shape of a secret."""
        for text in _TEXT.finditer(memory):
            found = Secrets()
            found.by_shape(text[0].decode("ascii"))
            secrets = {form for secret in found.hidden for form in _plain(secret) if _is_long_enough(form)}
            self._anywhere.update(form for secret in secrets for form in _encoded(secret))
        self.longest = max(map(len, (*self._anywhere, *self._alone, b"")))

    @property
    def has_cut(self) -> bool:
        """Whether the report may have cut a secret, whose rest is then to be learned."""
        return any(len(form) >= _LONG for form in self._anywhere)

    def learn_rest(self, memory: bytes) -> None:
        """Add the rest of secrets that the report has cut, where this memory has the whole, and their lines."""
        long = sorted(form for form in self._anywhere if len(form) >= _LONG)
        for _, start, end in BytesAhoCorasick(long).find_matches_as_indexes(memory):
            rest = _REST.match(memory, end, end + _LONGEST)
            text = memory[start : rest.end() if rest else end].decode("utf-8", "surrogateescape")
            self._anywhere.update(form for line in (text, *_lines(text)) for form in _encoded(line))
        self.longest = max(map(len, (*self._anywhere, *self._alone, b"")))

    def places(self, memory: bytes) -> list[tuple[int, int]]:
        """Start and end of each secret, by start; they may overlap."""
        found = []
        if self._anywhere:
            known = BytesAhoCorasick(sorted(self._anywhere), matchkind=MatchKind.LeftmostLongest)
            for _, start, end in known.find_matches_as_indexes(memory):
                rest = _REST.match(memory, end) if end - start >= _LONG else None
                found.append((start, rest.end() if rest else end))
        if self._alone:
            # A whole string, or the value of an environment variable.
            words = re.compile(rb"(?<![\x20-\x3c\x3e-\xff])(?:" + b"|".join(map(re.escape, self._alone)) + rb")(?=\0)")
            found += [match.span() for match in words.finditer(memory)]
        return sorted(found)

    def in_registers(self, memory: bytes) -> list[tuple[int, int]]:
        """Start and end of each aligned word that is a part of a secret: registers hold them while they are copied."""
        parts = {form[at : at + _REGISTER] for form in self._anywhere for at in range(len(form) - _REGISTER + 1)}
        words = range(0, len(memory) - _REGISTER + 1, 4) if parts else ()
        return [(at, at + _REGISTER) for at in words if memory[at : at + _REGISTER] in parts]


def zeroed(memory: bytes, places: Iterable[tuple[int, int]]) -> bytes:
    """The memory with zeros in these places, as far as they lie in it."""
    clean = bytearray(memory)
    for start, end in places:
        start, end = max(0, start), min(len(clean), end)
        if start < end:
            clean[start:end] = bytes(end - start)
    return bytes(clean)


def _is_long_enough(text: str) -> bool:
    """To be the secret wherever it stands."""
    return is_telling(text) or len(text) >= _LONG


def _plain(shown: str) -> Iterator[str]:
    """The text as the report has it, and without the escapes of a repr."""
    text = shown.removesuffix("(truncated)").removesuffix("…").removesuffix("...")
    yield text
    yield from _lines(text)
    # What was cut may end within an escape.
    for escaped in (text, text[: text.rfind("\\")]) if "\\" in text else ():
        try:
            value = ast.literal_eval('"' + _QUOTE.sub(r"\1\"", escaped) + '"')
        except (SyntaxError, ValueError):
            continue
        yield value
        yield from _lines(value)
        return


def _lines(text: str) -> Iterator[str]:
    """Those of a key: it was read line by line."""
    return (line for line in text.split("\n") if len(line) >= _LINE and "-----" not in line)


def _encoded(text: str) -> Iterator[bytes]:
    for code, errors in _CODES:
        try:
            yield text.encode(code, errors)
        except UnicodeEncodeError:
            continue
