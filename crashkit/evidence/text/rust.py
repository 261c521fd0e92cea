"""Panics of Rust, with their backtraces (std::panicking, RUST_BACKTRACE=1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from crashkit.evidence.text.reader import Account, Format, Note, Reader, Telling
from crashkit.model import Address, NativeFrame, Thread
from crashkit.naming.mangled import demangled

MOST_FRAMES = 1000
_MOST_MESSAGE = 20
"""Lines of a message that are looked at."""

_HEAD = re.compile(r"thread '(?P<thread>[^']*)'(?: \(\d+\))? panicked at (?:'(?P<message>.{0,2000})', )?(?P<place>[^\s'][^']*?:\d+:\d+):?$")
_FRAME = re.compile(r"^ *(?P<level>\d+): +(?:(?P<pc>0x[0-9a-f]+) - )?(?P<function>\S.*)$")
_AT = re.compile(r"^ +at (?P<file>\S.*?):(?P<line>\d+)(?::\d+)?$")
_END = re.compile(r"^note: (?:run with|Some details are omitted)")


class Panic(Reader):
    """One panic: its place, its message, the stack if there is one."""

    def __init__(self, match: re.Match[str]) -> None:
        self.fields = {name: value for name, value in match.groupdict().items() if value}
        self._headline = match[0]
        self._lines = 0
        self._in_stack = False
        self._frames: list[NativeFrame] = []

    def feed(self, text: str) -> bool:
        """Take the next line; see `Reader.feed`."""
        if self.ended or _HEAD.search(text):
            return False
        if text.strip() == "stack backtrace:":
            self._in_stack = True
        elif _END.match(text):
            self.ended = True
        elif not self._in_stack:
            return self._say(text)
        elif match := _FRAME.match(text):
            if len(self._frames) < MOST_FRAMES:
                pc = Address(int(match["pc"], 16)) if match["pc"] else None
                self._frames.append(NativeFrame(function=demangled(match["function"]), pc=pc, trust="text"))
        elif match := _AT.match(text):
            if self._frames:
                last = self._frames[-1]
                self._frames[-1] = NativeFrame(
                    function=last.function, pc=last.pc, file=match["file"], line=int(match["line"]), trust="text"
                )
        else:
            return text.startswith("  ")
        return True

    def _say(self, text: str) -> bool:
        """The message follows in lines of its own since Rust 1.73."""
        self._lines += 1
        if not self.fields.get("message") and text.strip():
            self.fields["message"] = text.strip()
            return True
        return self._lines < _MOST_MESSAGE and text.startswith(" ")

    def finish(self) -> tuple[Note, ...]:
        """One note of kind `rust-panic`."""
        return (Note(self._headline, "rust-panic", self.fields),)

    def thread(self) -> Thread:
        """The thread that panicked."""
        return Thread(name=self.fields.get("thread"), crashed=True, frames=tuple(self._frames))


def _opens(text: str) -> Optional[Panic]:
    match = _HEAD.search(text)
    return Panic(match) if match else None


def _tells(panics: Sequence[tuple[str, Panic]]) -> Account:
    """Use the first panic with a stack; a panic is an exception until the process aborts."""
    thread = next((panic.thread() for _, panic in panics if panic.thread().frames), None)
    if thread is None:
        return Account(is_evidence=bool(panics))
    return Account(telling=Telling.EXCEPTION, threads=(thread,), is_evidence=True)


FORMAT = Format(openers=(" panicked at ",), opens=_opens, tells=_tells, source="log", kinds=frozenset({"rust-panic"}))
