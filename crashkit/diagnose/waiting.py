"""Facts about what threads wait for (`Crash.waits`): deadlocks, lost owners, and who burns the processor. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from msgspec.structs import replace

from crashkit.diagnose.case import Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import Crash, Evidence, NativeFrame, PythonFrame, Task, Thread, Wait
from crashkit.naming import tasks
from crashkit.naming.cuda import DRIVER, SEEN_TO_WAIT, SYNCHRONISES, SYSTEM
from crashkit.naming.machinery import handler_end
from crashkit.naming.own_code import python_frames
from crashkit.naming.waits import KINDS, awaited, label, line_of, place, sentence
from crashkit.regex import regex

_MOST_EVIDENCE = 12
_BY_HANDLERS = frozenset({"event", "condition"})
_RAN = 0.2
"""The share of the time from which a thread had something to do. To be looked at takes some: it goes back to sleep afterwards, and on a
busy machine waits for a processor first."""
_NEAR = 30
"""Innermost frames among which the driver's own end, and the call that waits, stands."""
_ASKS = 4
"""Innermost frames among which one is the driver's where that asks for the time."""
_INPUT = frozenset("socket pipe file open terminal".split())
_LOCKS = frozenset("lock rlock semaphore".split())
_OUTSIDE = frozenset("child collective cuda".split())
"""Waits of the main thread beside which a background thread that reads an idle pipe or connection explains nothing."""
_OTHER_END = regex(r"it waits for a pipe that process (?P<pid>\d{1,10}) \([^()]{0,64}\) has open for (?P<how>reading|writing)$")
"""As crashkit.collect.child_processes and open_files say it of a child, where one process has the other end."""
Fact = Callable[[Case], Outcome]


def deadlock(case: Case) -> Outcome:
    """Threads wait for each other in a cycle, or one for itself."""
    stuck = [wait for wait in case.crash.waits if wait.cycle]
    if not stuck:
        return no("no threads wait for each other in a cycle") if case.crash.waits else unknown("what the threads wait for")
    told = ordered(stuck)
    threads = {thread.tid: thread for thread in case.crash.threads}
    fields = {
        "count": str(len(told)),
        "circle": "; ".join(sentence(case.crash, wait) for wait in told[:4]),
        "locks": ", ".join(dict.fromkeys(wait.name or awaited(wait) for wait in told)),
        "in_order": ", ".join(dict.fromkeys(wait.name for wait in told if wait.name)) if all(wait.name for wait in told) else "",
        "lines": " and ".join(dict.fromkeys(filter(None, (place(_line(case, wait)) for wait in told[:4])))),
    }
    if (thread := threads.get(told[0].thread)) is not None and (at := place(line_of(thread))):
        fields["line"] = at
    return Outcome(True, _evidence(case, told), {name: text for name, text in fields.items() if text})


def ordered(waits: Iterable[Wait]) -> list[Wait]:
    """Along the cycle: each one's holder comes next."""
    rest = {wait.thread: wait for wait in waits}
    found: list[Wait] = []
    at = next(iter(rest), None)
    while rest and at is not None:
        wait = rest.pop(at, None)
        if wait is None:
            at = next(iter(rest), None)
            continue
        found.append(wait)
        at = wait.held_by
    return found


def _kinds(case: Case) -> set[str]:
    return {wait.kind for wait in case.crash.waits if wait.cycle}


def deadlock_with_gil(case: Case) -> Outcome:
    """The cycle includes the GIL and a native mutex."""
    found = deadlock(case)
    if not found.holds or "gil" in _kinds(case):
        return found
    return no("the cycle of waiting threads does not include the GIL")


def deadlock_with_import(case: Case) -> Outcome:
    """The cycle includes the lock of a module that is being imported."""
    found = deadlock(case)
    if not found.holds or "import" in _kinds(case):
        return found
    return no("no thread of the cycle waits for an import")


def deadlock_of_locks(case: Case) -> Outcome:
    """The cycle is of locks alone."""
    found = deadlock(case)
    if not found.holds or not _kinds(case) & {"gil", "import"}:
        return found
    return no("the cycle includes the GIL or an import")


def nobody_left(case: Case) -> Outcome:
    """Each thread of the process waits, without a time limit, for what only another thread of it could do; no task is there."""
    if _stuck_tasks(case.crash):
        return no("tasks of asyncio's wait in an event loop")
    return _all_inside(case)


def _all_inside(case: Case) -> Outcome:
    crash = case.crash
    waits = {wait.thread: wait for wait in crash.waits}
    if not waits or not all(thread.tid in waits for thread in crash.threads):
        return unknown("what each thread waits for")
    free = next((wait for wait in crash.waits if not wait.inside), None)
    if free is not None:
        return no(f"{sentence(crash, free)}, which may come to an end")
    if any((thread.processor or 0.0) >= _RAN for thread in crash.threads):
        return no("a thread ran while the process was watched")
    if all(wait.kind == "poll" for wait in crash.waits) and not _stuck_tasks(crash):
        return no("the loops wait for events, and of no task is known what it waits for")
    main = crash.process.pid if crash.process is not None else None
    ran = {thread.tid for thread in crash.threads if python_frames(thread)}
    told = sorted(crash.waits, key=lambda wait: (wait.thread != main, wait.thread not in ran, wait.thread))
    several = len(told) > 1
    limited = _limited(case, told[0])
    fields = {
        "waiting": "; ".join(sentence(crash, wait) for wait in told[:4]),
        "wait_call": limited,
        "wait_why": "for each item that was taken, also after an exception" if limited == "queue.task_done()" else "",
        "wait_line": place(_line(case, told[0])),
        "nobody": f"All {len(told)} threads wait without a time limit for each other." if several else "There is no other thread.",
    }
    return Outcome(True, _evidence(case, told), {name: text for name, text in fields.items() if text})


_CALLS = {
    "event": "event.wait(60)",
    "condition": "condition.wait(60)",
    "barrier": "barrier.wait(60)",
    "thread": "thread.join(60)",
    "lock": "lock.acquire(timeout=60)",
    "rlock": "lock.acquire(timeout=60)",
    "semaphore": "semaphore.acquire(timeout=60)",
}
"""The same wait with a time limit, by its kind."""


_OF_QUEUE = {"get": "get(timeout=60)", "put": "put(item, timeout=60)"}
"""queue.join() has no time limit: what was taken was not counted as done."""


def _limited(case: Case, wait: Wait) -> str:
    """The call that waits, as it would be with a time limit; '' where that is not known."""
    thread = next((thread for thread in case.crash.threads if thread.tid == wait.thread), None)
    if wait.kind != "queue":
        call = _CALLS.get(wait.kind, "")
        return f"{wait.name}.{call.partition('.')[2]}" if call and wait.name and wait.kind in _LOCKS else call
    frames = python_frames(thread) if thread is not None else ()
    method = next((frame.function for frame in frames if (frame.file or "").endswith("queue.py")), "get")
    if method == "join":
        return "queue.task_done()"
    return f"queue.{_OF_QUEUE.get(method or '', 'get(timeout=60)')}"


def _line(case: Case, wait: Wait) -> PythonFrame | None:
    thread = next((thread for thread in case.crash.threads if thread.tid == wait.thread), None)
    return line_of(thread) if thread is not None else None


def no_task_left(case: Case) -> Outcome:
    """No thread is left to wake another, and an event loop has no connection and no timer: only a task could wake another, and all wait."""
    crash = case.crash
    stuck = _stuck_tasks(crash)
    if not stuck:
        return no("no task waits in an event loop that nothing can wake") if crash.waits else unknown("what each thread waits for")
    if any(task.state != "waiting" for task in crash.tasks):
        return no("a task is ready to run")
    outcome = _all_inside(case)
    if not outcome.holds:
        return outcome
    told = [tasks.wait(crash, task) for task in stuck[:_MOST_EVIDENCE]]
    fields = {"waiting": "; ".join(told[:4])}
    if at := place(tasks.line_of(stuck[0])):
        fields["line"] = at
    return Outcome(True, tuple(Evidence(text=text, thread=task.loop_thread) for text, task in zip(told, stuck, strict=False)), fields)


def _stuck_tasks(crash: Crash) -> list[Task]:
    """The ends of the chains of waiting tasks, in loops that nothing outside of the process can wake."""
    loops = {wait.thread for wait in crash.waits if wait.kind == "poll" and wait.inside}
    return [task for task in tasks.stuck(crash) if task.loop_thread in loops]


def task_may_wait_for_a_signal(case: Case) -> Outcome:
    """A task waits for what a handler of a signal may set: an event, a condition or a future."""
    stuck = tasks.stuck(case.crash)
    if not stuck:
        return unknown("what asyncio's tasks wait for")
    found = next((task for task in stuck if tasks.awaited_kind(task) in (None, *_BY_HANDLERS)), None)
    if found is None:
        return no("the tasks wait for what other tasks do")
    return Outcome(True, (Evidence(text=tasks.wait(case.crash, found), thread=found.loop_thread),))


def may_wait_for_a_signal(case: Case) -> Outcome:
    """The main thread waits for an event or a condition, which a handler of a signal may set."""
    main = case.crash.process.pid if case.crash.process is not None else None
    wait = next((wait for wait in case.crash.waits if wait.thread == main), None)
    if wait is None:
        return unknown("what the main thread waits for")
    if wait.kind in _BY_HANDLERS:
        return Outcome(True, (Evidence(text=sentence(case.crash, wait), thread=wait.thread),))
    return no(sentence(case.crash, wait))


def deadlock_of_tasks(case: Case) -> Outcome:
    """Tasks of asyncio's wait for each other in a cycle, or one for itself. What a crash ended is not said to have hung."""
    crash = case.crash
    if not crash.tasks or not crash.waits:
        return unknown("what asyncio's tasks wait for")
    stuck = [task for task in crash.tasks if task.cycle]
    if not stuck:
        return no("no tasks wait for each other in a cycle")
    told = [tasks.wait(crash, task) for task in stuck[:_MOST_EVIDENCE]]
    fields = {"count": str(len(stuck)), "circle": "; ".join(told[:4])}
    if at := place(tasks.line_of(stuck[0])):
        fields["line"] = at
    evidence = tuple(Evidence(text=text, thread=task.loop_thread) for text, task in zip(told, stuck, strict=False))
    return Outcome(True, evidence, fields)


def lost_owner(case: Case) -> Outcome:
    """A forked process waits for a lock whose owner was not copied."""
    if case.crash.process is not None and case.crash.process.forked is False:
        return no("the process was not forked from one that ran the same program")
    lost = [wait for wait in case.crash.waits if wait.lost]
    if not lost:
        return no("no thread waits for a lock that was lost") if case.crash.waits else unknown("what the threads wait for")
    if case.crash.process is None or case.crash.process.forked is None:
        return unknown("whether the process was forked")
    return Outcome(True, _evidence(case, lost), {"waiting": sentence(case.crash, lost[0])})


def waits_for_collective(case: Case) -> Outcome:
    """A thread waits in a collective operation for other ranks."""
    return _waiting(case, [wait for wait in case.crash.waits if wait.kind == "collective"], "no thread waits in a collective")


def seen_waiting_for_gpu(case: Case) -> Outcome:
    """`crashkit run --hang-after` watched the process wait for the GPU, and a thread of it is in CUDA's driver."""
    source = case.crash.source
    if source is None or source.looked_at is None:
        return unknown("for how long it has been waiting")
    if not source.looked_at.startswith(SEEN_TO_WAIT):
        return no(f"it was looked at because {source.looked_at}")
    thread = next((thread for thread in case.crash.threads if thread.activity == "busy" and _is_in_driver(thread)), None)
    if thread is None or thread.tid is None:
        return no("no thread that runs is in CUDA's driver")
    return Outcome(True, (Evidence(text=source.looked_at, thread=thread.tid),), {"gpu_waiting_since": _sentence(source.looked_at)})


def waits_for_gpu(case: Case) -> Outcome:
    """A thread is in CUDA's driver, in a call that returns when the GPU has done its work: what launches, or asks once, is none."""
    for stack in case.stacks:
        call = next((native for native in stack.natives[:_NEAR] if SYNCHRONISES.fullmatch(native.name)), None)
        if call is not None and _is_in_driver(stack.thread):
            line = place(line_of(stack.thread))
            text = f"{label(case.crash, stack.thread.tid or 0)} waits in {call.name}"
            evidence = Evidence(text=text, thread=stack.thread.tid, frame=call.index)
            return Outcome(True, (evidence,), {"gpu_call": call.name, **({"gpu_line": line} if line else {})})
    return no("no thread waits in a synchronising call of CUDA's")


def _is_in_driver(thread: Thread) -> bool:
    """Whether its innermost frames are CUDA's driver, or what that calls to know the time."""
    below = thread.frames[handler_end(thread.frames) :]
    modules = [frame.module or "" for frame in below if isinstance(frame, NativeFrame)][:_ASKS]
    return any(map(DRIVER.search, modules)) and all(not one or SYSTEM.search(one) or DRIVER.search(one) for one in modules[:2])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def waits_for_input(case: Case) -> Outcome:
    """A thread of a live process waits for a connection, a pipe or a file, no thread is busy, and the main thread waits for nothing else
    that is outside of the process: of several such waits, the main thread's is the answer."""
    if not _lives(case):
        return unknown("what the file descriptors were")
    told = _inputs(case)
    if not told and (why := _not_input(case)):
        return no(why)
    return _waiting(case, told, "no thread waits for a connection, a pipe or a file")


def _inputs(case: Case) -> list[Wait]:
    """The waits for input that may be why the process hangs, the main thread's first."""
    if _not_input(case):
        return []
    main = _main(case)
    waits = [wait for wait in _blocked(case) if wait.kind in _INPUT]
    return sorted(waits, key=lambda wait: wait.thread != main)


def _not_input(case: Case) -> str:
    if any(thread.activity == "busy" for thread in case.crash.threads):
        return "a thread is busy"
    own = next((wait for wait in _blocked(case) if wait.thread == _main(case)), None)
    return f"the main thread waits for {KINDS[own.kind]}" if own is not None and own.kind in _OUTSIDE else ""


def _main(case: Case) -> int | None:
    return case.crash.process.pid if case.crash.process is not None else None


def _blocked(case: Case) -> Iterator[Wait]:
    activity = {thread.tid: thread.activity for thread in case.crash.threads}
    return (wait for wait in case.crash.waits if activity.get(wait.thread) == "blocked")


def _input_of_kind(kind: str) -> Fact:
    """The fact that what is waited for first is of this kind, by which the remedy differs."""

    def fact(case: Case) -> Outcome:
        told = _inputs(case)
        return _waiting(case, told[:1], "") if told and told[0].kind == kind else no(f"what is waited for is no {kind}")

    return fact


def waits_for_child(case: Case) -> Outcome:
    """The main thread of a live process waits for a child process, and no thread is busy."""
    if not _lives(case):
        return unknown("whether the child ran")
    if any(thread.activity == "busy" for thread in case.crash.threads):
        return no("a thread is busy")
    waits = [wait for wait in _blocked(case) if wait.kind == "child" and wait.thread == _main(case)]
    outcome = _waiting(case, waits, "the main thread does not wait for a child process")
    child = waits[0].process if waits else None
    return replace(outcome, fields={**outcome.fields, "child": str(child)}) if child is not None else outcome


def child_waits_on_pipe(case: Case) -> Outcome:
    """The child that the main thread waits for waits itself, for a pipe whose other end only this process has."""
    told = waits_for_child(case)
    if not told.holds:
        return told
    own = _main(case)
    waits = [wait for wait in _blocked(case) if wait.kind == "child" and wait.thread == own]
    match = next((found for wait in waits if (found := _OTHER_END.search(wait.name or "")) and int(found["pid"]) == own), None)
    if match is None:
        return no("the child does not wait for a pipe that this process has open")
    reads = match["how"] == "reading"
    why = "writes into a pipe that is full, and that only its parent reads" if reads else "reads a pipe that only its parent can close"
    return replace(told, fields={**told.fields, "child_why": f"The child {why}: it cannot go on, and its parent does not"})


def busy(case: Case) -> Outcome:
    """One thread of a live process uses nearly a whole processor."""
    if not _lives(case):
        return unknown("how much processor time the threads used")
    thread = max(case.crash.threads, key=lambda one: one.processor or 0.0, default=None)
    if thread is None or thread.tid is None or (thread.processor or 0.0) < 0.8:
        return no("no thread was busy while it was watched")
    text = f"{label(case.crash, thread.tid)} ran for {thread.processor or 0:.0%} of the time that it was watched"
    at = place(line_of(thread))
    said = f"{label(case.crash, thread.tid)} was busy{f' in {at}' if at else ''}"
    return Outcome(True, (Evidence(text=text, thread=thread.tid),), {"busy": said})


def _lives(case: Case) -> bool:
    return case.crash.source is not None and case.crash.source.kind == "live"


def alive(case: Case) -> Outcome:
    """The process ran when it was looked at."""
    return Outcome(True) if _lives(case) else no("the process had ended")


def _waiting(case: Case, waits: list[Wait], otherwise: str) -> Outcome:
    if not waits:
        return no(otherwise) if case.crash.waits else unknown("what the threads wait for")
    return Outcome(True, _evidence(case, waits), {"waiting": sentence(case.crash, waits[0])})


def _evidence(case: Case, waits: Iterable[Wait]) -> tuple[Evidence, ...]:
    return tuple(Evidence(text=sentence(case.crash, wait), thread=wait.thread) for wait in islice(waits, _MOST_EVIDENCE))


FACTS = {
    "deadlock-of-locks": deadlock_of_locks,
    "deadlock-with-gil": deadlock_with_gil,
    "deadlock-with-import": deadlock_with_import,
    "deadlock-of-tasks": deadlock_of_tasks,
    "nobody-left": nobody_left,
    "no-task-left": no_task_left,
    "task-may-wait-for-a-signal": task_may_wait_for_a_signal,
    "may-wait-for-a-signal": may_wait_for_a_signal,
    "lost-owner": lost_owner,
    "waits-for-collective": waits_for_collective,
    "seen-waiting-for-gpu": seen_waiting_for_gpu,
    "waits-for-gpu": waits_for_gpu,
    "waits-for-input": waits_for_input,
    **{f"waits-for-input-{kind}": _input_of_kind(kind) for kind in sorted(_INPUT)},
    "waits-for-child": waits_for_child,
    "child-waits-on-pipe": child_waits_on_pipe,
    "busy": busy,
    "alive": alive,
}
