"""Greenlets in words. Pure."""

from __future__ import annotations

from crashkit.model import Crash, Greenlet, PythonFrame, Thread
from crashkit.naming.own_code import own_line


def greenlet_of(crash: Crash, thread: Thread | None) -> Greenlet | None:
    """The greenlet that the thread was running, unless it is the thread's own."""
    if thread is None or thread.tid is None:
        return None
    running = (one for one in crash.greenlets if one.state == "running" and one.thread == thread.tid)
    return next((one for one in running if not one.main), None)


def name(crash: Crash, greenlet: Greenlet) -> str:
    """What it runs, which tells more than its address: `Greenlet of handle_request (app.py:31)`, `main greenlet`."""
    kind = (greenlet.type or "greenlet").rpartition(".")[2]
    if greenlet.main:
        return f"main {kind}"
    begins = _begins(crash, greenlet)
    return f"{kind} of {_place(begins)}" if begins else kind


def sentence(crash: Crash, greenlet: Greenlet) -> str:
    """`Greenlet of handle_request (app.py:31), child of Hub of run (hub.py:646), beside 24 more`."""
    parent = parent_of(crash, greenlet)
    child = f", child of {name(crash, parent)}" if parent else ""
    others = sum(one.thread == greenlet.thread for one in crash.greenlets) - 1 - (parent is not None and parent.thread == greenlet.thread)
    return f"{name(crash, greenlet)}{child}{f', beside {others:,} more' if others > 0 else ''}"


def parent_of(crash: Crash, greenlet: Greenlet) -> Greenlet | None:
    """The greenlet that goes on when this one ends."""
    return crash.greenlets[greenlet.parent] if greenlet.parent is not None and 0 <= greenlet.parent < len(crash.greenlets) else None


def frames(crash: Crash, greenlet: Greenlet) -> tuple[PythonFrame, ...]:
    """Where it stands, innermost first; a running one has the frames of its thread."""
    if greenlet.state != "running":
        return greenlet.frames
    thread = next((thread for thread in crash.threads if thread.tid == greenlet.thread), None)
    return tuple(thread.pythons()) if thread is not None and greenlet.thread is not None else ()


def _begins(crash: Crash, greenlet: Greenlet) -> PythonFrame | None:
    """The outermost of its frames that is the user's own, else the outermost."""
    outermost = frames(crash, greenlet)[::-1]
    return own_line(outermost) or next(iter(outermost), None)


def _place(frame: PythonFrame) -> str:
    file = (frame.file or "").replace("\\", "/").rpartition("/")[2]
    function = frame.function or "(no name)"
    return f"{function} ({file}{f':{frame.line}' if frame.line else ''})" if file else function
