"""asyncio's tasks: their names, where each waits and for what, without running any code of the process.

`asyncio.tasks` keeps all scheduled tasks in a WeakSet and the running one of each loop in a dict (Lib/asyncio/tasks.py). A task of C knows
its coroutine and the future that it waits for (Modules/_asynciomodule.c, `TaskObj`); a suspended coroutine has what it awaits on top of its
stack of values (Objects/genobject.c, `_PyGen_yf`). Which tasks a future stands for is found behind it (`futures.py`), or in variables of
asyncio's own functions. From 3.14 on tasks are in lists (`task_lists.py`).

CPython 3.8 to 3.14, and free-threaded builds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple, Optional

import msgspec

from crashkit.interpreter.frames import Frames, FrameState
from crashkit.interpreter.futures import FUNCTION, GATHER, MOST_AWAITED, Futures
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.task_lists import listed
from crashkit.interpreter.task_locks import NONE, ReadSource, TaskLockReader, TaskLocks, stuck_in_circles
from crashkit.interpreter.threads import module_contents
from crashkit.interpreter.values import Values
from crashkit.interpreter.view import TimeUp, Unreadable

MOST_TASKS = 100_000
_MOST_ENTRIES = 1 << 22
"""Of the table of the set that holds them: it has several for each."""
_MOST_COROUTINES = 200
"""Coroutines of one task that await each other."""
_MOST_BASES = 16
_LONGEST_NAME = 200
_PATIENCE = 3.0
"""Seconds of processor time after which no more tasks are read: containers that are damaged can take long to look through. Thirty thousand
tasks take so long."""
_TO_COUNT = 1.0
"""Of them, at most, to find and count the tasks, so that it can be said how many were not read."""

_HEAD = 16
"""Bytes of PyObject_HEAD that `OFFSETS` count; free-threaded builds have more.

Right behind it are `task_loop`, `PyWeakReference.wr_object`, and `ags_gen`, `agt_gen` and `cw_coroutine` of what stands for a coroutine or
an asynchronous generator.
"""
_PENDING = 0
_SUSPENDED = -1
"""`PyFrameState`, also of a 3.13 that distinguishes `await` and `yield`."""
_COROUTINES = frozenset({"coroutine", "generator", "async_generator"})
_STAND_INS = frozenset({"coroutine_wrapper", "async_generator_asend", "async_generator_athrow"})
_TASK, _FUTURE = "_asyncio.Task", "_asyncio.Future"
_TYPES = {
    ("asyncio.tasks", "_CTask"): _TASK,
    ("asyncio.futures", "_CFuture"): _FUTURE,
    ("types", "CoroutineType"): "coroutine",
    ("types", "GeneratorType"): "generator",
    ("types", "AsyncGeneratorType"): "async_generator",
    ("types", "FunctionType"): FUNCTION,
}
"""What modules call the types that matter here."""
_AWAITING = {
    ("taskgroups.py", "__aexit__"): ("self", "_tasks"),
    ("taskgroups.py", "_aexit"): ("self", "_tasks"),
    ("tasks.py", "_wait"): ("fs", None),
    ("tasks.py", "wait_for"): ("fut", None),
    ("tasks.py", "_wait_for_one"): ("self", "_todo"),
}
"""Functions of asyncio that wait for tasks by a future of their own: the variable with the tasks, or the attribute of it."""
_COMPLETED = "done"
"""Up to 3.12 `_wait_for_one` has a queue instead: `as_completed` puts into it what is done."""

_OBJECTS = frozenset({"locks.py", "queues.py", "streams.py", "subprocess.py", "base_subprocess.py"})
"""Files of asyncio with methods that wait: for a lock, a queue, data, the end of a process."""
_FUNCTIONS = {
    ("tasks.py", "sleep"): "sleep()",
    ("tasks.py", "wait_for"): "wait_for()",
    ("tasks.py", "_wait_for_one"): "as_completed()",
    ("threads.py", "to_thread"): "to_thread()",
}
"""What the program called, by the function that waits."""


_TIMED = "wait_for()"
_FOR_ALL = frozenset({"Task", "gather"})
"""What ends only once all tasks that are waited for have ended. So does the end of a `TaskGroup`."""


class Offsets(NamedTuple):
    """Where one version keeps what is needed: in a task, in a coroutine, and in the frame of a suspended one."""

    state: int
    waiter: int
    coroutine: int
    name: int
    frame: int
    """In a coroutine: its frame from 3.11 on, before that a pointer to it."""
    frame_state: Optional[int] = None
    """In a coroutine, 3.11 and newer."""
    top: int = 0
    """In a frame: a pointer behind the top of its stack of values (3.8, 3.9), the depth of that stack (3.10), or the same counted from the
    first variable on (3.11 and newer)."""
    values: Optional[int] = None
    """In a frame: a pointer to its stack of values, 3.10."""
    listed: bool = False
    """Whether tasks are in lists, and `top` is a pointer behind the top of the stack of values again (3.14)."""

    def behind(self, head: int) -> Offsets:
        """The same for objects whose PyObject_HEAD has this size."""
        more = head - _HEAD
        return self._replace(
            state=self.state + more,
            waiter=self.waiter + more,
            coroutine=self.coroutine + more,
            name=self.name + more,
            frame=self.frame + more,
            frame_state=None if self.frame_state is None else self.frame_state + more,
        )


OFFSETS = {
    (3, 8): Offsets(state=72, waiter=104, coroutine=112, name=120, frame=16, top=72),
    (3, 9): Offsets(state=80, waiter=144, coroutine=152, name=160, frame=16, top=72),
    (3, 10): Offsets(state=88, waiter=152, coroutine=160, name=168, frame=16, top=80, values=64),
    (3, 11): Offsets(state=88, waiter=128, coroutine=136, name=144, frame=80, frame_state=75, top=64),
    (3, 12): Offsets(state=88, waiter=128, coroutine=136, name=144, frame=72, frame_state=67, top=64),
    (3, 13): Offsets(state=96, waiter=112, coroutine=120, name=128, frame=72, frame_state=67, top=64),
    (3, 14): Offsets(state=104, waiter=120, coroutine=128, name=136, frame=72, frame_state=67, top=64, listed=True),
}
"""By version, from debug info of x86-64; all 64-bit processors have the same."""


class TaskState(msgspec.Struct, frozen=True):
    """One task that has not ended."""

    address: int
    name: Optional[str]
    state: str
    """running, ready (it will go on by itself), waiting."""
    ident: Optional[int]
    """Of the thread that runs its loop; None if it is not known."""
    frames: tuple[FrameState, ...]
    """Innermost first. Of a running task, those of its coroutines that the thread's stack has."""
    awaits: tuple[int, ...]
    """The addresses of the tasks that it waits for."""
    waits_for: Optional[str]
    """What it called of asyncio's, or the type of the future that it waits for."""


class Tasks(msgspec.Struct, frozen=True):
    """The tasks of one interpreter."""

    found: tuple[TaskState, ...] = ()
    in_time: bool = True
    """False if the time ran out."""
    left_out: int = 0
    """How many there are besides."""
    all_counted: bool = True
    """False if there may be still more."""
    locks: TaskLocks = NONE

    def stuck(self) -> set[int]:
        """The addresses of the tasks that wait for each other in a circle, for locks or for each other's end, without a time limit."""
        limited = {address for task in self.found if task.waits_for == _TIMED for address in (task.address, *task.awaits)}
        needs_all, waits, holders = {}, {}, {}
        for task in self.found:
            if task.state != "waiting" or task.address in limited or task.address in self.locks.limited:
                continue
            lock = self.locks.wanted.get(task.address)
            others = task.awaits if task.waits_for in _FOR_ALL or _is_group(task) else ()
            needs_all[task.address] = others
            if lock is not None and lock.holders:
                waits[task.address] = lock.lock
                holders[lock.lock] = lock.holders
        return stuck_in_circles(needs_all, waits, holders)


def _is_group(task: TaskState) -> bool:
    code = task.frames[0].code if task.frames else None
    return code is not None and f"/{code.file}".endswith("/asyncio/taskgroups.py")


class TaskReader:
    """Reads the tasks of one interpreter."""

    def __init__(self, objects: Objects, frames: Frames, values: Values, offsets: Offsets) -> None:
        self._objects, self._frames, self._values, self._at = objects, frames, values, offsets.behind(objects.head)
        self._view = objects.view
        self._known_bases: dict[int, frozenset[str]] = {}
        self._known: dict[int, str] = {}
        self._idents: dict[int, Optional[int]] = {}
        self._futures = Futures(objects, self._type_name, self._is_task)
        self._places: list[int] = []
        self._know_completions = False

    def read(self, interpreter: int, stacks: Sequence[tuple[int, Sequence[FrameState]]], source: ReadSource = lambda _name: None) -> Tasks:
        """The tasks that have not ended, running ones first. `stacks`: each thread's ident and frames, innermost first."""
        found: list[TaskState] = []
        places = self._places = []
        self._know_completions = False
        running: set[int] = set()
        began = time.thread_time()
        all_counted = done = False
        read = 0
        try:
            with self._objects.within(min(_TO_COUNT, _PATIENCE)):
                all_counted = self._find(interpreter, places, running)
        except TimeUp:
            pass
        threads = {frame.address: (ident, stack) for ident, stack in stacks for frame in stack} if running else {}
        try:
            with self._objects.within(_PATIENCE - (time.thread_time() - began)):
                for read, address in enumerate(places):  # noqa: B007
                    with suppress(Unreadable):
                        found.append(self._task(address, address in running, threads))
            done = True
        except TimeUp:
            pass
        locks = TaskLockReader(self._objects, self._frames, self._values, source).read(found)
        return Tasks(tuple(found), all_counted and done, 0 if done else len(places) - read, all_counted, locks)

    def _find(self, interpreter: int, places: list[int], running: set[int]) -> bool:
        """Add the addresses of the tasks that have not ended, running ones first; whether these are all. Raises TimeUp."""
        try:
            contents = module_contents(self._objects, interpreter, "asyncio.tasks")
        except Unreadable:
            return True
        if contents is None:
            return True
        self._learn_types(interpreter, contents)
        running.update(self._running(contents, interpreter))
        seen: set[int] = set()
        for address in chain(running, self._scheduled(contents, interpreter)):
            if address in seen:
                continue
            seen.add(address)
            try:
                if self._is_task(address) and self._view.int32(address + self._at.state) == _PENDING:
                    places.append(address)
            except Unreadable:
                continue
            if len(places) >= MOST_TASKS:
                return False
        return True

    def _learn_types(self, interpreter: int, contents: int) -> None:
        """Types by the names that modules give them: what C calls them is in a file that may be missing."""
        self._known.clear()
        modules = {"asyncio.tasks": contents}
        for module, name in _TYPES:
            if module not in modules:
                modules[module] = 0
                with suppress(Unreadable):  # what is left of memory may lack one of them
                    modules[module] = module_contents(self._objects, interpreter, module) or 0
            with suppress(Unreadable):
                if modules[module] and (address := self._objects.item(modules[module], name)):
                    self._known.setdefault(address, _TYPES[module, name])

    def _type_name(self, kind: int) -> str:
        return self._known.get(kind) or self._values.type_name(kind)

    def _running(self, contents: int, interpreter: int) -> Iterator[int]:
        for one in listed(self._objects, interpreter, MOST_TASKS) if self._at.listed else ():
            if not one.running:
                break
            yield one.address
        try:
            tasks = self._objects.item(contents, "_current_tasks")
            for item in self._objects.dictionary(tasks, MOST_AWAITED) if tasks else ():
                yield item.value
        except Unreadable:
            return

    def _scheduled(self, contents: int, interpreter: int) -> Iterator[int]:
        """What the lists hold or the WeakSet refers to, and from 3.12 on tasks that began to run before they were scheduled."""
        for one in listed(self._objects, interpreter, MOST_TASKS) if self._at.listed else ():
            yield one.address
        for name in ("_scheduled_tasks", "_all_tasks"):
            try:
                tasks = self._objects.item(contents, name)
                references = self._objects.attribute(tasks, "data") if tasks else None
                for reference in self._objects.members(references, MOST_TASKS, _MOST_ENTRIES) if references else ():
                    yield self._view.word(reference + self._objects.head)
            except Unreadable:
                continue
        try:
            eager = self._objects.item(contents, "_eager_tasks")
            yield from self._objects.members(eager, MOST_TASKS, _MOST_ENTRIES) if eager else ()
        except Unreadable:
            return

    def _is_task(self, address: int) -> bool:
        return _TASK in self._bases(address)

    def _bases(self, address: int) -> frozenset[str]:
        """The names of its type and of those that it inherits from."""
        kind = base = self._objects.type_of(address)
        if kind not in self._known_bases:
            names = []
            for _ in range(_MOST_BASES):
                names.append(self._type_name(base))
                base = self._view.word(base + self._objects.layout.type.base)
                if not base:
                    break
            self._known_bases[kind] = frozenset(names)
        return self._known_bases[kind]

    def _is_done(self, waiter: int) -> bool:
        """Whether what a task waits for is done: the loop has only to run the task. A future of Python code is not read."""
        with suppress(Unreadable):
            return not self._bases(waiter).isdisjoint((_FUTURE, _TASK)) and self._view.int32(waiter + self._at.state) != _PENDING
        return False

    def _task(self, address: int, running: bool, places: dict[int, tuple[int, Sequence[FrameState]]]) -> TaskState:
        view, at = self._view, self._at
        awaiting, frames = self._coroutines(view.word(address + at.coroutine))
        loop = view.word(address + self._objects.head)
        ident = self._ident(loop)
        if running and awaiting and (place := places.get(awaiting[0])):
            frames = _above(place[1], awaiting[0]) or frames
            ident = self._idents[loop] = place[0]
        waiter = view.word(address + at.waiter)
        awaits, waits_for = (
            self._awaited(waiter, frames) if waiter not in (0, self._values.nothing) and not self._is_done(waiter) else ((), None)
        )
        return TaskState(
            address,
            self._name(address),
            "running" if running else "waiting" if waits_for else "ready",
            ident,
            frames,
            awaits,
            waits_for,
        )

    def _name(self, address: int) -> Optional[str]:
        """From 3.12 on `Task-7` is the number 7 until somebody asks for the name."""
        try:
            name = self._view.word(address + self._at.name)
            kind = self._type_name(self._objects.type_of(name))
            return f"Task-{self._objects.integer(name)}" if kind == "int" else self._objects.text(name, _LONGEST_NAME)
        except Unreadable:
            return None

    def _ident(self, loop: int) -> Optional[int]:
        """uvloop's and other loops of C do not show theirs: then it is known once one of their tasks is found to run."""
        if loop not in self._idents:
            self._idents[loop] = None
            try:
                ident = self._objects.attribute(loop, "_thread_id")
                if ident and ident != self._values.nothing:
                    self._idents[loop] = self._objects.integer(ident)
            except Unreadable:
                pass
        return self._idents[loop]

    def _coroutines(self, coroutine: int) -> tuple[list[int], tuple[FrameState, ...]]:
        """The addresses of the frames of a chain of coroutines, outermost first, and those frames, innermost first."""
        awaiting: list[int] = []
        found: list[FrameState] = []
        seen: set[int] = set()
        try:
            while coroutine and coroutine not in seen and len(seen) < _MOST_COROUTINES:
                seen.add(coroutine)
                kind = self._type_name(self._objects.type_of(coroutine))
                if kind in _STAND_INS:
                    coroutine = self._view.word(coroutine + self._objects.head)
                    continue
                frame = self._frame_of(coroutine) if kind in _COROUTINES else 0
                if not frame:
                    break
                awaiting.append(frame)
                found.append(self._frames.frame(frame))
                coroutine = self._top(coroutine, frame)
        except Unreadable:
            pass
        return awaiting, tuple(reversed(found))

    def _frame_of(self, coroutine: int) -> int:
        """0 for one that has ended."""
        place = coroutine + self._at.frame
        if self._at.frame_state is None:
            return self._view.word(place)
        return place if _signed(self._view.byte(coroutine + self._at.frame_state)) <= 0 else 0

    def _top(self, coroutine: int, frame: int) -> int:
        """The address of the object that a suspended coroutine awaits; 0 for one that runs or has not begun."""
        view, at = self._view, self._at
        if at.frame_state is not None:
            if _signed(view.byte(coroutine + at.frame_state)) != _SUSPENDED:
                return 0
            local = frame + self._objects.layout.frame.locals
            if at.listed:
                behind = view.word(frame + at.top)
                return self._frames.untagged(self._word_before(behind, 0, behind > local))
            depth = view.int32(frame + at.top)
            return self._word_before(local, depth)
        if at.values is not None:
            return self._word_before(view.word(frame + at.values), view.int32(frame + at.top))
        behind = view.word(frame + at.top)
        # A coroutine that has not begun has nothing on its stack.
        return self._word_before(behind, 0, behind > view.word(frame + 64)) if behind else 0

    def _word_before(self, start: int, depth: int, any_left: Optional[bool] = None) -> int:
        if not (depth > 0 if any_left is None else any_left):
            return 0
        return self._view.word(start + (depth - 1) * self._view.word_size)

    def _awaited(self, waiter: int, frames: Sequence[FrameState]) -> tuple[tuple[int, ...], Optional[str]]:
        """The tasks behind a future, and the name of its type."""
        try:
            kind = self._type_name(self._objects.type_of(waiter)).rpartition(".")[2].replace("object", "Future")
            if self._is_task(waiter):
                return (waiter,), kind
        except Unreadable:
            return (), "Future"
        called = "gather" if kind == GATHER else "shield()" if self._futures.is_shield(waiter) else self._called(frames)
        tasks: tuple[int, ...] = ()
        with suppress(Unreadable):
            tasks = self._by_variable(frames)
        return tasks or self._futures.tasks(waiter), called or kind

    def _called(self, frames: Sequence[FrameState]) -> Optional[str]:
        """What of asyncio's waits, as the program called it: `Lock.acquire()`, `Queue.get()`, `sleep()`; None where it awaits a future."""
        called = None
        for frame in frames:
            folder, _, file = (frame.code.file or "" if frame.code else "").rpartition("/")
            name = (frame.code.name or "" if frame.code else "").rpartition(".")[2]
            if not folder.endswith("/asyncio"):
                break
            if (file, name) in _FUNCTIONS:
                called = _FUNCTIONS[file, name]
            elif file in _OBJECTS and not name.startswith("_"):
                with suppress(Unreadable):
                    own = next((one.value for one in self._frames.variables(frame, 1) if one.name == "self"), 0)
                    kind = self._type_name(self._objects.type_of(own)).rpartition(".")[2] if own else ""
                    called = f"{kind}.{name}()" if kind else called
        return called

    def _by_variable(self, frames: Sequence[FrameState]) -> tuple[int, ...]:
        """The tasks that the innermost of asyncio's functions waits for, if it is one that has them in a variable."""
        for frame in frames:
            folder, _, file = (frame.code.file or "" if frame.code else "").rpartition("/")
            if not folder.endswith("/asyncio"):
                break
            known = _AWAITING.get((file, (frame.code.name or "").rpartition(".")[2] if frame.code else ""))
            if known is not None:
                return self._in_variable(frame, *known)
        return ()

    def _in_variable(self, frame: FrameState, name: str, attribute: Optional[str]) -> tuple[int, ...]:
        variables = {one.name: one.value for one in self._frames.variables(frame, 64)}
        value = variables.get(name, 0)
        if value and attribute:
            value = self._objects.attribute(value, attribute) or 0
        if value:
            return self._futures.tasks(value)
        queue = variables.get(_COMPLETED)
        if attribute is None or queue is None:
            return ()
        if not self._know_completions:
            self._know_completions = True
            self._futures.learn_completions(self._places)
        return self._futures.completing(queue)


def _above(stack: Sequence[FrameState], address: int) -> tuple[FrameState, ...]:
    """The frames of a thread's stack down to the one at `address`; of a very deep one, those next to it."""
    end = next((index for index, frame in enumerate(stack) if frame.address == address), -1)
    return tuple(stack[max(0, end + 1 - _MOST_COROUTINES) : end + 1])


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte
