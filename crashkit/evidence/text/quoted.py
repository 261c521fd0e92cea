"""Messages that a line only quotes: source code that holds one as a string, a change that repairs what led to one, a wish. Pure.

Such a line shows what a program may print, not that one has printed it, so no finding on it is above `possible`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Optional

_LITERAL = r"[A-Za-z]{0,2}(?:\"(?P<double>[^\"\n]{4,400})(?:\"|$)|'(?P<single>[^'\n]{4,400})(?:'|$))"
# The exception that a program shows as Python writes it is no call, nor is strace's line of what was written.
_OF_CALL = re.compile(
    r"(?:\b(?:raise|throw) {1,2}[^()\n]{1,80}"
    r"|(?<![\w.:>-])(?![\w.]{0,80}(?:Error|Exception)\()(?!(?:writev?|sendto)\(\d)[A-Za-z_][\w.:>-]{1,80}!?)"
    r"\((?:[^\"'()\n]{0,80}[,=(] ?)?" + _LITERAL + r"(?= ?[,)+]|$)"
)
_STREAM = re.compile(r"<< ?" + _LITERAL + r"(?= ?(?:<<|;)|$)")
_LIST = re.compile(r"[\w\]] ?= ?[\[({] ?(?P<items>[A-Za-z]{0,2}[\"'].{4,800})")
_ITEM = re.compile(r"(?:^|, ?)" + _LITERAL + r"(?=$| ?[,\])}])")
_REPAIRS = re.compile(
    r"(?:^|[\s*-])(?:[Ff]ix(?:e[sd]|ing)?|[Aa]void(?:s|ed|ing)?|[Pp]revent(?:s|ed|ing)?|[Hh]andl(?:es?|ing)|[Ss]ilence[sd]?"
    r"|[Ww]ork(?:s|ed)? around)(?:\([^()]{1,40}\))?:?(?= )"
)
"""What a change does about the message behind it."""
_GONE = re.compile(r" (?:is|are|was|were|has been|have been) (?:now )?(?:gone|fixed|resolved|solved|avoided|handled|prevented)\b")

_MARKED = re.compile(r"[\"\u201c\u201e`\u00ab](?P<text>[^\"\u201c-\u201e`\u00ab\u00bb\n]{4,400})[\"\u201d`\u00bb]")
_MEANT = re.compile(
    r"\b(?:[Ii]t would be (?:nice|great|good|useful|helpful)|[Ff]eature request|[Ee]rror means|means? that|[Ii]f you (?:see|get|encounter)"
    r"|[Ii]n case|e\.g\.|[Ff]or example|(?:should|would|may|might|can|could) (?:raise|print|show|say|report))"
)
"""Of a wish, an explanation or an example: the message in quotation marks is none that was seen."""
_EXPLAINED = re.compile(
    r"[\"'`\u201d]? (?:is (?:just |only )?(?:a |an )?(?:[a-z]{2,12} )?(?:warning|message|notice|harmless|expected)"
    r"|(?:just |usually |only )?means? that|can (?:safely )?be ignored)\b"
)
"""What explains the message before it, in the same line."""
_OF_LIST = re.compile(r"^\W{0,8}(?:[-*\u2022|]|\d{1,2}[.)]) ")
_MARKS = "\"'`\u201d"
"""At the end of a message they are its own, or close the quotation."""
_DASH = re.compile(r"[\"'`\u201d]? (?:\u2014|\u2013|=>|\u2192|\u21d2|\|) ")
"""Between a message and what a list or a table of several says of it."""


def literals(text: str) -> Iterator[str]:
    """The strings in a line of source code: arguments of calls, what is written to a stream, items of a list that is assigned."""
    if '"' not in text and "'" not in text:
        return
    for call in _OF_CALL.finditer(text):
        yield call["double"] or call["single"]
    for written in _STREAM.finditer(text):
        yield written["double"] or written["single"]
    for several in _LIST.finditer(text):
        for item in _ITEM.finditer(several["items"]):
            yield item["double"] or item["single"]


def how(text: str, kind: Optional[str], kind_of: Callable[[str], Optional[str]]) -> Optional[str]:
    """How a line of this kind quotes its message; None if it is the message. `kind_of`: the kind that a text has by itself."""
    if any(kind_of(literal) == kind for literal in literals(text)):
        return "in source code"
    if any(kind_of(text[verb.end() :]) == kind for verb in _REPAIRS.finditer(text)):
        return "as repaired"
    if any(kind_of(text[: end.start()]) == kind for end in _GONE.finditer(text)):
        return "as repaired"
    if _MEANT.search(text) and any(kind_of(marked["text"]) == kind for marked in _MARKED.finditer(text)):
        return "in a wish or an explanation"
    ends = (*_EXPLAINED.finditer(text), *(_DASH.finditer(text) if _OF_LIST.match(text) else ()))
    heads = [text[:at] for end in ends for at in {end.start(), end.start() + (text[end.start()] in _MARKS)}]
    if any(kind_of(head.lstrip(" -*|\"'`")) == kind for head in heads):
        return "in an explanation"
    if text.lstrip().startswith("//") and kind_of(text.lstrip(" /")) == kind:
        return "in a comment"
    return None
