"""A crash as the conditions see it: plain function names, the stack below a signal handler, quick lookups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Optional, Union

import msgspec

from crashkit.diagnose.signature import FramePattern
from crashkit.evidence.text.log_signal import aborts
from crashkit.model import Crash, ElidedFrames, LogLine, NativeFrame, PythonFrame, Thread
from crashkit.naming.functions import plain
from crashkit.naming.gil import INTERPRETER
from crashkit.naming.machinery import handler_end, machinery_end
from crashkit.naming.own_code import own_line, python_frames

MEMORY_FAULTS = frozenset({"SIGSEGV", "SIGBUS"})
FAULTS = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP"})


_OF_WINDOWS = re.compile(r"^[A-Za-z]:[\\/]|^[^/]+\.(?:dll|pyd|exe)$", re.IGNORECASE)
_OF_LINUX = re.compile(r"\.so(?:$|\.\d)|^/(?:usr|lib|proc)/")


def _says_macos(line: LogLine) -> bool:
    return line.fields.get("exception", "").startswith("EXC_") or line.kind in ("macos-objc-fork", "mps-assert", "code-signature")


def _says_windows(line: LogLine) -> bool:
    """.NET uses some of the words on other systems, too."""
    return (line.kind or "").startswith("windows-") and not line.text.startswith(
        ("System.", "Fatal error.", "Unhandled exception. System.")
    )


def _without_words_of_handler(crash: Crash) -> Crash:
    """The crash in which what a handler of a fault died of is no line of any kind: a block that it freed twice is not why it ran."""
    signal = crash.signal
    of_core = crash.source is not None and crash.source.kind == "core"
    if signal is None or not of_core or not signal.recovered or signal.name not in FAULTS or signal.ended_with != "SIGABRT":
        return crash
    # A process aborts once: the message is that of the handler, be it from the core or from the log. faulthandler's is of the fault.
    return msgspec.structs.replace(
        crash,
        log=tuple(
            msgspec.structs.replace(line, kind=None) if aborts(line) and line.kind != "fatal-python-error" else line for line in crash.log
        ),
    )


class Native(msgspec.Struct, frozen=True):
    """One native frame of a stack, with its plain name."""

    index: int
    """Into the thread's frames."""
    name: str
    """Plain; empty where the frame has none."""
    module: str
    frame: NativeFrame


class Stack:
    """One thread's frames, innermost first."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.whole = [
            Native(index, plain(frame.function or ""), frame.module or "", frame)
            for index, frame in enumerate(thread.frames)
            if isinstance(frame, NativeFrame)
        ]
        handler = handler_end(thread.frames)
        self.natives = [native for native in self.whole if native.index >= handler]

    @cached_property
    def pythons(self) -> list[tuple[Optional[int], PythonFrame]]:
        """Python frames with their index in the thread's frames; None for stacks that could not be merged."""
        if self.thread.python_frames:
            return [(None, frame) for frame in self.thread.python_frames]
        return [(index, frame) for index, frame in enumerate(self.thread.frames) if isinstance(frame, PythonFrame)]

    @property
    def innermost(self) -> Optional[Native]:
        """The innermost native frame; None where none is known."""
        return next(iter(self.natives), None)

    @cached_property
    def failing(self) -> list[Native]:
        """Native frames from the one that failed on: without the machinery that aborts."""
        return self.natives[machinery_end([native.frame.function for native in self.natives]) :]

    def own_python(self) -> Optional[PythonFrame]:
        """The innermost Python frame that is the user's own code, or else the innermost. One that could be of any file is none, nor is one
        of what runs an import."""
        frames = [frame for frame in python_frames(self.thread) if frame.file or frame.function not in (None, "", "<module>")]
        frames = [frame for frame in frames if not (frame.file or "").startswith("<frozen importlib.")]
        return own_line(frames) or next(iter(frames), None)


class Case:
    """One crash, prepared once for all signatures."""

    def __init__(self, crash: Crash) -> None:
        self.crash = crash = _without_words_of_handler(crash)
        self.stacks = [Stack(thread) for thread in crash.threads]
        self.crashed = next((stack for stack in self.stacks if stack.thread is crash.thread), None)
        self._memo: dict[tuple[str, str], bool] = {}

    @property
    def shows_all_threads(self) -> bool:
        """Whether the evidence lists every thread of the process; a text may show some only."""
        return self.crash.source is not None and self.crash.source.kind in ("core", "live")

    @cached_property
    def system(self) -> Optional[str]:
        """`macos` or `windows`, where the evidence is of a process there; None on Linux, or where nothing tells."""
        crash = self.crash
        if crash.source is not None and crash.source.kind in ("core", "gpu-core", "live", "folder"):
            return None
        if crash.source is not None and crash.source.kind == "apple":
            return "macos"
        files = [
            frame.module or "" if isinstance(frame, NativeFrame) else frame.file or ""
            for thread in crash.threads
            for frame in thread.frames
            if not isinstance(frame, ElidedFrames)
        ]
        if any(file.endswith(".dylib") or ".framework/" in file for file in files) or any(_says_macos(line) for line in crash.log):
            return "macos"
        if any(_OF_LINUX.search(file) for file in files):
            return None  # .NET and Wine have libraries of Windows there.
        if any(_OF_WINDOWS.search(file) for file in files) or any(_says_windows(line) for line in crash.log):
            return "windows"
        return None

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variables of the process that are known; also those that a log shows on its command line."""
        found = dict(self.crash.process.environment) if self.crash.process is not None else {}
        if any(line.kind == "launch-blocking" for line in self.crash.log):
            found.setdefault("CUDA_LAUNCH_BLOCKING", "1")
        return found

    @cached_property
    def source_lines(self) -> list[str]:
        """The lines of source that the report quotes."""
        frames = [frame for stack in self.stacks for _, frame in stack.pythons]
        return [line for frame in frames for line in (*frame.context, frame.source or "") if line]

    @property
    def has_log(self) -> bool:
        """Whether what the process wrote is part of the evidence."""
        kind = self.crash.source.kind if self.crash.source is not None else None
        return kind in ("log", "faulthandler", "gdb") or any(not line.from_core for line in self.crash.log)

    def is_interpreter(self, module: str) -> bool:
        """Whether this file is the interpreter: its library, or a program that contains it."""
        python = self.crash.python
        return bool(module) and (INTERPRETER.search(module) is not None or (python is not None and module == python.executable))

    @cached_property
    def is_hearsay(self) -> bool:
        """Whether all that is known is what somebody said of a crash (`evidence.text.hearsay`), or besides it a stack alone."""
        log = self.crash.log
        if self.stacks and log and all(line.kind == "told" for line in log):
            return True
        return (
            bool(log)
            and not self.stacks
            and all(line.kind in ("told", "mentioned", "recursion") or "loosely" in line.fields for line in log)
        )

    @property
    def is_only_mentioned(self) -> bool:
        """Whether all that is known is that a text has the words of a crash (`evidence.text.mentions`)."""
        log = self.crash.log
        return bool(log) and not self.stacks and all(line.kind == "mentioned" or (line.kind or "").startswith("tells-") for line in log)

    @property
    def others(self) -> list[Stack]:
        """Every stack but that of the crashed thread."""
        return [stack for stack in self.stacks if stack is not self.crashed]

    def named(self, pattern: str, name: str) -> bool:
        """Whether the pattern matches the whole name."""
        key = (pattern, name)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = _compiled_for_names(pattern).fullmatch(name) is not None
        return found

    def is_frame(self, pattern: Union[str, FramePattern], frame: Native) -> bool:
        """Whether the frame matches: a string is a pattern for the whole function name."""
        if isinstance(pattern, str):
            return self.named(pattern, frame.name)
        if pattern.function is not None and not self.named(pattern.function, frame.name):
            return False
        return pattern.module is None or compiled(pattern.module).search(frame.module) is not None

    def could_be_frame(self, pattern: Union[str, FramePattern], frame: Native) -> bool:
        """Whether the frame matches, or would if its name were known."""
        if frame.name:
            return self.is_frame(pattern, frame)
        return isinstance(pattern, str) or pattern.module is None or compiled(pattern.module).search(frame.module) is not None

    def in_order(
        self, patterns: Sequence[Union[str, FramePattern]], frames: Sequence[Native], guess: bool = False
    ) -> Optional[list[Native]]:
        """The frames that match the patterns in this order, or None; `guess` lets a frame without a name match."""
        matches = self.could_be_frame if guess else self.is_frame
        found: list[Native] = []
        rest = iter(frames)
        for pattern in patterns:
            match = next((frame for frame in rest if matches(pattern, frame)), None)
            if match is None:
                return None
            found.append(match)
        return found


@lru_cache(maxsize=4096)
def _compiled_for_names(pattern: str) -> re.Pattern[str]:
    """For whole names: `.` takes a line end too, because `.*f.*` that fails at one takes time quadratic in the name."""
    return re.compile(pattern, re.DOTALL)


@lru_cache(maxsize=4096)
def compiled_loosely(pattern: str) -> re.Pattern[str]:
    """The same, for letters of any case."""
    return re.compile(pattern, re.IGNORECASE)


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """The compiled regular expression, cached."""
    return re.compile(pattern)
