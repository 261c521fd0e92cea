"""A line of the summary for a terminal: pieces of text in styles. rich, which would do, takes longer to import than a summary to make."""

from __future__ import annotations

import textwrap
from typing import Union

RED, BOLD, DIM, BLUE, YELLOW = "1;31", "1", "2", "34", "33"
"""Styles, by the parameters of SGR (ECMA-48, 8.3.117)."""

Piece = Union[str, tuple[str, str]]
"""A text, or a text and its style."""


class Line:
    """Pieces of text without control characters; `style` is that of those that come without one. It ends without spaces."""

    def __init__(self, *pieces: Piece, style: str = "") -> None:
        self._pieces = [(piece, style) if isinstance(piece, str) else piece for piece in pieces]
        while self._pieces and not self._pieces[-1][0].rstrip():
            self._pieces.pop()
        if self._pieces:
            text, style = self._pieces.pop()
            self._pieces.append((text.rstrip(), style))

    @property
    def plain(self) -> str:
        """The text alone."""
        return "".join(text for text, _ in self._pieces)

    @property
    def colored(self) -> str:
        """The text with its styles as escape sequences."""
        return "".join(f"\x1b[{style}m{text}\x1b[0m" if style and text else text for text, style in self._pieces)


def wrapped(text: str, width: int) -> list[str]:
    """`text` in rows of at most `width` cells, broken between words, and within those that are longer than a row."""
    if text.isascii() and all(len(word) <= width for word in text.split(" ")):
        return textwrap.wrap(text, width, expand_tabs=False, replace_whitespace=False, break_on_hyphens=False)
    # The console is part of the interface; nothing is printed on it.
    from rich.console import Console
    from rich.text import Text

    return [row.plain.rstrip() for row in Text(text).wrap(Console(), width)]
