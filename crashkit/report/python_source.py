"""Python source in colors: which of its words are keywords, strings, comments and so on.

Only lines around a frame are shown, which may begin within a string or end within brackets: a tokenizer would refuse them. Pure.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator

from crashkit.regex import regex

_PREFIX = r"(?i:\b(?:[bu]|[br]r?b?|[fr]r?f?))?"
_TOKEN = regex(
    rf"""
    (?P<s>{_PREFIX}(?:\"\"\"(?:[^"\\]|\\.|"(?!""))*(?:\"\"\")?|'''(?:[^'\\]|\\.|'(?!''))*(?:''')?)
      |{_PREFIX}(?:"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?))
  | (?P<c>\#[^\n]*)
  | (?P<d>^[ \t]*@[ \t]*[\w.]+)
  | (?P<n>\b(?:0[xX][\da-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|\d[\d_]*(?:\.[\d_]*)?(?:[eE][+-]?\d+)?[jJ]?)|\B\.\d[\d_]*(?:[eE][+-]?\d+)?[jJ]?)
  | (?P<word>[^\W\d]\w*)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_KEYWORDS = frozenset(keyword.kwlist)
_BUILTIN = frozenset({name for name in dir(builtins) if name.islower() and not name.startswith("_")} | {"self", "cls"})
_NAMING = frozenset({"def", "class"})


def spans(text: str) -> Iterator[tuple[str, str]]:
    """All of the text in pieces: each with its style, '' for none.

    The styles are k (keyword), s (string), c (comment), n (number), f (the name of a function or class where it is defined),
    d (decorator), b (builtin).
    """
    at = 0
    before = ""
    for found in _TOKEN.finditer(text):
        if found.start() > at:
            yield "", text[at : found.start()]
        at = found.end()
        kind, token = found.lastgroup or "", found[0]
        yield (_style(token, before) if kind == "word" else kind), token
        before = token
    if at < len(text):
        yield "", text[at:]


def _style(word: str, before: str) -> str:
    if word in _KEYWORDS:
        return "k"
    return "f" if before in _NAMING else "b" if word in _BUILTIN else ""
