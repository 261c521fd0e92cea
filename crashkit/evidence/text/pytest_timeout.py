"""The stacks that pytest-timeout prints of each thread but its own (pytest_timeout.py: dump_stacks), parsed line by line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from crashkit.evidence.text.reader import Account, Format, Reader, Telling, threads_left_out
from crashkit.model import PythonFrame, Thread

MOST_THREADS = 1000
MOST_FRAMES = 1000

_HEAD = re.compile(r"^~{3,400} Stack of (?P<name>.{1,200}) \((?P<ident>\d{1,20})\) ~{3,400}$")
_FRAME = re.compile(r'^ {0,4}File "(?P<file>[^"]*)", line (?P<line>\d{1,9}), in (?P<function>.*)$')
_MARKS = re.compile(r"^[ ~^]*$")


class Stacks(Reader):
    """The stacks of all threads of one process, outermost frame first."""

    def __init__(self) -> None:
        self.left_out = 0
        """Threads beyond MOST_THREADS."""
        self._threads: list[tuple[int, str, list[PythonFrame]]] = []

    def feed(self, text: str) -> bool:
        """Take the next line; see `Reader.feed`."""
        if match := _HEAD.match(text):
            if len(self._threads) < MOST_THREADS:
                self._threads.append((int(match["ident"]), match["name"], []))
            else:
                self.left_out += 1
            return True
        if not self._threads:
            return False
        frames = self._threads[-1][2]
        if match := _FRAME.match(text):
            if not self.left_out and len(frames) < MOST_FRAMES:
                frames.append(PythonFrame(function=match["function"], file=match["file"], line=int(match["line"]), origin="traceback"))
            return True
        if text.startswith("    ") and frames:
            if frames[-1].source is None and not _MARKS.match(text):
                last = frames[-1]
                frames[-1] = PythonFrame(function=last.function, file=last.file, line=last.line, source=text.strip(), origin="traceback")
            return True
        self.ended = True
        return False

    def threads(self) -> tuple[Thread, ...]:
        """In the order of the text, innermost frame first. No thread crashed."""
        return tuple(Thread(tid=ident, name=name, frames=tuple(frames[::-1])) for ident, name, frames in self._threads)


def _opens(text: str) -> Optional[Stacks]:
    stacks = Stacks()
    return stacks if stacks.feed(text) else None


def _tells(texts: Sequence[tuple[str, Stacks]]) -> Account:
    """Use the last text: with its thread method, pytest-timeout ended the run after it."""
    if not texts:
        return Account()
    last = texts[-1][1]
    return Account(
        telling=Telling.THREADS, threads=last.threads(), stacks="python", is_evidence=True, soft_errors=threads_left_out(last.left_out)
    )


FORMAT = Format(openers=("~ Stack of ",), opens=_opens, tells=_tells)
