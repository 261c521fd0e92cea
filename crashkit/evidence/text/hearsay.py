"""What somebody says of a crash: a title, a sentence, words that no program of the table of log lines prints.

It counts only where a text is all there is and shows nothing else: a log that speaks of signals is no log of a crash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from crashkit.model import LogLine, SoftError

KIND = "told"
_MOST = 10
_DENIES = re.compile(
    r"\b(?:(?:could|may|might) be"
    r"|[Hh]andl(?:ers?|es?|ing)|[Rr]egister(?:s|ed|ing)?|[Ii]nstall(?:s|ed|ing)?|[Ff]ix(?:e[sd]|ing)?|[Aa]void(?:s|ed|ing)?"
    r"|[Pp]revent(?:s|ed|ing)?|[Ii]gnor(?:es?|ed|ing)|[Ww]ithout|[Nn]o|[Nn]ot|[Nn]ever|[Ii]f|faulthandler)\b|(?:signal|sigaction|kill)\("
)
"""Of handlers, of repairs, of guesses, and of what does not happen."""


def told(lines: Iterable[LogLine]) -> tuple[LogLine, ...]:
    """The lines that tell of a crash."""
    return tuple(line for line in lines if line.kind == KIND and _DENIES.search(line.text) is None)[:_MOST]


def only_told(lines: Sequence[LogLine]) -> SoftError:
    """What a report of nothing but such words has to say."""
    return SoftError(
        stage="log",
        message=f"this text only speaks of a crash (line {lines[0].line}): no line of a shell, a runtime or the kernel shows one",
        hint="Pass the output of the process that died, or its core.",
    )
