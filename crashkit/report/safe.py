"""Makes strings of the evidence harmless to show.

A core chooses its thread names, paths and locals, so any of them may hold an escape sequence that
repaints a terminal, or a bidirectional override that makes text read as something else (Unicode
Technical Report 36, "Unicode Security Considerations"). Such characters become visible escapes:
the reader sees that they were there.
"""

from __future__ import annotations

import re
from unicodedata import category, east_asian_width

_CONTROLS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, bidirectional, separators
    "\ud800-\udfff"  # lone surrogates: bytes that were not UTF-8
    "\ufdd0-\ufdef\ufffe\uffff"  # not characters
    "\U000e0000-\U000e007f"  # tags
)
_IN_BLOCKS = re.compile(f"[{_CONTROLS}]")
_IN_LINES = re.compile(f"[\t\n{_CONTROLS}]")


def _visible(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _printable(text: str, kept: str = "") -> str:
    """What Unicode has not assigned, or left to private use, shows as its escape, too."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in kept else one.encode("unicode_escape").decode("ascii", "replace") for one in text)


def line(text: str) -> str:
    """`text` on one line, with control characters, overrides and lone surrogates as escapes."""
    return text if text.isascii() and text.isprintable() else _printable(_IN_LINES.sub(_visible, text))


def block(text: str) -> str:
    """As `line`, but newlines and tabs stay."""
    return text if text.isascii() and text.isprintable() else _printable(_IN_BLOCKS.sub(_visible, text), "\n\t")


def cells(text: str) -> int:
    """How many terminal cells `text` takes; `text` has been through `line`."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if category(character) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(character) in ("W", "F") else 1


def clip(text: str, width: int) -> str:
    """`text` cut to `width` cells, its end replaced by an ellipsis."""
    if cells(text) <= width:
        return text
    kept, room = [], width - 1
    for character in text:
        room -= _cells(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + "…"


def clip_front(text: str, width: int) -> str:
    """`text` cut to `width` cells from its front: of a path the end tells most."""
    if cells(text) <= width:
        return text
    return "…" + clip(text[::-1][: width * 2], width)[-2::-1]


def bounded(text: str, characters: int) -> str:
    """`text` with its end replaced by how much was left out, where it is longer than `characters`."""
    if len(text) <= characters:
        return text
    return f"{text[:characters]}… ({len(text) - characters:,} more characters in report.json)"
