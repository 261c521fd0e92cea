"""What `py-spy dump` prints of a process: the stack of each thread, innermost frame first. Source: py-spy's src/dump.rs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from crashkit.evidence.text.reader import Account, Format, Reader, Telling, threads_left_out
from crashkit.model import Address, Frame, NativeFrame, PythonFrame, Thread

MOST_THREADS = 1000
MOST_FRAMES = 1000

_HEAD = re.compile(r'^Thread (?P<ident>0x[0-9A-Fa-f]{1,16}|\d{1,19}) \((?:idle|active)(?P<gil>\+gil)?\)(?:: "(?P<name>[^"]{0,200})")?$')
_LINE = re.compile(r"^ {1,4}(?P<function>\S.{0,400}?) \((?P<file>[^()]{1,1000}):(?P<line>\d{1,9})\)$")
_NATIVE = re.compile(r"^ {1,4}(?P<function>\S.{0,400}) \((?P<module>[^\s()]{1,1000})\)$")
# Native frames have a line, too, where debug info tells it. A script may have no ending, code that no file has is of `<string>`.
_PYTHON_FILE = re.compile(r"(?:.*[/\\])?[^/\\.]*|.*\.py[a-z]?|<.*>")
# With --locals.
_VARIABLE = re.compile(r"^ {5,12}(?:Arguments|Locals):$|^ {8,20}\w{1,200}: ")


class Dump(Reader):
    """The threads of one process."""

    def __init__(self) -> None:
        self.left_out = 0
        """Threads beyond MOST_THREADS."""
        self._heads: list[re.Match[str]] = []
        self._frames: list[list[Frame]] = []

    def feed(self, text: str) -> bool:
        """Take the next line; see `Reader.feed`."""
        if match := _HEAD.match(text):
            if len(self._heads) < MOST_THREADS:
                self._heads.append(match)
                self._frames.append([])
            else:
                self.left_out += 1
            return True
        if not self._heads:
            return False
        frame = _frame(text)
        if frame is None:
            return not text.strip() or _VARIABLE.match(text) is not None
        if not self.left_out and len(self._frames[-1]) < MOST_FRAMES:
            self._frames[-1].append(frame)
        return True

    def threads(self) -> tuple[Thread, ...]:
        """In the order of the text. No thread crashed."""
        knows_gil = any(head["gil"] for head in self._heads)
        return tuple(
            Thread(
                tid=None if _is_pthread(head) else int(head["ident"]),
                pthread=Address(int(head["ident"], 16)) if _is_pthread(head) else None,
                name=head["name"],
                holds_gil=bool(head["gil"]) if knows_gil else None,
                frames=tuple(frames),
            )
            for head, frames in zip(self._heads, self._frames, strict=True)
        )


def _is_pthread(head: re.Match[str]) -> bool:
    """py-spy writes the thread's id where the system tells it, and else pthread_self() in hexadecimal digits."""
    return head["ident"].startswith("0x")


def _frame(text: str) -> Optional[Frame]:
    if match := _LINE.match(text):
        if _PYTHON_FILE.fullmatch(match["file"]) is None:
            return NativeFrame(function=match["function"], file=match["file"], line=int(match["line"]), trust="text")
        return PythonFrame(function=match["function"], file=match["file"], line=int(match["line"]), origin="py-spy")
    if match := _NATIVE.match(text):
        return NativeFrame(function=match["function"], module=match["module"], trust="text")
    return None


def _opens(text: str) -> Optional[Dump]:
    dump = Dump()
    return dump if dump.feed(text) else None


def _tells(texts: Sequence[tuple[str, Dump]]) -> Account:
    """Use the dump with the most threads."""
    dumps = [dump for _, dump in texts if any(thread.frames for thread in dump.threads())]
    if not dumps:
        return Account()
    shown = max(dumps, key=lambda dump: len(dump.threads()))
    return Account(
        telling=Telling.THREADS, threads=shown.threads(), stacks="python", is_evidence=True, soft_errors=threads_left_out(shown.left_out)
    )


FORMAT = Format(openers=(" (idle", " (active"), opens=_opens, tells=_tells)
