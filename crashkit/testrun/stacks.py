"""Stacks of a process that hangs: written as faulthandler writes them, and found on stderr where faulthandler wrote them. Pure."""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Iterator, Mapping
from itertools import dropwhile
from types import FrameType
from typing import NamedTuple

_TIMEOUT = re.compile(r"^Timeout \((\d+):(\d\d):(\d\d(?:\.\d+)?)\)!$")
_OF_THE_DUMP = re.compile(r"^(?:Thread|Current thread) 0x[0-9a-f]+\b.*\(most recent call first\):$|^  (?:File \"|<|\.\.\.)|^$")
_NOT_THE_TEST = ("pytest_timeout.py", "crashkit/testrun/session.py")
"""Files whose frames wait for the timeout or dump the stacks."""


class Dump(NamedTuple):
    """What faulthandler wrote after `faulthandler_timeout`."""

    seconds: float
    text: str


def dump(first: threading.Thread, frames: Mapping[int, FrameType], seconds: float) -> str:
    """The stacks of all threads after `seconds`, that of `first` at the top, without the frames of those that look."""
    order = sorted(frames, key=lambda ident: ident != first.ident)
    head = f"Timeout ({seconds // 3600:.0f}:{seconds % 3600 // 60:02.0f}:{seconds % 60:02.0f})!"
    return "\n".join([head, *(text for ident in order if (text := _thread(ident, frames[ident])))])


def _thread(ident: int, frame: FrameType) -> str:
    entries = [(frame.f_code, line) for frame, line in traceback.walk_stack(frame)]
    rest = list(dropwhile(lambda entry: entry[0].co_filename.endswith(_NOT_THE_TEST), entries))
    if len(rest) < len(entries) and rest and rest[-1][0].co_name == "_bootstrap":
        return ""  # the thread of the timer
    lines = [f'  File "{code.co_filename}", line {line} in {code.co_name}' for code, line in rest]
    return "\n".join([f"Thread 0x{ident:016x} (most recent call first):", *lines, ""])


def on_stderr(text: str) -> Iterator[Dump]:
    """The dumps that faulthandler wrote after a timeout."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if not (match := _TIMEOUT.match(line)):
            continue
        end = index + 1
        while end < len(lines) and _OF_THE_DUMP.match(lines[end]):
            end += 1
        hours, minutes, seconds = match.groups()
        yield Dump(int(hours) * 3600 + int(minutes) * 60 + float(seconds), "\n".join(lines[index:end]).rstrip() + "\n")
