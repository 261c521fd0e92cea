"""What a thread waits for, in words. Pure."""

from __future__ import annotations

from crashkit.model import Crash, PythonFrame, Thread, Wait
from crashkit.naming.own_code import own_line, python_frames

KINDS = {
    "gil": "the GIL",
    "lock": "the lock",
    "rlock": "the RLock",
    "import": "the import of",
    "condition": "a condition",
    "event": "an event",
    "queue": "a queue",
    "barrier": "a barrier",
    "thread": "the end of thread",
    "mutex": "a mutex",
    "condition-variable": "a condition variable",
    "semaphore": "a semaphore",
    "futex": "a futex",
    "collective": "a collective",
    "cuda": "the GPU",
    "socket": "the connection",
    "pipe": "a pipe",
    "file": "the file",
    "open": "the opening of",
    "terminal": "the terminal",
    "poll": "events",
    "child": "a child process",
    "sleep": "a point in time",
    "signal": "a signal",
    "task": "a task",
}
_NAMELESS = {
    "lock": "a lock",
    "rlock": "an RLock",
    "import": "an import",
    "thread": "the end of a thread",
    "socket": "a connection",
    "file": "a file",
    "open": "the opening of a file",
}
_NAMED = frozenset("lock rlock import thread socket file open terminal".split())


def awaited(wait: Wait) -> str:
    """What is waited for: `the lock a`, `the GIL`."""
    if wait.name and wait.name.startswith(("a Unix socket", "a new connection")):
        return wait.name
    if wait.kind in _NAMED:
        return f"{KINDS[wait.kind]} {wait.name}" if wait.name else _NAMELESS.get(wait.kind, KINDS[wait.kind])
    words = KINDS.get(wait.kind, wait.kind)
    if wait.name and wait.name.startswith(words):
        return wait.name
    return (
        f"{words} ({wait.name})"
        if wait.name
        else f"{words} at {wait.address}"
        if wait.kind == "mutex" and wait.address is not None
        else words
    )


def line_of(thread: Thread, index: int | None = None) -> PythonFrame | None:
    """The line to look at: that of the frame with this index, else the innermost one of the user's own code, else the innermost."""
    frame = thread.frames[index] if index is not None and index < len(thread.frames) else None
    if isinstance(frame, PythonFrame):
        return frame
    frames = python_frames(thread)
    return own_line(frames) or next(iter(frames), None)


def place(frame: PythonFrame | None) -> str:
    """`two (app.py:11)`; empty for no frame."""
    if frame is None or not frame.function:
        return ""
    file = (frame.file or "").rpartition("/")[2]
    return f"{frame.function} ({file}{f':{frame.line}' if frame.line else ''})" if file else frame.function


def label(crash: Crash, tid: int) -> str:
    """The thread's name with its tid, `thread 123` for one without."""
    thread = next((one for one in crash.threads if one.tid == tid), None)
    return f"{thread.name} ({tid})" if thread is not None and thread.name else f"thread {tid}"


def sentence(crash: Crash, wait: Wait) -> str:
    """Who waits where for what, and who has it."""
    threads = {thread.tid: thread for thread in crash.threads}
    thread = threads.get(wait.thread)
    at = place(line_of(thread)) if thread is not None else ""
    text = f"{label(crash, wait.thread)} waits{f' in {at}' if at else ''} for {awaited(wait)}"
    if wait.lost:
        return f"{text}, whose owner is not a thread of this process"
    if wait.held_by is None:
        return text
    if wait.held_by == wait.thread:
        return f"{text}, which it holds itself"
    if wait.kind == "thread":
        return f"{text} ({wait.held_by})" if not wait.name else text
    holder = threads.get(wait.held_by)
    held = place(line_of(holder, wait.held_at)) if holder is not None else ""
    return f"{text}, held by {label(crash, wait.held_by)}{f' in {held}' if held else ''}"
