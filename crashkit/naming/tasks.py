"""asyncio's tasks in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from crashkit.model import Crash, PythonFrame, Task, Thread
from crashkit.naming.own_code import own_line

_NAMED = 3
"""Tasks that are named one by one."""
_NOUNS = {"Lock": "lock", "Semaphore": "semaphore", "Event": "event", "Condition": "condition", "Barrier": "barrier", "Queue": "queue"}
"""By the end of the name of asyncio's class. A condition that was notified waits for its lock."""
_OF_QUEUE = {"get": "an item of ", "put": "room in ", "join": "all items of "}
"""What is waited for, by the method of a queue."""


def task_of(crash: Crash, thread: Thread | None) -> Task | None:
    """The task that the thread was running."""
    if thread is None or thread.tid is None:
        return None
    return next((task for task in crash.tasks if task.state == "running" and task.loop_thread == thread.tid), None)


def name(task: Task) -> str:
    """What the program calls it."""
    return task.name or "a task without a name"


def line_of(task: Task) -> PythonFrame | None:
    """The innermost line of the user's own code, else the innermost."""
    return own_line(task.frames) or next(iter(task.frames), None)


def sentence(crash: Crash, task: Task) -> str:
    """`fetch-42, awaited by handle_request (app.py:31)`."""
    waiting = [crash.tasks[index] for index in task.awaited_by if 0 <= index < len(crash.tasks)]
    # Who awaits this one alone tells more than who waits for many.
    waiting.sort(key=lambda one: len(one.awaits_tasks))
    return f"{name(task)}, awaited by {_listed([_place(one) for one in waiting])}" if waiting else name(task)


def stuck(crash: Crash) -> list[Task]:
    """The ends of the chains of waiting: tasks that wait for something that is no task. What others wait for comes first."""
    ends = [task for task in crash.tasks if task.state == "waiting" and not task.awaits_tasks]
    return sorted(ends, key=lambda task: not task.awaited_by)


def wait_sentence(crash: Crash, task: Task) -> str:
    """`task fetch-1 waits in fetch (app.py:6) for a Future, awaited by page (app.py:8)`."""
    return wait(crash, task) + sentence(crash, task).removeprefix(name(task))


def wait(crash: Crash, task: Task) -> str:
    """`task one waits in one (app.py:6) for the lock b, held by two in two (app.py:11)`."""
    return f"task {name(task)} waits in {_place(task)} for {_awaited(crash, task)}"


def state(crash: Crash, task: Task) -> str:
    """`waiting for fetch-42`, `ready to run`."""
    if task.state == "waiting":
        return f"waiting for {_awaited(crash, task)}"
    return "ready to run" if task.state == "ready" else task.state or "in an unknown state"


def _awaited(crash: Crash, task: Task) -> str:
    if task.held_by is not None and 0 <= task.held_by < len(crash.tasks):
        holder = crash.tasks[task.held_by]
        more = f" ({task.detail})" if task.detail else ""
        return f"{_object(task)}{more}, held by {'itself' if holder is task else f'{name(holder)} in {_held_in(holder, task.held_at)}'}"
    others = [name(crash.tasks[index]) for index in task.awaits_tasks if 0 <= index < len(crash.tasks)]
    if not others and task.detail and awaited_kind(task) is not None:
        return f"{_object(task)} ({task.detail})"
    return _listed(others) if others else "a Future" if task.awaits in (None, "Future") else str(task.awaits)


def _object(task: Task) -> str:
    """`the lock shared.first`, `room in the queue jobs`, `an event`."""
    noun = awaited_kind(task) or "lock"
    article, named = ("the", f" {task.lock}") if task.lock else ("an" if noun == "event" else "a", "")
    method = (task.awaits or "").removesuffix("()").partition(".")[2]
    # A variable may be called what it is.
    return f"{_OF_QUEUE.get(method, '') if noun == 'queue' else ''}{article} {noun}{named if task.lock != noun else ''}"


def awaited_kind(task: Task) -> str | None:
    """What kind of thing it waits for; None if that is something else, as what as_completed() waits for by a queue of its own."""
    kind = (task.awaits or "").partition(".")[0]
    return next((noun for ending, noun in _NOUNS.items() if kind.endswith(ending)), None)


def _held_in(holder: Task, index: int | None) -> str:
    return _place(holder, holder.frames[index] if index is not None and index < len(holder.frames) else None)


def _place(task: Task, frame: PythonFrame | None = None) -> str:
    frame = frame or line_of(task)
    if frame is None or not frame.function:
        return name(task)
    file = (frame.file or "").replace("\\", "/").rpartition("/")[2]
    return f"{frame.function} ({file}{f':{frame.line}' if frame.line else ''})" if file else frame.function


def _listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b, c and 7 more`."""
    rest = len(names) - _NAMED
    shown = [*names[:_NAMED], *([f"{rest} more"] if rest > 0 else [])]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
