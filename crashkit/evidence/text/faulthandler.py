"""Dumps of CPython's faulthandler, 3.6 to 3.14 (Python/traceback.c, Modules/faulthandler.c), parsed line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Optional

from msgspec.structs import replace

from crashkit.evidence.text.reader import Account, Body, Format, Note, Reader, Telling, threads_left_out
from crashkit.model import Address, ElidedFrames, Frame, NativeFrame, Offset, PythonFrame, PythonRuntime, SoftError, Thread
from crashkit.naming.machinery import as_signal_frame, printed_signal_frame
from crashkit.naming.mangled import demangled

MOST_THREADS = 1000
MOST_FRAMES = 1000

SIGNALS = {
    "Segmentation fault": 11,
    "Aborted": 6,
    "Bus error": 7,
    "Floating point exception": 8,
    "Floating-point exception": 8,
    "Illegal instruction": 4,
}
"""Signal numbers by the texts of Modules/faulthandler.c."""

_FATAL = re.compile(r"(?:(?:Fatal )?Python error|(?P<windows>Windows fatal exception)): (?P<message>.*)$")
_TIMEOUT = re.compile(r"^Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!$")
_THREAD = re.compile(
    r"^(?P<current>Current thread|Thread) 0x(?P<ident>[0-9a-f]{1,16})(?: \[(?P<name>[^\]]*)\])? \(most recent call first\):$"
)
# The second form is PyPy's: rpython/rlib/rvmprof/src/shared.
_STACK = re.compile(r"^Stack \(most recent call first(?:, approximate line numbers)?\):$")
_C_STACK = re.compile(r"^Current thread's C stack trace \(most recent call first\):$")
# With two spaces, unless whoever posted it lost them.
_FRAME = re.compile(r'^ {0,4}File "(?P<file>.*)", line (?P<line>\d{1,9}|\?\?\?) in (?P<function>.*)$')
_BINARY = re.compile(
    r"""^  Binary file (?:"(?P<file>[^"]*)"|'<unknown>')"""
    r"""(?:, at (?P<symbol>[^+\s]*)(?:\+0x(?P<offset>[0-9a-f]{1,16}))?)? ?\[0x(?P<address>[0-9a-f]{1,16})\]$"""
)
_BETWEEN = re.compile(
    r"^(?:|Python runtime state: .*|  <no Python frame>| {0,4}Garbage-collecting|  \.\.\.|\.\.\.|  <truncated rest of calls>"
    r"|  <cannot get C stack on this system>|  <system returned no stack trace>|Extension modules: .*|  <.*>)$"
)
_COLLECTING = re.compile(r"^ {0,4}Garbage-collecting$")
"""Below the head of the thread that failed, since 3.10: `dump_traceback`, Python/traceback.c."""
_STATE = re.compile(r"^Python runtime state: (?P<state>.*)$")


class FaultDump(Reader):
    """One faulthandler dump."""

    def __init__(self) -> None:
        self.message: Optional[str] = None
        self.windows = False
        self.state: Optional[str] = None
        self.timeout = False
        self.gil_disabled = False
        self.left_out = 0
        """Threads beyond MOST_THREADS."""
        self._blocks: list[_Block] = []
        self._c_stack: Optional[list[Frame]] = None

    @property
    def signal(self) -> Optional[int]:
        """The signal that ended the process; SIGABRT for a fatal error that names no signal."""
        if self.message is None or self.windows:
            return None
        # What follows may stand in the same line, where somebody lost the line ends.
        return next((number for text, number in SIGNALS.items() if self.message.startswith(text)), 6)

    @property
    def crashed_threads(self) -> frozenset[int]:
        """Those of a fatal dump."""
        return frozenset(block.ident for block in self._blocks if block.ident is not None and self.message is not None)

    @property
    def crashed_stack(self) -> tuple[tuple[Optional[str], Optional[int]], ...]:
        """That of the current thread of a fatal dump; see `Reader.crashed_stack`."""
        current = next((block for block in self._blocks if block.current and self.message is not None), None)
        return tuple((frame.file, frame.line) for frame in current.frames if isinstance(frame, PythonFrame)) if current else ()

    def feed(self, text: str) -> bool:
        """Take the next line; see `Reader.feed`."""
        if self.ended:
            return False
        if match := _FATAL.search(text):
            if self.message is not None or self._blocks:
                return False
            self.message = match["message"]
            self.windows = match["windows"] is not None
            return True
        if _TIMEOUT.match(text):
            if self.timeout or self._blocks:
                return False
            return self._take_timeout()
        return self._feed_stack(text)

    def _take_timeout(self) -> bool:
        self.timeout = True
        return True

    def _feed_stack(self, text: str) -> bool:
        if match := _THREAD.match(text):
            self._open(_Block(int(match["ident"], 16), match["name"] or None, match["current"] == "Current thread"))
            return True
        if _STACK.match(text):
            self._open(_Block(None, None, True))
            return True
        if _C_STACK.match(text):
            self._c_stack = []
            return True
        if match := _FRAME.match(text):
            return self.left_out > 0 or self._add(self._blocks[-1].frames if self._blocks else None, _python_frame(match))
        if match := _BINARY.match(text):
            return self._add(self._c_stack, _native_frame(match))
        if match := _STATE.match(text):
            self.state = match["state"]
        return self._feed_rest(text)

    def _feed_rest(self, text: str) -> bool:
        if text == "  ..." and self._blocks:
            self._blocks[-1].frames.append(ElidedFrames())
        if _COLLECTING.match(text) and self._blocks:
            self._blocks[-1].collecting = True
        self.gil_disabled = self.gil_disabled or "GIL is disabled" in text
        self.ended = text.startswith("Extension modules: ")
        return bool(_BETWEEN.match(text))

    def _open(self, block: _Block) -> None:
        if len(self._blocks) < MOST_THREADS:
            self._blocks.append(block)
        else:
            self.left_out += 1

    @staticmethod
    def _add(frames: Optional[list[Frame]], frame: Frame) -> bool:
        if frames is None:
            return False
        if len(frames) < MOST_FRAMES:
            frames.append(frame)
        return True

    def finish(self) -> Iterator[Note]:
        """Notes on the runtime state and a disabled GIL."""
        if self.state:
            yield Note(f"Python runtime state: {self.state}", "python-state", {"state": self.state})
        if self.gil_disabled:
            yield Note("<Cannot show all threads while the GIL is disabled>", "gil-disabled")

    def threads(self) -> tuple[Thread, ...]:
        """In the order of the dump. A dump after a crash outside Python marks no thread as crashed; the crashed thread's C stack, which
        3.14 prints, then becomes an additional thread. Of a dump that lost its head it is all there is."""
        c_stack = [frame for frame in self._c_stack or () if isinstance(frame, NativeFrame)]
        # It begins with the handler that printed it.
        if self.signal is not None and (left := printed_signal_frame(c_stack)) is not None:
            c_stack[left] = as_signal_frame(c_stack[left])
        told = tuple(block.thread(self.message is not None, c_stack) for block in self._blocks)
        if c_stack and not any(block.current for block in self._blocks):
            return (*told, Thread(crashed=self.signal is not None or not told, frames=tuple(c_stack)))
        return told

    def repeats(self, first: FaultDump) -> bool:
        """Whether this dump has the same threads as `first` and additionally a C stack.

        From 3.14 on a fatal error prints all threads and aborts, and the SIGABRT handler prints them again.
        """
        idents = [[block.ident for block in dump._blocks] for dump in (self, first)]
        return bool(self._c_stack) and not first._c_stack and idents[0] == idents[1]


class _Block:
    def __init__(self, ident: Optional[int], name: Optional[str], current: bool) -> None:
        self.ident = ident
        self.name = name
        self.current = current
        self.collecting = False
        self.frames: list[Frame] = []

    def thread(self, fatal: bool, c_stack: Sequence[NativeFrame]) -> Thread:
        thread = Thread(
            tid=self.ident, name=self.name, crashed=self.current and fatal, collecting=self.collecting or None, frames=tuple(self.frames)
        )
        if self.current and c_stack:
            pythons = tuple(frame for frame in self.frames if isinstance(frame, PythonFrame))
            return replace(thread, frames=tuple(c_stack), python_frames=pythons)
        return thread


def _opens(text: str) -> Optional[FaultDump]:
    dump = FaultDump()
    return dump if dump.feed(text) else None


def _of_frames() -> FaultDump:
    """A dump of which only the frames are left."""
    dump = FaultDump()
    dump.feed("Stack (most recent call first):")
    return dump


def _python_frame(match: re.Match[str]) -> PythonFrame:
    line = int(match["line"]) if match["line"].isdigit() else None
    return PythonFrame(function=match["function"], file=match["file"], line=line, origin="faulthandler")


def _native_frame(match: re.Match[str]) -> NativeFrame:
    """The offset is relative to the symbol (or to the module if there is no symbol), not the program counter's offset in the module."""
    symbol = demangled(match["symbol"] or "") or None
    offset = Offset(int(match["offset"], 16)) if match["offset"] and symbol is None else None
    return NativeFrame(function=symbol, module=match["file"], offset=offset, pc=Address(int(match["address"], 16)), trust="text")


def _tells(dumps: Sequence[tuple[str, FaultDump]]) -> Account:
    """Use the first fatal dump, or else the first one with stacks."""
    fatal = next((dump for _, dump in dumps if dump.message is not None), None)
    shown = fatal if fatal is not None and fatal.threads() else next((dump for _, dump in dumps if dump.threads()), fatal)
    if shown is None:
        telling = Telling.NOTHING
    elif not shown.threads():
        telling = Telling.FATAL_MESSAGE
    else:
        telling = Telling.FATAL_THREADS if shown is fatal else Telling.THREADS
    told = shown and next((dump for who, dump in dumps if who == _owner(dumps, shown) and dump.repeats(shown)), shown)
    return Account(
        telling=telling,
        threads=told.threads() if told is not None else (),
        stacks="python",
        signal=_last_signal(dumps, fatal),
        python=_runtime(dumps, fatal),
        is_evidence=bool(dumps),
        soft_errors=(*_several(dumps), *threads_left_out(sum(dump.left_out for _, dump in dumps))),
    )


def _last_signal(dumps: Sequence[tuple[str, FaultDump]], first: Optional[FaultDump]) -> Optional[int]:
    """The signal of the last fatal dump of the process whose dump came first: that one ended it."""
    owner = _owner(dumps, first)
    return next((dump.signal for who, dump in reversed(dumps) if who == owner and dump.signal is not None), None)


def _owner(dumps: Sequence[tuple[str, FaultDump]], one: Optional[FaultDump]) -> Optional[str]:
    return next((who for who, dump in dumps if dump is one), None)


def _runtime(dumps: Sequence[tuple[str, FaultDump]], fatal: Optional[FaultDump]) -> Optional[PythonRuntime]:
    finalizing = fatal is not None and fatal.state is not None and fatal.state.startswith("finalizing")
    free_threaded = any(dump.gil_disabled for _, dump in dumps)
    if not finalizing and not free_threaded:
        return None
    return PythonRuntime(finalizing=finalizing or None, free_threaded=free_threaded or None)


def _several(dumps: Sequence[tuple[str, FaultDump]]) -> tuple[SoftError, ...]:
    """Dumps do not name their process: warn if there is more than one crash."""
    threads = (thread for _, dump in dumps if dump.message is not None for thread in dump.threads() if thread.crashed)
    crashes = {tuple((frame.file, frame.line) for frame in thread.pythons()) for thread in threads}
    if len(crashes) < 2:
        return ()
    message = f"this text contains dumps of {len(crashes)} crashes, and dumps do not name their process: showing the first"
    return (SoftError(stage="log", message=message, hint="Pass only the part of the text with the crash you want, or its core."),)


_BODY = Body(
    # Other than a traceback's, without a comma behind the number.
    frame=re.compile(r'^\W{0,20}File "[^"\n]{1,1000}", line (?:\d{1,9}|\?\?\?) in \S', re.MULTILINE),
    head="most recent call",
    reader=_of_frames,
)

FORMAT = Format(
    openers=("Python error: ", "Windows fatal exception: ", "most recent call first", "Timeout ("),
    opens=_opens,
    tells=_tells,
    source="faulthandler",
    kinds=frozenset({"python-state", "gil-disabled"}),
    body=_BODY,
    classifies_opener=True,
)
