"""Stacks printed by gdb (`bt`, `thread apply all bt`, libpython.py's `py-bt`), parsed line by line."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Optional

from crashkit.evidence.text import glibc_backtrace
from crashkit.evidence.text.native_backtrace import printed_native
from crashkit.evidence.text.reader import Account, Body, Format, Note, Reader, Telling, threads_left_out
from crashkit.evidence.text.sanitizer import printed_frame
from crashkit.model import Address, ElidedFrames, Frame, NativeFrame, PythonFrame, Thread
from crashkit.naming.functions import plain, printed_name
from crashkit.naming.machinery import (
    SIGNAL_FRAME,
    as_signal_frame,
    is_fatal_error,
    is_of_c_library,
    machinery_end,
    printed_signal_frame,
)
from crashkit.naming.signals import signal_name

MOST_THREADS = 1000
MOST_FRAMES = 1000
FEWEST_REPEATED = 1000
"""Frames that someone left out are a cycle from this number on: Python's own recursion repeats functions, too."""
DEEP = 5000
"""Frames that only a recursion reaches."""

_PROMPT = re.compile(r"^(?:(?:\( ?gdb ?\)|gdb-peda\$|pwndbg>|gef➤) ?)+")
_LINKED = re.compile(r"^https://github\.com/[\w.-]{1,100}/[\w.-]{1,100}/issues/(\d{1,4}) +(?=\S)")
"""GitHub makes links of the numbers of frames, and some programs copy them so."""
_THREAD = re.compile(
    r"^Thread (?P<number>\d{1,9}) \((?:Thread 0x(?P<ident>[0-9a-f]{1,16}) )?\(?LWP (?P<lwp>\d{1,9})\)?(?: \"(?P<name>[^\"]*)\")?\)?.*:?$"
)
_CURRENT = re.compile(r"^\[Current thread is (?P<number>\d{1,9}) \(.{0,100}?LWP (?P<lwp>\d{1,9}).*\]$")
_SIGNAL = re.compile(r"^(?:Program|Thread (?P<number>\d+) .*?) (?:terminated with|received) signal (?P<signal>SIG\w+), (?P<text>.*)$")
_STOPPED = re.compile(r"^(?:0x(?P<pc>[0-9a-f]{1,16}) in )?(?P<rest>[A-Za-z_][^\s(]{0,400} \(.*\)(?: at \S.*| from \S.*)?)$")
"""Where it stopped, without a number."""
_STOPPED_IN = re.compile(r"^0x(?P<pc>[0-9a-f]{1,16}) in (?P<rest>[A-Za-z_(].{1,2000}\) \(\)(?: from \S.*)?)$")
"""The same in a function of C++ without debug information: its whole declaration stands for its name."""
_STOPPED_PART = re.compile(r"^(?:0x[0-9a-f]{1,16} in )?[A-Za-z_][^\s(]{0,400} \([^()]*,? ?$")
_MOST_PARTS = 8
"""Lines that one such line is broken into."""
_FRAME = re.compile(r"^#(?P<level>\d{1,9}) +(?:0x(?P<pc>[0-9a-f]{1,16}) (?:in {1,2})?)?(?P<rest>\S.*)$")
# pwndbg's and GEF's own display of the stack.
_DISPLAYED = re.compile(
    r"^ {0,20}(?:► |→ )?(?:f )?\[?#?(?P<level>\d{1,4})\]? +0x(?P<pc>[0-9a-f]{1,16}) (?:→ )?(?P<rest>[^\s+]+)(?:\+(?:0x)?[0-9a-f]+)?$"
)
_AT = re.compile(r"^(?=.*:\d{1,9}$)(?P<call>.*\)) at (?P<file>\S.*):(?P<line>\d{1,9})$", re.DOTALL)
# gdb 8.0 and 8.1 put a library behind `at`, and nothing in front of the arguments of a function without a name.
_FROM = re.compile(r"^(?P<call>.*\)) (?:from (?P<module>\S.*)|at (?P<library>/\S{1,1000}\.so[.\d]{0,40}))$", re.DOTALL)
_OF_CHROMIUM = re.compile(r"^(?P<call>.{1,2000}) \[(?P<file>[^\s\[\]:]{1,1000}):(?P<line>\d{1,9})(?::\d{1,9})?\]$", re.DOTALL)
"""`base::Run() [../../base/run.cc:45:2]`."""
_REGISTERS = re.compile(r"^ {1,3}(?:ip: (?P<pc>[0-9a-f]{16})|(?:r\d{1,2}|[a-z]{2,3}): [0-9a-f]{16})\b")
"""Chromium prints them below its stack, whose frames mostly have no names: `ip` tells which of them failed."""
_CALL = re.compile(r"^(?=.*\)$)(?P<function>.*?) \((?P<args>.*)\)$", re.DOTALL)
# A sanitizer's frame, whose report has lost its head.
_OF_SANITIZER = re.compile(r"^.+ (?:[^\s()]+:\d{1,9}|\(/[^\s()]+\+0x[0-9a-f]{1,16}\)(?: \(BuildId: \w+\))?)$")
_NAMELESS = re.compile(r"^\((?P<module>/[^\s()]+)\+(?P<offset>0x[0-9a-f]{1,16})\)$")
_PYTHON = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d{1,9}), in (?P<function>.*)$')
_PYTHON_HEAD = "Traceback (most recent call first):"
_MOST_SAYING = 12
"""Innermost frames among which a function that ends the process is looked for."""
_STRING = re.compile(r'"([^"]{1,1000})"')
_NOISE = re.compile(
    r"^(?:\[New LWP|\[Thread debugging|Using host|warning: |Downloading |--Type <RET>|\(More stack frames|Backtrace stopped|$)"
)


class GdbStacks(Reader):
    """The stacks of one gdb session."""

    def __init__(self) -> None:
        self.signal: Optional[str] = None
        self._current: Optional[int] = None
        self._threads: list[_Stack] = []
        self._in_python = False
        self._stops = False
        """Whether the last line told of a signal: the next one tells where."""
        self._parts: list[str] = []
        """What is known of that line, of which more follows."""
        self._stopped: Optional[tuple[Optional[str], str]] = None
        self.left_out = 0
        """Threads beyond MOST_THREADS."""
        self._left_out = False
        """Whether the current thread is one too many."""

    def feed(self, text: str) -> bool:
        """Take the next line; see `Reader.feed`."""
        text = _LINKED.sub(r"#\1 ", _PROMPT.sub("", text))
        if match := _FRAME.match(text) or _DISPLAYED.match(text):
            return self._frame(match)
        if self._feed_head(text):
            return True
        if self._threads and (match := _REGISTERS.match(text)):
            self._threads[-1].fault = self._threads[-1].fault or match["pc"]
            return True
        if text == _PYTHON_HEAD:
            self._in_python = True
            return bool(self._threads)
        if self._stops and self._feed_stop(text):
            return True
        if self._in_python:
            return self._feed_python(text)
        if self._continues(text):
            return True
        return bool(_NOISE.match(text)) or text in ("bt", "where", "py-bt", "source libpython.py") or text.startswith("thread apply")

    def _feed_stop(self, text: str) -> bool:
        """Where it stopped: on one line, or broken between its arguments."""
        parts = [*self._parts, text.strip() if self._parts else text]
        whole = " ".join(parts)
        self._parts = []
        if match := _STOPPED.match(whole) or _STOPPED_IN.match(whole):
            self._stopped, self._stops = (match["pc"], match["rest"]), False
        elif _STOPPED_PART.match(whole) and len(parts) < _MOST_PARTS:
            self._parts = parts
        else:
            self._stops = len(parts) == 1
            return False
        return True

    def _feed_head(self, text: str) -> bool:
        if match := _THREAD.match(text):
            self._left_out = len(self._threads) >= MOST_THREADS
            self.left_out += self._left_out
            if not self._left_out:
                self._threads.append(_Stack(int(match["number"]), int(match["lwp"]), match["name"], match["ident"]))
        elif match := _CURRENT.match(text):
            self._current = int(match["lwp"])
        elif match := _SIGNAL.match(text):
            self.signal, self._stops, self._parts = match["signal"], True, []
        else:
            return False
        self._in_python = False
        return True

    def _frame(self, match: re.Match[str]) -> bool:
        level = int(match["level"])
        self._in_python = False
        if self._left_out:
            return True
        if not self._threads or (level == 0 and self._threads[-1].frames):
            if len(self._threads) >= MOST_THREADS:
                self._left_out = True
                self.left_out += 1
                return True
            self._threads.append(_Stack(None, self._current, None))
        self._threads[-1].levels.append(level)
        if len(self._threads[-1].frames) < MOST_FRAMES:
            self._threads[-1].frames.append((match["pc"], match["rest"]))
        return True

    def _continues(self, text: str) -> bool:
        """Whether this indented line continues the last frame."""
        if not text.startswith("  ") or not self._threads or not self._threads[-1].frames:
            return False
        frames = self._threads[-1].frames
        pc, rest = frames[-1]
        if rest.count("(") <= rest.count(")") and not text.lstrip().startswith(("at ", "from ")):
            # The frame is whole: these are gdb's own words, such as how to let it load a script.
            return False
        if len(rest) < 1 << 14:
            frames[-1] = (pc, f"{rest} {text.strip()}")
        return True

    def _feed_python(self, text: str) -> bool:
        if match := _PYTHON.match(text):
            frame = PythonFrame(function=match["function"], file=match["file"], line=int(match["line"]), origin="libpython")
            self._threads[-1].pythons.append(frame)
            return True
        if text.startswith("    ") and self._threads[-1].pythons:
            last = self._threads[-1].pythons[-1]
            self._threads[-1].pythons[-1] = PythonFrame(
                function=last.function, file=last.file, line=last.line, source=text.strip(), origin="libpython"
            )
            return True
        return text.startswith("  ")

    def finish(self) -> tuple[Note, ...]:
        """What the functions that ended the process had to say, of which gdb shows the arguments."""
        crashed = next((thread for thread in self.threads() if thread.crashed), None)
        frames = itertools.islice(crashed.natives(), _MOST_SAYING) if crashed is not None else ()
        return tuple(itertools.islice((Note(text, "process-end", classified=True) for text in map(_last_words, frames) if text), 1))

    def threads(self) -> tuple[Thread, ...]:
        """In the order of the text. Frames that gdb prints twice (on stopping, then for bt) are taken once."""
        stacks = self._merged() or self._of_stop()
        crashed = self._crashed(stacks)
        return tuple(stack.thread(stack is crashed) for stack in stacks)

    def _of_stop(self) -> list[_Stack]:
        """The only frame that is known, where nobody asked gdb for the stack."""
        if self._stopped is None:
            return []
        stack = _Stack(None, self._current, None)
        stack.frames, stack.levels = [self._stopped], [0]
        return [stack]

    def _merged(self) -> list[_Stack]:
        kept: list[_Stack] = []
        for stack in self._threads:
            twin = next((other for other in kept if other.frames[:1] == stack.frames[:1] and None in (other.lwp, stack.lwp)), None)
            if twin is None:
                kept.append(stack)
            else:
                twin.absorb(stack)
        return [stack for stack in kept if stack.frames]

    def _crashed(self, stacks: list[_Stack]) -> Optional[_Stack]:
        for chosen in (
            lambda stack: stack.lwp is not None and stack.lwp == self._current,
            lambda stack: any(SIGNAL_FRAME in rest for _, rest in stack.frames),
            lambda stack: machinery_end([rest.partition(" (")[0] for _, rest in stack.frames]) > 0,
            lambda stack: stack.number == 1,
        ):
            if found := next((stack for stack in stacks if chosen(stack)), None):
                return found
        return stacks[0] if len(stacks) == 1 else None


class _Stack:
    def __init__(self, number: Optional[int], lwp: Optional[int], name: Optional[str], ident: Optional[str] = None) -> None:
        self.number = number
        self.ident = ident
        self.lwp = lwp
        self.name = name
        self.frames: list[tuple[Optional[str], str]] = []
        self.levels: list[int] = []
        self.fault: Optional[str] = None
        """Where the thread was at the signal, where registers below the stack tell it."""
        self.pythons: list[PythonFrame] = []

    def absorb(self, other: _Stack) -> None:
        self.number = self.number or other.number
        self.lwp = self.lwp or other.lwp
        self.ident = self.ident or other.ident
        self.name = self.name or other.name
        if len(other.frames) > len(self.frames):
            self.frames, self.levels = other.frames, other.levels
        self.pythons = self.pythons or other.pythons

    def thread(self, crashed: bool) -> Thread:
        frames: tuple[Frame, ...] = self._natives()
        frames = (*self._above(), *frames[: self._gap()], *self._elided(), *frames[self._gap() :])
        pthread = Address(int(self.ident, 16)) if self.ident else None
        return Thread(tid=self.lwp, name=self.name, crashed=crashed, pthread=pthread, frames=frames, python_frames=tuple(self.pythons))

    def _natives(self) -> tuple[NativeFrame, ...]:
        frames = [_frame(pc, rest) for pc, rest in self.frames]
        # LLVM's handler and Chromium's number the frames as gdb does, and so does FreeCAD's, which leaves itself out.
        if self.levels[:1] == [0]:
            by_handler = is_of_c_library(frames[0]) and glibc_backtrace.FRAME.match(self.frames[0][1]) is not None
            left = printed_signal_frame(frames, by_handler)
            if self.fault and (at := next((index for index, frame in enumerate(frames) if frame.pc == int(self.fault, 16)), 0)):
                left = at - 1
            if left is not None:
                frames[left] = as_signal_frame(frames[left])
        return tuple(frames)

    def _gap(self) -> int:
        """Where frames are left out, by their numbers; behind the last frame if nowhere."""
        pairs = itertools.pairwise(self.levels)
        return next((index for index, (one, other) in enumerate(pairs, 1) if other > one + 1), len(self.frames))

    def _above(self) -> tuple[ElidedFrames, ...]:
        """What stands for the innermost frames, where only outer ones were quoted: very many are a recursion, and these its functions."""
        count = self.levels[0] if self.levels else 0
        names = [name for pc, rest in self.frames[:8] if (name := _frame(pc, rest).function)]
        return (ElidedFrames(count=count, cycle=tuple(dict.fromkeys(names)) if count >= DEEP else ()),) if count else ()

    def _elided(self) -> tuple[ElidedFrames, ...]:
        """What stands for them: with the cycle, where few functions repeat before the gap."""
        at = self._gap()
        if at >= min(len(self.frames), len(self.levels)):
            return ()
        names = [_frame(pc, rest).function or "" for pc, rest in self.frames[max(0, at - 8) : at]]
        cycle = tuple(dict.fromkeys(names))
        count = self.levels[at] - self.levels[at - 1] - 1
        repeats = count >= FEWEST_REPEATED and len(names) == 8 and 2 * len(cycle) <= len(names)
        return (ElidedFrames(count=count, cycle=cycle if repeats else ()),)


def _opens(text: str) -> Optional[GdbStacks]:
    stacks = GdbStacks()
    return stacks if stacks.feed(text) else None


def _frame(pc: Optional[str], rest: str) -> NativeFrame:
    address = Address(int(pc, 16)) if pc else None
    if rest == SIGNAL_FRAME:
        return NativeFrame(function=rest, pc=address, trust="signal")
    file = line = module = None
    if match := _AT.match(rest) or _OF_CHROMIUM.match(rest):
        rest, file, line = match["call"], match["file"], int(match["line"])
    elif match := _FROM.match(rest):
        rest, module = match["call"], match["module"] or match["library"]
    elif _OF_SANITIZER.match(rest):
        return printed_frame(pc, rest)
    elif match := _NAMELESS.match(rest):
        return printed_native({"pc": f"0x{pc}" if pc else None, **match.groupdict()})
    elif match := glibc_backtrace.FRAME.match(rest):
        # FreeCAD's own handler has gdb's words and numbers before them.
        return printed_native(match.groupdict())
    match = _CALL.match(rest)
    function = match["function"] if match else rest
    args = _args(match["args"]) if match else {}
    return NativeFrame(function=printed_name(function), file=file, line=line, module=module, pc=address, trust="text", args=args)


def _last_words(frame: NativeFrame) -> Optional[str]:
    """The message that a function of glibc or CPython prints before abort(), from its arguments."""
    said = {name: match[1] for name, value in frame.args.items() if (match := _STRING.search(value))}
    name = plain(frame.function or "").lstrip("_")
    if name == "malloc_printerr":
        return said.get("str")
    if name.startswith("assert_fail") and "assertion" in said:
        place = f"{said.get('file', 'unknown')}:{frame.args.get('line', '').rpartition('=')[2] or 0}"
        return f"{place}: {said.get('function', 'unknown')}: Assertion `{said['assertion']}' failed."
    if "msg" in said and is_fatal_error(frame.function or ""):
        function = said.get("func") or said.get("prefix")
        return f"Fatal Python error: {function + ': ' if function else ''}{said['msg']}"
    return None


def _args(text: str) -> dict[str, str]:
    """`name=value` pairs; a signature without values (no debug info) has none."""
    return dict(re.findall(r"(?:^|, )([A-Za-z_]\w*)=((?:[^,{\"]|\"[^\"]*(?:\"|$)|\{[^}]*(?:\}|$))*)", text)[:32])


def _tells(sessions: Sequence[tuple[str, GdbStacks]]) -> Account:
    """Use the session with the most threads."""
    threads = max((session.threads() for _, session in sessions), key=len, default=())
    name = next((session.signal for _, session in sessions if session.signal), None)
    return Account(
        telling=Telling.NATIVE_THREADS if threads else Telling.NOTHING,
        threads=threads,
        stacks="native",
        signal=next((number for number in range(1, 65) if signal_name(number) == name), None),
        is_evidence=bool(sessions),
        soft_errors=threads_left_out(sum(session.left_out for _, session in sessions)),
    )


_BODY = Body(
    frame=re.compile(r"^\W{0,20}#[1-9]\d{0,6} {1,4}(?:0x[0-9a-f]{8,16} in )?[A-Za-z_?][^\n]{0,400} \(", re.MULTILINE),
    head="#0 ",
    reader=GdbStacks,
)
"""Its innermost frames are missing."""

FORMAT = Format(
    openers=("(LWP ", "#0  ", "#0 0x", "► ", "[#0]", "Program terminated with signal", " received signal "),
    opens=_opens,
    tells=_tells,
    source="gdb",
    body=_BODY,
    classifies_opener=True,
)
