"""Where a process that still runs stands, and what for: the one place of many that answers why it does not continue. Pure."""

from __future__ import annotations

import msgspec

from crashkit.model import Crash, PythonFrame, Task, Wait
from crashkit.naming import tasks, waits
from crashkit.naming.own_code import python_frames


class Standing(msgspec.Struct, frozen=True):
    """What a live process does."""

    frame: PythonFrame | None
    """The line to look at."""
    frames: tuple[PythonFrame, ...]
    """Those of its thread or task, innermost first."""
    text: str
    """`waits in consume (app.py:3) for a queue`, `runs in spin (app.py:9)`."""


def standing(crash: Crash) -> Standing | None:
    """A deadlock first; else the thread that keeps a processor busy, else what the main thread waits for, or a task of its loop.

    None for a process that had ended, and where nothing is known.
    """
    if crash.source is None or crash.source.kind != "live":
        return None
    if (task := next((task for task in crash.tasks if task.cycle), None)) is not None and not any(wait.cycle for wait in crash.waits):
        return _of_task(crash, task)
    first = next(iter(crash.waits), None)
    if first is not None and (first.cycle or first.lost):
        return _of_wait(crash, first)
    busy = next((thread for thread in crash.threads if thread.activity == "busy"), None)
    if busy is not None:
        frame = waits.line_of(busy)
        return (
            Standing(frame, tuple(python_frames(busy)), f"runs in {waits.place(frame)}") if frame is not None and frame.function else None
        )
    wait = next((wait for wait in crash.waits if wait.thread == _main(crash)), first if len(crash.threads) == 1 else None)
    if wait is None:
        return None
    stuck = next((task for task in tasks.stuck(crash) if task.loop_thread == wait.thread), None) if wait.kind == "poll" else None
    return _of_task(crash, stuck) if stuck is not None else _of_wait(crash, wait)


def _main(crash: Crash) -> int | None:
    return crash.process.pid if crash.process is not None else None


def _of_wait(crash: Crash, wait: Wait) -> Standing:
    thread = next((thread for thread in crash.threads if thread.tid == wait.thread), None)
    frame = waits.line_of(thread) if thread is not None else None
    text = waits.sentence(crash, wait)
    text = text.removeprefix(f"{waits.label(crash, wait.thread)} ") if wait.thread == _main(crash) else text
    return Standing(frame, tuple(python_frames(thread)) if thread is not None else (), text)


def _of_task(crash: Crash, task: Task) -> Standing:
    return Standing(tasks.line_of(task), task.frames, tasks.wait_sentence(crash, task))
