"""What a log had outlived: messages after which the tests passed, the program reached its end, or something else ended it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Optional

from msgspec.structs import replace

from crashkit.evidence.text import hearsay, log_signal, traceback
from crashkit.model import LogLine
from crashkit.naming.exceptions import is_of_own_code

_OF_NOTHING = "'NoneType' object"
"""What is not there: it may be what failed to be made."""
_STICKY = ("cuda-illegal", "cuda-launch", "cuda-code", "device-assert", "misaligned")
"""Beginnings of the kinds of lines after which no use of the GPU succeeds in that process."""
_TEST_PASSED = re.compile(r"^(?:\S{1,300} )?PASSED\b|\[ {6,8}OK \]|\.\.\. ok$|^ok$")
_LAST_WORDS = frozenset({"fatal-python-error", "jvm-fatal", "jvm", "go-panic", "asan"})
"""Kinds of lines that a process prints as its last, whether a signal follows or not."""
_PASSED = re.compile(
    r"^=* ?(?:\d+ \w+, )*\d+ passed\b|^OK(?: \(skipped=\d+\))?$|^\[  PASSED  \] \d+ tests?|\b100% tests passed\b|^test result: ok\."
)
_FAILED = re.compile(
    r"\b[1-9]\d* (?:failed|errors?)\b|^FAILED\b|\[  FAILED  \]|\btests failed\b|test result: FAILED|\b(?:crashed|[Aa]borted)\b|core dumped"
)
_SUMMARY = 40
"""Rows above a summary that belong to it."""
_FINISHED = re.compile(
    r"^Process finished with exit code 0\b|\bexited (?:normally|with (?:code |status )?(?:= )?0+)\b|^exit(?: code)?: 0$"
    r"|[Tt]raining (?:is )?(?:complete|finished|done)\b|\b(?:[Cc]ompleted|[Ff]inished) successfully\b"
)
_END = 3
"""Rows at the end of a log."""
_CHAINS = re.compile(r"During handling of the above exception|was the direct cause of the following")


def outlived(rows: Sequence[str], lines: tuple[LogLine, ...], never: Collection[str]) -> tuple[LogLine, ...]:
    """The lines of a log with these rows; those that had ended nothing say so. `never`: kinds that tell how a process ended."""
    passed, finished = _passed(rows, lines), _finished(rows)
    last = _raised_last(lines)

    def how(line: LogLine) -> Optional[str]:
        number = line.line or 0
        if line.kind == hearsay.KIND or not number:
            return None
        fatal = line.kind in _LAST_WORDS or log_signal.aborts(line) or "signal" in line.fields
        if number < passed and (not fatal or any(map(_TEST_PASSED.search, rows[number : passed - 1]))):
            return "the tests passed"
        if fatal or line.kind == traceback.KIND or line.kind in never:
            return None
        if number < finished and _did_more(line, rows[number : finished - 1]):
            return "the program reached its end"
        if (line.kind or "").startswith(_STICKY):
            return None
        if last is not None and last.line and number < last.line and line.process == last.process:
            return "another exception ended the program" if _did_more(line, rows[number : last.line - 1]) else None
        return None

    return tuple(replace(line, fields={**line.fields, "loosely": told}) if (told := how(line)) is not None else line for line in lines)


def _passed(rows: Sequence[str], lines: Sequence[LogLine]) -> int:
    """The number of the last row that tells of passed tests only, after all that is known; else 0."""
    passed = next((number for number, row in reversed([*enumerate(rows, 1)]) if _PASSED.search(row)), 0)
    failed = any(map(_FAILED.search, rows[max(0, passed - _SUMMARY) :]))
    return 0 if failed or any((line.line or 0) > passed for line in lines) else passed


def _finished(rows: Sequence[str]) -> int:
    return next((number for number, row in enumerate(rows, 1) if len(rows) - number < _END and _FINISHED.search(row)), 0)


def _raised_last(lines: Sequence[LogLine]) -> Optional[LogLine]:
    """The exception of the program's own that is the last of what is known."""
    last = max((line for line in lines if line.line), key=lambda line: line.line or 0, default=None)
    if last is None or last.kind != traceback.KIND or not is_of_own_code(last.fields.get("exception", "")):
        return None
    return None if _OF_NOTHING in last.text else last


def _did_more(line: LogLine, between: Sequence[str]) -> bool:
    """Whether these rows, which follow the line, tell of something else than the same failure."""
    if any(map(_CHAINS.search, between)):
        return False
    return any(row.strip() and not row.startswith((" ", "Traceback")) and line.text not in row for row in between)
