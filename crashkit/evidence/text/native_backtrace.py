"""Native stacks that a process, a runtime or a crash reporter printed: one reader, and one `Layout` of patterns per format."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from crashkit.evidence.text.log_signal import named
from crashkit.evidence.text.reader import Account, Format, Note, Reader, Telling
from crashkit.model import Address, ElidedFrames, NativeFrame, Offset, Thread
from crashkit.naming.functions import printed_name
from crashkit.naming.machinery import as_signal_frame, printed_signal_frame
from crashkit.naming.mangled import demangled

MOST_FRAMES = 1000
MOST_THREADS = 1000
_LOADED_AT = re.compile(r"0x[0-9a-f]{1,16}")
"""What macOS prints in the place of a function that it does not know: where the module begins. The number behind it is the offset there."""


@dataclass(frozen=True)
class Layout:
    """How one format looks. The groups of the patterns are facts: `signal`, `number`, `address`, `pid`, `function`, `module`, `pc`..."""

    heads: tuple[re.Pattern[str], ...]
    """Lines with facts about the crash; one of them, or a frame, comes first."""
    frames: tuple[re.Pattern[str], ...]
    threads: tuple[re.Pattern[str], ...] = ()
    """Lines before the stack of another thread; groups `tid`, `name`, and `crashed` if the line says so."""
    between: Optional[re.Pattern[str]] = None
    """Lines without facts that belong to the text."""
    end: Optional[re.Pattern[str]] = None
    starts: tuple[re.Pattern[str], ...] = ()
    """What a first line must match; `heads` if empty."""
    kind: str = "process-end"
    """Kind of the note for the heads' facts."""
    fewest: int = 0
    """Texts with fewer frames and no facts are none of this format."""
    outermost_first: bool = False
    by_handler: bool = False
    """The stack of a signal is printed by a handler, and begins with its frames, or with the one by which it returns."""
    telling: Telling = Telling.NATIVE_THREADS
    facts: frozenset[str] = field(default_factory=lambda: frozenset({"signal", "number"}))
    """A text with one of these is about a crash."""
    of_process: bool = False
    """A text is about one process, whose pid is in its head: with another pid another crash begins."""


class Backtrace(Reader):
    """One text with native stacks."""

    def __init__(self, layout: Layout) -> None:
        self.fields: dict[str, str] = {}
        self._layout = layout
        self._headline = ""
        self._stacks: list[_Stack] = []

    def feed(self, text: str) -> bool:
        """Take the next line; see `Reader.feed`."""
        layout = self._layout
        if self.ended:
            return False
        if layout.end is not None and layout.end.match(text):
            self.ended = True
            return True
        if match := _first(layout.threads, text):
            found = match.groupdict()
            name = (found.get("name") or found.get("name2") or "").strip()
            self._open(_Stack(_number(found.get("tid")), name or None, bool(found.get("crashed")), found.get("index")))
            if found.get("crashed"):
                self._learn(match)
            return True
        if match := _first(layout.frames, text):
            return self._frame(match)
        if match := _first(layout.heads, text):
            if self._is_another(match):
                return False
            self._learn(match)
            return True
        return layout.between is not None and layout.between.match(text) is not None

    def _is_another(self, match: re.Match[str]) -> bool:
        """A signal after the stacks belongs to the next crash in the log."""
        told = match.groupdict()
        begins = ("signal", "number", "pid") if self._layout.of_process else ("signal", "number")
        return bool(self._stacks) and any(told.get(name) and name in self.fields for name in begins)

    def _learn(self, match: re.Match[str]) -> None:
        self._headline = self._headline or match.string.strip()
        for name, value in match.groupdict().items():
            if value and name != "crashed":
                self.fields.setdefault(name, value)

    def _frame(self, match: re.Match[str]) -> bool:
        if not self._stacks or (match.groupdict().get("level") == "0" and self._stacks[-1].frames):
            self._open(_Stack(None, None, not self._stacks))
        stack = self._stacks[-1]
        if not stack.frames and not self._layout.outermost_first:
            stack.above = _number(match.groupdict().get("level")) or 0
        if len(stack.frames) < MOST_FRAMES:
            stack.frames.append(printed_native(match.groupdict()))
        return True

    def _open(self, stack: _Stack) -> None:
        if len(self._stacks) < MOST_THREADS:
            self._stacks.append(stack)

    @property
    def signal(self) -> Optional[int]:
        """The signal that the text names."""
        return named(self.fields)

    @property
    def is_crash(self) -> bool:
        """Whether the text itself says that something crashed."""
        return any(name in self.fields for name in self._layout.facts)

    @property
    def process(self) -> Optional[int]:
        """See `Reader.process`."""
        return _number(self.fields.get("pid")) if self._layout.of_process and self.is_crash else None

    def finish(self) -> Optional[tuple[Note, ...]]:
        """One note with the facts; None for a text that turned out to be none."""
        frames = sum(len(stack.frames) for stack in self._stacks)
        if not self.is_crash and frames < (1 if self._headline else max(1, self._layout.fewest)):
            return None
        return (Note(self._headline, self._layout.kind, self.fields),) if self.is_crash else ()

    def threads(self, of_crash: bool = False) -> tuple[Thread, ...]:
        """In the order of the text; the first one crashed where no line says which did. Of those with numbers that one is cut off.

        `of_crash`: another text of this format says that something crashed.
        """
        stacks = [stack for stack in self._stacks if stack.frames]
        named = self.fields.get("thread")
        said = next((stack for stack in self._stacks if stack.crashed or (named is not None and stack.index == named)), None)
        numbered = any(stack.index is not None for stack in stacks)
        crashed = said or (None if numbered or not stacks else stacks[0])
        by_handler = self._layout.by_handler and (self.is_crash or of_crash)
        fault = _number(self.fields.get("fault_pc")) or 0
        return tuple(stack.thread(stack is crashed, self._layout.outermost_first, by_handler, fault) for stack in stacks)


class _Stack:
    def __init__(self, tid: Optional[int], name: Optional[str], crashed: bool, index: Optional[str] = None) -> None:
        self.tid, self.name, self.crashed, self.index = tid, name, crashed, index
        self.frames: list[NativeFrame] = []
        self.above = 0
        """Frames that were cut off above the first one, by its number."""

    def thread(self, crashed: bool, outermost_first: bool, by_handler: bool, fault: int) -> Thread:
        """`fault`: where the thread was at the signal; 0 if it is not told."""
        frames = self.frames[::-1] if outermost_first else self.frames[:]
        left = printed_signal_frame(frames, by_handler and crashed and not self.above)
        if crashed and fault and (at := next((index for index, frame in enumerate(frames) if frame.pc == fault), None)) is not None:
            left = at - 1 if at else None
        if left is not None:
            frames[left] = as_signal_frame(frames[left])
        above = (ElidedFrames(count=self.above),) if self.above else ()
        return Thread(tid=self.tid, name=self.name, crashed=crashed, frames=(*above, *frames))


def format_of(layout: Layout, openers: Sequence[str], source: str, classifies_opener: bool = True) -> Format[Any]:
    """The format with this layout. `openers`: fixed texts of which each first line contains one."""
    return Format(
        openers=tuple(openers),
        opens=_opener(layout),
        tells=_teller(layout),
        source=source,
        kinds=frozenset({layout.kind}),
        classifies_opener=classifies_opener,
    )


def _opener(layout: Layout) -> Callable[[str], Optional[Backtrace]]:
    def opens(text: str) -> Optional[Backtrace]:
        if layout.starts and _first(layout.starts, text) is None:
            return None
        backtrace = Backtrace(layout)
        return backtrace if backtrace.feed(text) else None

    return opens


def _teller(layout: Layout) -> Callable[[Sequence[tuple[str, Backtrace]]], Account]:
    def tells(texts: Sequence[tuple[str, Backtrace]]) -> Account:
        """Use the first text that names a signal, or else the one with most frames."""
        several = [text for _, text in texts]
        if not several:
            return Account()
        shown = next((text for text in several if text.is_crash and text.threads()), None)
        shown = shown or max(several, key=lambda text: sum(len(thread.frames) for thread in text.threads()))
        # Its head may have been written by another process, or by one with another prefix.
        threads = shown.threads(any(text.is_crash for text in several))
        return Account(
            telling=layout.telling if threads else Telling.NOTHING,
            threads=threads,
            stacks="native" if layout.telling is Telling.NATIVE_THREADS else None,
            signal=next((text.signal for text in several if text.signal is not None), None),
            is_evidence=True,
        )

    return tells


def _first(patterns: Sequence[re.Pattern[str]], text: str) -> Optional[re.Match[str]]:
    return next((match for pattern in patterns if (match := pattern.match(text))), None)


def _number(text: Optional[str]) -> Optional[int]:
    if not text:
        return None
    try:
        return int(text, 0)
    except ValueError:
        return None


def printed_native(found: dict[str, Optional[str]]) -> NativeFrame:
    """A frame from the groups of a pattern for frames."""
    function = printed_name((found.get("function") or "").strip()) or ""
    pc, line, offset, plus = found.get("pc"), found.get("line"), found.get("offset"), found.get("plus")
    if plus and _LOADED_AT.fullmatch(function):
        function, offset = "", f"{int(plus):x}"
    name = demangled(function)
    module = found.get("module")
    # An offset beside a name counts from the name's start, not from the module's.
    place = Offset(int(offset, 16)) if offset and not name else None
    return NativeFrame(
        function=name or None,
        file=found.get("file"),
        line=int(line) if line and line != "0" else None,
        module=module,
        offset=place,
        pc=Address(int(pc, 16)) if pc else None,
        trust="text",
    )
