"""A crash as the conditions look at it: plain function names, the stack below a signal handler, quick lookups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Optional, Union

import msgspec

from crashkit.diagnose.signature import FramePattern
from crashkit.model import Crash, NativeFrame, PythonFrame, Thread

FAULTS = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP"})

SIGNAL_FRAME = "<signal handler called>"

# What stands above the frame that failed when a process aborts itself.
_MACHINERY = re.compile(
    r"_*(pthread_kill(_implementation|_internal)?|raise|gsignal|abort|libc_message(_impl)?|libc_fatal|kill|tgkill|restore_rt|syscall)"
)
_SUFFIX = re.compile(r"(?:\.(?:constprop|isra|part|lto_priv|llvm|cold)(?:\.\d+)*| \[clone [^\]]*\]|@@?\w[\w.]*)+$")
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen|^<string>|^<__array")


class Native(msgspec.Struct, frozen=True):
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
        self.natives = _below_handler(self.whole)

    @cached_property
    def pythons(self) -> list[tuple[Optional[int], PythonFrame]]:
        """Python frames with their index in the thread's frames; None where they stand beside them."""
        if self.thread.python_frames:
            return [(None, frame) for frame in self.thread.python_frames]
        return [(index, frame) for index, frame in enumerate(self.thread.frames) if isinstance(frame, PythonFrame)]

    @cached_property
    def failing(self) -> list[Native]:
        """Native frames from the one that failed on: without the machinery that aborts."""
        start = 0
        while start < len(self.natives) and _MACHINERY.fullmatch(self.natives[start].name):
            start += 1
        return self.natives[start:]

    def own_python(self) -> Optional[tuple[Optional[int], PythonFrame]]:
        """The innermost Python frame that is the user's own code, or else the innermost."""
        own = next((item for item in self.pythons if is_own(item[1])), None)
        return own or next(iter(self.pythons), None)


class View:
    """One crash, prepared once for all signatures."""

    def __init__(self, crash: Crash) -> None:
        self.crash = crash
        self.stacks = [Stack(thread) for thread in crash.threads]
        self.crashed = next((stack for stack in self.stacks if stack.thread.crashed), None)
        self._memo: dict[tuple[str, str], bool] = {}

    @property
    def others(self) -> list[Stack]:
        return [stack for stack in self.stacks if stack is not self.crashed]

    def named(self, pattern: str, name: str) -> bool:
        """Whether the pattern matches the whole name."""
        key = (pattern, name)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = compiled(pattern).fullmatch(name) is not None
        return found

    def is_frame(self, pattern: Union[str, FramePattern], frame: Native) -> bool:
        if isinstance(pattern, str):
            return self.named(pattern, frame.name)
        if pattern.function is not None and not self.named(pattern.function, frame.name):
            return False
        return pattern.module is None or compiled(pattern.module).search(frame.module) is not None

    def in_order(self, patterns: Sequence[Union[str, FramePattern]], frames: Sequence[Native]) -> Optional[list[Native]]:
        """The frames that match the patterns in this order, or None."""
        found: list[Native] = []
        rest = iter(frames)
        for pattern in patterns:
            match = next((frame for frame in rest if self.is_frame(pattern, frame)), None)
            if match is None:
                return None
            found.append(match)
        return found


def is_own(frame: PythonFrame) -> bool:
    """Whether the frame is of the user's code: neither installed nor the standard library's."""
    return _INSTALLED.search(frame.file or "") is None


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _below_handler(frames: list[Native]) -> list[Native]:
    """The stack that the signal interrupted: faulthandler's and torch's handlers run above it and re-raise."""
    last = next((position for position, item in enumerate(frames) if item.name == SIGNAL_FRAME or item.frame.trust == "signal"), None)
    return frames if last is None else frames[last + 1 :]


@lru_cache(maxsize=65536)
def plain(function: str) -> str:
    """A function's name without return type, arguments, template arguments, compiler suffixes and `__GI_`."""
    if function.startswith("<"):
        return function
    name = _SUFFIX.sub("", function[:4096])
    name = name.replace("(anonymous namespace)", "{anonymous}").replace("operator()", "operator{}")
    name = _without(name, "<", ">") if "operator<" not in name and "operator>" not in name and "->" not in name else name
    name = name.partition("(")[0].rstrip()
    if " " in name and "operator" not in name:
        name = name.rpartition(" ")[2]
    name = name.replace("{anonymous}", "(anonymous namespace)").replace("operator{}", "operator()")
    return name.removeprefix("__GI_").lstrip("*&")


def _without(text: str, opening: str, closing: str) -> str:
    depth = 0
    kept: list[str] = []
    for character in text:
        if character == opening:
            depth += 1
        elif character == closing and depth:
            depth -= 1
        elif not depth:
            kept.append(character)
    return "".join(kept)
