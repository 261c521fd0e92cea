"""What others say of the same crash, to compare with: faulthandler's dump and a plain gdb's backtrace. Pure parsers of their text."""

from __future__ import annotations

import re
from typing import NamedTuple

SIGNAL_FRAME = "<signal handler called>"


class Line(NamedTuple):
    function: str
    line: int
    file: str


_THREAD = re.compile(r"^(Current thread|Thread) 0x([0-9a-f]+)(?: \[.*\])? \(most recent call first\):$")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')


def faulthandler(text: str) -> dict[int, list[Line]]:
    """Python frames of each thread, innermost first, by pthread id, from the last dump in the text.

    A thread without Python frames has an empty list.
    """
    threads: dict[int, list[Line]] = {}
    current: list[Line] | None = None
    for line in text.splitlines():
        if line.startswith("Fatal Python error: "):
            threads = {}
        header = _THREAD.match(line)
        frame = _FRAME.match(line)
        if header:
            current = threads[int(header[2], 16)] = []
        elif frame and current is not None:
            current.append(Line(frame["function"], int(frame["line"]), frame["file"]))
        elif not line.startswith("  "):
            current = None
    return threads


def alone(text: str) -> list[Line]:
    """The Python frames of the crashed thread, where faulthandler prints no other and no id: in a free-threaded 3.14."""
    dump = text.rpartition("\nStack (most recent call first):\n")[2]
    found = [_FRAME.match(line) for line in dump.partition("\n\n")[0].splitlines()]
    return [Line(frame["function"], int(frame["line"]), frame["file"]) for frame in found if frame]


def faulting_thread(text: str) -> int | None:
    """The pthread id of faulthandler's `Current thread`; None where the crash happened outside Python's threads."""
    found = [int(m[2], 16) for m in map(_THREAD.match, text.splitlines()) if m and m[1] == "Current thread"]
    return found[-1] if found else None


_GDB_THREAD = re.compile(r"^Thread \d+ \((?:Thread 0x[0-9a-f]+ )?\(?(?:LWP|process) (\d+)\)?.*\):$")
_GDB_FRAME = re.compile(r"^#\d+ +(?:0x[0-9a-f]+ in )?(.*)$")


def backtrace(text: str) -> dict[int, list[str]]:
    """Function names of each thread, innermost first, by LWP, from `thread apply all bt`.

    `??` stays `??`, a signal frame is `<signal handler called>`, inlined functions are frames of their own.
    """
    threads: dict[int, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        header = _GDB_THREAD.match(line)
        frame = _GDB_FRAME.match(line)
        if header:
            current = threads[int(header[1])] = []
        elif frame and current is not None:
            current.append(_function(frame[1]))
    return threads


def _function(text: str) -> str:
    """The name before the argument list: the first parenthesis after a space that stands outside all brackets."""
    if text.startswith(SIGNAL_FRAME):
        return SIGNAL_FRAME
    depth = 0
    operator = re.compile(r"\boperator *(?:<=>|<<=|>>=|<<|>>|<=|>=|->\*|->|<|>|\(\))")
    at = 0
    while at < len(text):
        symbol = operator.match(text, at)
        if symbol and (at == 0 or not (text[at - 1].isalnum() or text[at - 1] == "_")):
            at = symbol.end()
            continue
        character = text[at]
        if depth == 0 and text.startswith(" (", at):
            return text[:at]
        depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(character, 0)
        at += 1
    return text
