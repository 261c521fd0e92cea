"""The answer in one line: the user's own line, the values that matter there, and what native code did with them. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from crashkit.model import Crash, PythonFrame, Signal, Thread
from crashkit.naming.collector import in_collector
from crashkit.naming.finalizer import ending, finalizer
from crashkit.naming.interrupted import handler_at, handler_said
from crashkit.naming.machinery import python_call, sends_signal
from crashkit.naming.own_code import own_line, python_frames
from crashkit.naming.values import Value, bad_pointer, telling, zeros
from crashkit.report import wording

_NAME = 60


class Chosen(msgspec.Struct, frozen=True):
    """The thread that matters to the user."""

    thread: Thread
    why: str | None
    """Why it is not the crashed thread: `which held the GIL`. None where it is."""
    unread: bool = False
    """Whether the crashed thread may have run Python code, too, which could not be read."""
    marked: bool = True
    """Whether the evidence says which thread crashed."""


class Answer(NamedTuple):
    """What a user looks for first."""

    chosen: Chosen
    frame: PythonFrame
    """The innermost line of the user's own code, or else the innermost one."""
    values: tuple[Value, ...] = ()
    pointer: bool = False
    """Whether the value was used as the pointer that failed."""
    collected: bool = False
    """Whether the line only set off a garbage collection, which failed."""
    native: str | None = None
    """What failed: `memcpy`."""
    where: str | None = None
    """Where that is: `in memcpy`."""
    called: str | None = None
    """What the line called to end the process: `os.abort()`."""
    finalizer: str | None = None
    """What ran although no line called it: `__del__ of Session, run by the garbage collector`."""
    handler: str | None = None
    """The signal handler that failed and had interrupted the line, which did not call it: `on_alarm`."""
    caller: PythonFrame | None = None
    """The user's own line further out, where `frame` has no line: a function of Cython's."""


def chosen_thread(crash: Crash) -> Chosen | None:
    """The crashed thread if it ran Python; else the one that a user knows: the one with the GIL, the main one, the only one with Python."""
    crashed = crash.thread
    if crashed is None:
        return _unmarked(crash)
    if next(crashed.pythons(), None) is not None:
        return Chosen(crashed, None)
    others = [thread for thread in crash.threads if thread is not crashed and next(thread.pythons(), None) is not None]
    pid = crash.process.pid if crash.process else None
    rules = (
        ("which held the GIL", [thread for thread in others if thread.holds_gil]),
        ("the main thread", [thread for thread in others if pid is not None and thread.tid == pid]),
        (
            "the only one whose Python code is known" if crashed.python_unread else "the only one that ran Python code",
            others if len(others) == 1 else [],
        ),
    )
    return next((Chosen(threads[0], why, bool(crashed.python_unread)) for why, threads in rules if threads), None)


def _unmarked(crash: Crash) -> Chosen | None:
    """The only thread with Python code in a dump of a process that died, which marks none: the one that crashed may be one of C."""
    with_python = [thread for thread in crash.threads if next(thread.pythons(), None) is not None]
    of_dump = crash.source is not None and crash.source.kind == "faulthandler" and crash.signal is not None
    return Chosen(with_python[0], "the only one in the dump", marked=False) if of_dump and len(with_python) == 1 else None


def answer(crash: Crash) -> Answer | None:
    """None where no Python line is known, something was ending, or a GPU failed: the answer is of another kind."""
    chosen = chosen_thread(crash)
    if chosen is None or crash.failed_gpu is not None or at_the_end(crash) is not None:
        return None
    thread = chosen.thread
    frame = wording.own_at(thread) or wording.python_at(thread)
    if frame is None or not frame.function:
        return None
    if chosen.why is not None:
        failed = wording.native_at(crash.thread, crash.signal) if crash.thread is not None else None
        return Answer(chosen, frame, where=wording.where(crash.thread, failed) if crash.thread is not None and failed is not None else None)
    native = wording.native_at(thread, crash.signal)
    what, where = (wording.said(thread, native), wording.where(thread, native)) if native else (None, None)
    if where is not None and ", called by " not in where and (caller := wording.called_by(thread, crash)) is not None:
        where += f", called by {wording.said(thread, caller)}"
    if native is not None and (native.file, native.line) == (frame.file, frame.line):
        where = None  # The user's own Cython function failed, not one that it called.
    if in_collector(thread):
        return Answer(chosen, frame, collected=True, native=what, where=where)
    if (at := handler_at(thread.frames, crash.signal)) is not None:
        name = handler_said(thread.frames, at)
        return Answer(chosen, frame, native=what, where=None if native is thread.frames[at] else where, handler=name)
    shown, pointer = _values(thread, frame, crash.signal)
    called = python_call(native.function) if native is not None else None
    return Answer(
        chosen, frame, shown, pointer, False, what, where, called, finalizer(thread), caller=_caller(thread) if frame.line is None else None
    )


def _caller(thread: Thread) -> PythonFrame | None:
    return own_line(frame for frame in python_frames(thread) if frame.line is not None)


def _values(thread: Thread, frame: PythonFrame, signal: Signal | None) -> tuple[tuple[Value, ...], bool]:
    if (wrong := bad_pointer(thread, signal)) is not None:
        return (wrong,), True
    return tuple(zeros(frame, signal) or telling(frame)), False


def line(found: Answer, signal: Signal | None) -> str:
    """`decode (app.py:17): buffer = 24, used as a pointer by memcpy`."""
    frame = found.frame
    text = _named(frame) + (f", called by {_named(found.caller)}" if found.caller is not None else "")
    if found.chosen.why is not None:
        crashed = "the crashed thread's Python frames are not readable" if found.chosen.unread else "the crashed thread ran no Python code"
        if not found.chosen.marked:
            crashed = "the dump does not say that it is the one that crashed"
        crashed += f" and failed {_short(found.where)}" if found.where else ""
        return f"{text} in thread {wording.thread_label(found.chosen.thread)}, {found.chosen.why}; {crashed}"
    if found.collected:
        return f"{text}: triggered a garbage collection, which failed {_short(found.where)}".rstrip()
    if found.handler is not None:
        ended = signal is not None and signal.reason in ("abort", "raised")
        verb = "ended the process" if ended else "failed"
        return f"{text}: interrupted by the signal handler {found.handler}, which {verb} {_short(found.where)}".rstrip()
    shown = [values(found)] if found.values else []
    text += f", in {found.finalizer}" if found.finalizer else ""
    if found.pointer:
        called = signal is not None and signal.access == "execute"
        use = "called as a function" if called else "used as a pointer" + (f" by {_short(found.native)}" if found.native else "")
        return f"{text}: {', '.join([*shown, use])}"
    verb = "was" if _found_there(found.chosen.thread, signal) else "failed"
    end = f"called {found.called}" if found.called else f"{verb} {_short(found.where)}" if found.where else ""
    return ": ".join([text, "; ".join(filter(None, [*shown, end]))]).removesuffix(": ")


def _found_there(thread: Thread, signal: Signal | None) -> bool:
    """Whether a signal of another process or thread found this one where it was: nothing failed there."""
    if signal is None:
        return False
    sent_itself = any(sends_signal(frame.function or "") for frame in thread.natives()) or not any(thread.natives())
    return signal.reason in ("sent-from-outside", "timer") or signal.name == "SIGSTOP" or (signal.reason == "raised" and not sent_itself)


def beside(found: Answer, signal: Signal | None) -> str:
    """What `line` says behind the place: `: buffer = 24, used as a pointer by memcpy`."""
    return line(found, signal).removeprefix(_named(found.frame))


def at_the_end(crash: Crash) -> str | None:
    """Where it failed, if no Python code ran because something was ending: `failed in release (at_exit.c:8), run at the end of ...`."""
    thread = crash.thread
    ended = ending(thread) if thread is not None else None
    native = wording.native_at(thread, crash.signal) if thread is not None else None
    if thread is None or native is None or ended is None:
        return None
    return f"failed {wording.where(thread, native)} ({wording.native_place(native)}), run at the end of {ended}"


def _named(frame: PythonFrame) -> str:
    place = f" ({wording.base_name(frame.file)}{f':{frame.line}' if frame.line else ''})" if frame.file else ""
    return f"{_short(frame.function or '')}{place}"


def values(found: Answer) -> str:
    """`buffer = 24, scale = 0.75`; for a variable of a function that the line called `ptr = 24 in string_at`."""
    return ", ".join(
        str(value) if value.frame is found.frame else f"{value} in {_short(value.frame.function or 'its callee')}" for value in found.values
    )


def _short(name: str | None) -> str:
    name = name or ""
    return name if len(name) <= _NAME else name[:_NAME] + "…"
