"""What somebody says of a crash: a title, a sentence, words that no program of the table of log lines prints.

It counts only where a text is all there is and shows nothing else: a log that speaks of signals is no log of a crash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from crashkit.model import LogLine, SoftError

KIND = "told"
BESIDE = frozenset({"recursion", "freeze-watchdog"})
"""Kinds of lines that show no crash, but what may be behind one that is told."""
MOST = 10
_SILENCE = (
    r"(?! (?:throwing |giving |printing |showing |raising |reporting |leaving )?(?:any |an? |further |other |more |useful |clear )?"
    r"(?:errors?|messages?|tracebacks?|warnings?|exceptions?|outputs?|logs?|stack|reason|core|problems?|notice)\b)"
)
_REPAIRS = (
    r"(?:could|may|might|would|should) (?:be|have)"
    r"|[Hh]andl(?:ers?|es?|ing)|[Rr]egister(?:s|ed|ing)?|[Ii]nstall(?:s|ing)|[Ii]nstalled (?:a|the|for)\b|was installed"
    r"|[Ff]ix(?:e[sd]|ing)?|[Aa]void(?:s|ed|ing)?"
    r"|[Pp]revent(?:s|ed|ing)?|[Ii]gnor(?:es?|ed|ing)|[Rr]ecover(?:s|ed|y|ing)?|[Rr]eporter|[Rr]eporting|[Cc]rashlytics"
    r"|(?<!work )(?<!works )(?<!working )as expected|[Cc]aught (?:an? |the )?std::\w{1,40}|[Hh]ow to"
)
_ABSENCE = (
    rf"0 (?:[A-Za-z]{{1,20}} )?(?:crash|kill|died|worker|segfault|core)\w*|(?<!--)[Nn]o{_SILENCE}|no core|[Nn]ever"
    rf"|[Ww]ithout(?! (?:producing|finishing|completing|creating|saving|doing|displaying) ){_SILENCE}"
    r"|[Nn]ot(?! (?:show|print|give|produce|work|start|run|find|import|load|convert|parse|finish|complete|continue|respond|open|connect"
    r"|launch|render)\w*)"
    r"|[Ii]f (?:it|a|an|the process|any) (?:\w{1,12} )?(?:receives?|gets|is|was|has)|faulthandler"
)
_DENIES = re.compile(rf"\b(?:{_REPAIRS}|{_ABSENCE})\b|(?:signal|sigaction|kill)\(")
_BETWEEN = re.compile(r"(?<=[.!?;]) {1,4}|, {1,4}(?=(?:I|we|but|so|then|and then)\b)| {1,4}\((?=[Nn]o)")
_PARTS = re.compile(r"(?<=,) {1,4}|(?<=:) {1,4}")
_CAUSES = re.compile(r"\b[Ss]tack [Oo]verflow\b")
_SUPPOSES = re.compile(
    r"^\W{0,8}(?:If|In case|Whether|Unless|Suppose)\b"
    r"|^\W{0,8}(?:feat|docs?|chore|tests?|refactor)(?:\([^()]{1,40}\))?!?: "
    r"|\b(?:[Dd]etect(?:s|ing|ion of)?|[Ss]upport for|[Hh]ow (?:to|do|can)|[Ww]hat does)\b"
)
_UNDOES = re.compile(rf"\b(?:{_REPAIRS})\b")
"""Of handlers, of repairs, of guesses, and of what does not happen."""


def denies(text: str) -> bool:
    """Whether the text speaks of handlers, of repairs, of guesses, or of what does not happen."""
    return _DENIES.search(text) is not None


def undoes(text: str) -> bool:
    """Whether the text speaks of handlers, of repairs, or of guesses: what is missing may be what a message says."""
    return _UNDOES.search(text) is not None


def supposes(text: str) -> bool:
    """Whether the text speaks of what may happen, or of a program that deals with it: documentation, a change, a question."""
    return _SUPPOSES.search(text) is not None


def denies_around(text: str, message: str) -> bool:
    """As `denies`, of a text with this message in it, which may say itself that something is missing."""
    clause = next((one for one in clauses(text) if message in one), text)
    return undoes(clause.replace(message, " ")) if denies(message) else denies(clause)


def tells_cause(text: str) -> bool:
    """Whether the text tells why, and not only that it ended."""
    return _CAUSES.search(text) is not None


def clauses(text: str) -> list[str]:
    """What is said one after the other: `it says Killed, I did not do that` denies nothing of the first."""
    return _BETWEEN.split(text)


def undenied(text: str) -> str:
    """What the text says without what it says of what did not happen: `it was killed; dmesg has no entry of the OOM killer`."""
    return " ".join(one for sentence in clauses(text) for one in _PARTS.split(sentence) if not denies(one))


def told(lines: Iterable[LogLine]) -> tuple[LogLine, ...]:
    """The lines that tell of a crash."""
    return tuple(line for line in lines if line.kind == KIND and not denies(line.text))[:MOST]


def only_told(lines: Sequence[LogLine]) -> SoftError:
    """What a report of nothing but such words has to say."""
    return SoftError(
        stage="log",
        message=f"this text only mentions a crash (line {lines[0].line}): no line of a shell, a runtime or the kernel shows one",
        hint="Pass the output of the process that died, or its core.",
    )
