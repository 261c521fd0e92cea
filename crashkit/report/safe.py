"""Makes strings of the evidence harmless to show.

A core chooses its thread names, paths and locals, so any of them may hold an escape sequence that
repaints a terminal, or a bidirectional override that makes text read as something else (Unicode
Technical Report 36, "Unicode Security Considerations"). Such characters become visible escapes:
the reader sees that they were there.
"""

from __future__ import annotations

import re

from crashkit.regex import regex

_CONTROLS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, bidirectional, separators
    "\ud800-\udfff"  # lone surrogates: bytes that were not UTF-8
    "\ufdd0-\ufdef\ufffe\uffff"  # not characters
    "\U000e0000-\U000e007f"  # tags
)
_IN_BLOCKS = regex(f"[{_CONTROLS}]")
_IN_LINES = regex(f"[\t\n{_CONTROLS}]")


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
    from rich.cells import cell_len

    return cell_len(text)


def clip(text: str, width: int) -> str:
    """`text` cut to `width` cells, its end replaced by an ellipsis."""
    return text if cells(text) <= width else _start(text, width) + "…"


def clip_front(text: str, width: int) -> str:
    """`text` cut to `width` cells from its front: the end of a path says most."""
    return text if cells(text) <= width else "…" + _start(text[::-1], width)[::-1]


def _start(text: str, width: int) -> str:
    """The part of `text` before an ellipsis that ends at `width`."""
    if text.isascii():
        return text[: max(0, width - 1)]
    kept = text[: 4 * max(0, width)]
    while kept and cells(kept) > width - 1:
        kept = kept[:-1]
    return kept


def bounded(text: str, characters: int) -> str:
    """`text` with its end replaced by the number of omitted characters, where it is longer than `characters`."""
    if len(text) <= characters:
        return text
    return f"{text[:characters]}… ({len(text) - characters:,} more characters in report.json)"
