"""Recognises what failed in a signal handler that had interrupted other code: no line of that code called it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from crashkit.model import Frame, HandledSignal, NativeFrame, PythonFrame, Signal, Thread
from crashkit.naming.failing import code_in, failing, said_name
from crashkit.naming.machinery import handler_end, is_signal_frame, machinery_end
from crashkit.naming.signals import SIGALRM, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGVTALRM, sender_name


def handler_at(frames: Sequence[Frame], signal: Signal | None) -> int | None:
    """Index of the function that the kernel called for another signal, and that failed or called what did. None where none had.

    A handler of Python's runs later, as Python code. What a handler of faults does, such as faulthandler's, is not meant.
    """
    found = None
    start = failing(frames, signal)
    if start is None or any(isinstance(frame, PythonFrame) for frame in frames[:start]):
        return None
    for index, frame in enumerate(frames[start:], start):
        if isinstance(frame, PythonFrame):
            return None
        if is_signal_frame(frame):
            return found if index >= handler_end(frames) else None
        if isinstance(frame, NativeFrame):
            found = None if machinery_end([frame.function]) else index
    return None


def handler_said(frames: Sequence[Frame], index: int) -> str:
    """`on_alarm`, or `(code in libffi.so.8)` for a handler without a name."""
    frame = frames[index]
    assert isinstance(frame, NativeFrame)
    return said_name(frame) or f"({code_in(frame)})"


def interrupted(thread: Thread, signal: Signal | None) -> bool:
    """Whether a signal handler failed that had interrupted the innermost Python line: that line is not to blame."""
    return handler_at(thread.frames, signal) is not None


_OF_KERNEL = {
    **dict.fromkeys((SIGALRM, SIGVTALRM, SIGPROF), "a timer of the process (alarm, setitimer)"),
    **dict.fromkeys((SIGHUP, SIGINT, SIGQUIT), "the terminal"),
}


def handled_said(handled: HandledSignal, pid: int | None) -> str:
    """`SIGTERM, which process 812 had sent`; the name alone where it is not known who sent it. `pid`: the crashed process."""
    sender = handled.sender_pid
    if sender is not None:
        who = "the process itself" if sender == pid else sender_name(sender)
    elif handled.code_name == "SI_TIMER":
        who = "a timer of the process (timer_create)"
    else:
        who = _OF_KERNEL.get(handled.number, "the kernel") if handled.code_name == "SI_KERNEL" else ""
    return f"{handled.name}, which {who} had sent" if who else handled.name
