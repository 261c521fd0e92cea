"""asyncio's locks: for which one a task waits, which task holds it, and which tasks wait for each other in a circle.

A `Lock` of asyncio's (Lib/asyncio/locks.py) does not record its owner either: it is the task in whose coroutine the lock's `__aexit__` is
kept by an `async with` block (`kept_values`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Optional

from crashkit.interpreter.frames import Frames, FrameState
from crashkit.interpreter.locks import bound_to, kept_values
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.values import Values
from crashkit.interpreter.view import TimeUp, Unreadable

if TYPE_CHECKING:
    from crashkit.interpreter.tasks import TaskState

_SECONDS = 1.0
"""Of processor time, at most, to find the holders."""
_NEAR = 6
"""Innermost frames of a task that may be those of asyncio's `acquire`."""
_MOST_FRAMES = 40
_NAMED_FRAMES = 2
_MOST_ATTRIBUTES = 100
_MOST_GLOBALS = 2000
_LIMITS = frozenset({"Timeout", "CancelScope"})
"""Classes of asyncio, async_timeout and anyio whose block ends at a time: what stands in it does not wait for ever."""


class TaskLock(NamedTuple):
    """The lock that a task waits for."""

    name: Optional[str]
    """What a variable or an attribute calls it."""
    holder: int
    """The address of the task that holds it; 0 if it is not known."""
    frame: Optional[int]
    """Index of the frame of that task whose block it is."""


class TaskLocks(NamedTuple):
    """All that is known of the locks of tasks."""

    wanted: Mapping[int, TaskLock]
    """By the address of the task that waits."""
    limited: frozenset[int]
    """Addresses of tasks that wait for a lock, or hold one, in a block that ends at a time."""


NONE = TaskLocks({}, frozenset())


class TaskLockReader:
    """Reads the locks of one interpreter's tasks."""

    def __init__(self, objects: Objects, frames: Frames, values: Values) -> None:
        self._objects, self._frames, self._values = objects, frames, values

    def read(self, tasks: Sequence[TaskState]) -> TaskLocks:
        """The locks that these tasks wait for."""
        waiting: dict[int, int] = {}
        holders: dict[int, tuple[int, int]] = {}
        names: dict[int, Optional[str]] = {}
        limited: set[int] = set()
        try:
            with self._objects.within(_SECONDS):
                for task in tasks:
                    if task.state == "waiting" and (lock := self._wanted(task.frames)):
                        waiting[task.address] = lock
                if not waiting:
                    return NONE
                locks = set(waiting.values())
                for task in tasks:
                    for held, index in self._held(task.frames, limited, task.address):
                        if held in locks:
                            holders.setdefault(held, (task.address, index))
                for task in tasks:
                    lock = waiting.get(task.address, 0)
                    if lock and lock not in names:
                        names[lock] = self._name(lock, task.frames)
        except TimeUp:
            pass
        wanted = {}
        for address, lock in waiting.items():
            holder, frame = holders.get(lock, (0, None))
            wanted[address] = TaskLock(names.get(lock), holder, frame)
        return TaskLocks(wanted, frozenset(limited))

    def _wanted(self, frames: Sequence[FrameState]) -> int:
        """The address of the lock; 0 if the task waits for something else, or for a lock that was released already."""
        for frame in frames[:_NEAR]:
            folder, file, name = _place(frame)
            if folder != "asyncio":
                return 0
            if (file, name) == ("locks.py", "acquire"):
                try:
                    own = next((one.value for one in self._frames.variables(frame, 1) if one.name == "self"), 0)
                    return own if own and self._is_locked(own) else 0
                except Unreadable:
                    return 0
        return 0

    def _is_locked(self, address: int) -> bool:
        """Whether it is a lock, which a semaphore is not, and taken."""
        taken = self._objects.attribute(address, "_locked")
        return bool(taken and self._objects.integer(taken))

    def _held(self, frames: Sequence[FrameState], limited: set[int], task: int) -> Iterator[tuple[int, int]]:
        """The objects of `async with` blocks, each with the index of its frame; notes whether a block ends at a time."""
        for index, frame in enumerate(frames[:_MOST_FRAMES]):
            try:
                for value in kept_values(self._objects, self._frames, frame):
                    own = bound_to(self._objects, self._values, value)
                    if own is None:
                        continue
                    if self._values.type_name(self._objects.type_of(own)).rpartition(".")[2] in _LIMITS:
                        limited.add(task)
                    yield self._inner(own), index
            except Unreadable:
                continue

    def _inner(self, address: int) -> int:
        """The lock of a condition, or the object itself."""
        try:
            return self._objects.attribute(address, "_lock") or address
        except Unreadable:
            return address

    def _name(self, lock: int, frames: Sequence[FrameState]) -> Optional[str]:
        own = [frame for frame in frames if _place(frame)[0] != "asyncio"][:_NAMED_FRAMES]
        for frame in own:
            for variable in self._frames.variables(frame, 64):
                if variable.value == lock:
                    return variable.name
                try:
                    for item in islice(self._objects.attributes(variable.value), _MOST_ATTRIBUTES):
                        if item.value == lock:
                            return f"{variable.name}.{self._objects.text(item.key, 100)}"
                except Unreadable:
                    continue
            try:
                contents = self._objects.view.word(frame.address + self._frames.globals_at)
                for item in self._objects.dictionary(contents, _MOST_GLOBALS):
                    if item.value == lock:
                        return self._objects.text(item.key, 100)
            except Unreadable:
                continue
        return None


def _place(frame: FrameState) -> tuple[str, str, str]:
    """The folder, the file and the function, each without what stands before."""
    folder, _, file = (frame.code.file or "" if frame.code else "").rpartition("/")
    return folder.rpartition("/")[2], file, (frame.code.name or "" if frame.code else "").rpartition(".")[2]


def in_circles(edges: Mapping[int, Iterable[int]]) -> set[int]:
    """Who waits for each other in a circle, or between two circles. Each needs all that it waits for."""
    ahead = {one: {other for other in others if other in edges} for one, others in edges.items()}
    behind: dict[int, set[int]] = {one: set() for one in ahead}
    for one, others in ahead.items():
        for other in others:
            behind[other].add(one)
    for forth, back in ((ahead, behind), (behind, ahead)):
        ends = [one for one, others in forth.items() if not others]
        while ends:
            gone = ends.pop()
            forth.pop(gone, None)
            for other in back.pop(gone, ()):
                if other in forth:
                    forth[other].discard(gone)
                    if not forth[other]:
                        ends.append(other)
    return set(ahead)
