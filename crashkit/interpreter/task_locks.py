"""What of asyncio's a task waits for (locks, semaphores, events, ...), which tasks hold it, and which wait for each other in a circle.

asyncio (Lib/asyncio/locks.py, queues.py) does not record who has a `Lock` or a `Semaphore`. It is the task in whose coroutine the
`__aexit__` is kept by an `async with` block (`kept_values`), or the one whose source says that it has taken it where it stands
(`acquired.py`).
`Condition.wait` releases the lock of the block that it stands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Optional

import msgspec

from crashkit.interpreter.acquired import Expression, Parsed, Standing
from crashkit.interpreter.exit_stacks import exits
from crashkit.interpreter.frame_fields import globals_at
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
_MOST_HOLDERS = 1000
_LOCK, _SEMAPHORE = "lock", "semaphore"
_METHODS = {"locks.py": frozenset({"acquire", "wait", "wait_for"}), "queues.py": frozenset({"get", "put", "join"})}
"""Methods of asyncio's that wait, by file."""
_LIMITS = frozenset({"Timeout", "CancelScope"})
"""Classes of asyncio, async_timeout and anyio whose block ends at a time: what stands in it does not wait for ever."""


ReadSource = Callable[[str], Optional[str]]
"""The text of a source that the process named so; None if there is none, or another one than it ran."""


class TaskLock(msgspec.Struct, frozen=True):
    """What a task waits for."""

    name: Optional[str]
    """What a variable or an attribute calls it."""
    holder: int = 0
    """The address of the task that holds it, of several the first; 0 if it is not known, or there cannot be one."""
    frame: Optional[int] = None
    """Index of the frame of that task that took it."""
    detail: Optional[str] = None
    """Why it waits, as the object says: `not set`, `2 of 3 have come`."""
    holders: tuple[int, ...] = ()
    """Of a semaphore: the tasks one of which has to release it, if all of them are known; else nothing. Of a lock, the holder."""
    lock: int = 0
    """The address of what it waits for."""


class TaskLocks(msgspec.Struct, frozen=True):
    """All that is known of the locks of tasks."""

    wanted: Mapping[int, TaskLock]
    """By the address of the task that waits."""
    limited: frozenset[int]
    """Addresses of tasks that stand in a block that ends at a time, and of those of which there was no time to find out."""


NONE = TaskLocks({}, frozenset())


class _Wanted(msgspec.Struct, frozen=True):
    """What one task waits for."""

    address: int
    kind: str
    """lock, semaphore, or the name of another class."""
    method: str


class TaskLockReader:
    """Reads the locks of one interpreter's tasks."""

    def __init__(self, objects: Objects, frames: Frames, values: Values, source: ReadSource = lambda _name: None) -> None:
        self._objects, self._frames, self._values, self._source = objects, frames, values, source
        self._parsed: dict[str, Parsed] = {}

    def read(self, tasks: Sequence[TaskState]) -> TaskLocks:
        """What these tasks wait for."""
        waiting: dict[int, _Wanted] = {}
        holders: dict[int, dict[tuple[int, int], None]] = {}
        names: dict[int, Optional[str]] = {}
        details: dict[_Wanted, Optional[str]] = {}
        complete: set[_Wanted] = set()
        limited: set[int] = set()
        unread = {task.address for task in tasks}
        try:
            with self._objects.within(_SECONDS):
                for task in tasks:
                    if task.state == "waiting" and (wanted := self._wanted(task.frames)):
                        waiting[task.address] = wanted
                locks = {one.address for one in waiting.values() if one.kind in (_LOCK, _SEMAPHORE)}
                for task in tasks if locks else ():
                    for held, index in self._held(task.frames, locks, limited, task.address):
                        if held in locks and len(found := holders.setdefault(held, {})) < _MOST_HOLDERS:
                            found[task.address, index] = None
                    unread.discard(task.address)
                for task in tasks:
                    wanted = waiting.get(task.address)
                    if wanted and wanted.address not in names:
                        names[wanted.address] = self._name(wanted.address, task.frames)
                    if wanted and wanted not in details:
                        details[wanted] = None
                        with suppress(Unreadable):
                            details[wanted] = self._detail(wanted)
                complete.update(self._complete(dict.fromkeys(waiting.values()), names, holders, tasks))
                for task in tasks:
                    # Who waits for no task and no lock can be in no circle.
                    if task.awaits and task.address in unread:
                        for _ in self._held(task.frames, locks, limited, task.address):
                            pass
                        unread.discard(task.address)
                unread.clear()
        except TimeUp:
            pass
        told: dict[_Wanted, TaskLock] = {}
        for wanted in dict.fromkeys(waiting.values()):
            found = holders.get(wanted.address, {})
            told[wanted] = self._told(wanted, names.get(wanted.address), found, details.get(wanted), wanted in complete)
        return TaskLocks({address: told[wanted] for address, wanted in waiting.items()}, frozenset(limited | unread))

    def _told(
        self, wanted: _Wanted, name: Optional[str], found: Mapping[tuple[int, int], None], detail: Optional[str], all_known: bool
    ) -> TaskLock:
        # Only one has a lock. Who only seems to is not known.
        if not found or (wanted.kind == _LOCK and len({task for task, _ in found}) > 1):
            return TaskLock(name, detail=detail, lock=wanted.address)
        task, frame = next(iter(found))
        others = tuple(dict.fromkeys(one for one, _ in found))
        several = f"{len(others)} tasks have it" if len(others) > 1 else None
        return TaskLock(name, task, frame, several, others if all_known or wanted.kind == _LOCK else (), wanted.address)

    def _complete(
        self,
        waiting: Iterable[_Wanted],
        names: Mapping[int, Optional[str]],
        holders: Mapping[int, Mapping[tuple[int, int], None]],
        tasks: Sequence[TaskState],
    ) -> Iterator[_Wanted]:
        """The semaphores that nobody has but those found. Raises TimeUp."""
        files: Optional[Sequence[str]] = None
        for wanted in waiting:
            found = holders.get(wanted.address)
            if wanted.kind != _SEMAPHORE or not found:
                continue
            if files is None:
                files = self._files(tasks)
            with suppress(Unreadable):
                if self._taken_units(wanted.address, names.get(wanted.address), files) == len(found):
                    yield wanted

    def _files(self, tasks: Sequence[TaskState]) -> Sequence[str]:
        """The sources of the tasks, but for asyncio's. Raises TimeUp."""
        files: dict[str, None] = {}
        for task in tasks:
            self._objects.view.check_time()
            for frame in task.frames:
                if frame.code is not None and frame.code.file and frame.code.file not in files and _place(frame)[0] != "asyncio":
                    files[frame.code.file] = None
        return tuple(files)

    def _taken_units(self, address: int, name: Optional[str], files: Sequence[str]) -> Optional[int]:
        """How often a semaphore is taken; None if it is not known with what value it began. Raises Unreadable, TimeUp."""
        value = self._number(address, "_value")
        first = self._number(address, "_bound_value")
        if first is None and name is not None:
            last = name.rpartition(".")[2]
            told = {one for file in files if (one := self._of(file).first_value(last))}
            first = next(iter(told)) if len(told) == 1 else None
        return first - value if first is not None and value is not None else None

    def _wanted(self, frames: Sequence[FrameState]) -> Optional[_Wanted]:
        """What the innermost frames wait for; None if it is nothing of these, or a lock that was released already."""
        found = None
        for frame in frames[:_NEAR]:
            folder, file, name = _place(frame)
            if folder != "asyncio":
                break
            if name not in _METHODS.get(file, ()):
                continue
            try:
                own = next((one.value for one in self._frames.variables(frame, 1) if one.name == "self"), 0)
                if own and name == "acquire":
                    # A condition that was notified waits for its lock, whatever waits for the condition.
                    return self._taken(own)
                if own:
                    found = _Wanted(own, self._values.type_name(self._objects.type_of(own)).rpartition(".")[2], name)
            except Unreadable:
                return None
        return found

    def _taken(self, address: int) -> Optional[_Wanted]:
        """A lock or a semaphore that is taken."""
        locked = self._objects.attribute(address, "_locked")
        if locked is not None:
            return _Wanted(address, _LOCK, "acquire") if self._objects.integer(locked) else None
        return _Wanted(address, _SEMAPHORE, "acquire") if self._number(address, "_value") == 0 else None

    def _detail(self, wanted: _Wanted) -> Optional[str]:
        """What the object says of why it waits. Raises Unreadable."""
        number = {name: self._number(wanted.address, name) for name in ("_count", "_parties", "_maxsize", "_unfinished_tasks")}
        if wanted.kind in (_LOCK, _SEMAPHORE):
            return "taken; asyncio does not record by whom"
        if wanted.kind == "Barrier":
            return f"{number['_count']} of {number['_parties']} have come" if number["_parties"] else None
        if wanted.method == "join":
            return f"task_done() is still to come {_times(number['_unfinished_tasks'] or 0)}"
        if wanted.method == "put":
            return f"full, with {number['_maxsize']}" if number["_maxsize"] else None
        return {"wait": "not set", "get": "empty"}.get(wanted.method) if wanted.kind != "Condition" else "not notified"

    def _number(self, address: int, name: str) -> Optional[int]:
        value = self._objects.attribute(address, name)
        return self._objects.integer(value) if value else None

    def _held(self, frames: Sequence[FrameState], locks: set[int], limited: set[int], task: int) -> Iterator[tuple[int, int]]:
        """What the task holds, each with the index of its frame; notes whether a block ends at a time."""
        released = self._released(frames)
        for index, frame in enumerate(frames[:_MOST_FRAMES]):
            blocks: set[int] = set()
            with suppress(Unreadable):
                for own in self._left(frame):
                    if self._values.type_name(self._objects.type_of(own)).rpartition(".")[2] in _LIMITS:
                        limited.add(task)
                    if (lock := self._inner(own)) not in released:
                        blocks.add(lock)
                        yield lock, index
            for lock in self._acquired(frame):
                if lock in locks and lock not in released | blocks:
                    yield lock, index

    def _left(self, frame: FrameState) -> Iterator[int]:
        """What the blocks of the frame will leave, also by a stack of contexts. Raises Unreadable."""
        for value in kept_values(self._objects, self._frames, frame):
            own = bound_to(self._objects, self._values, value)
            if own is not None:
                yield own
                several = (bound_to(self._objects, self._values, one) for one in exits(self._objects, self._values, own))
                yield from (one for one in several if one is not None)

    def _released(self, frames: Sequence[FrameState]) -> set[int]:
        """The lock of the condition that the task waits for: released meanwhile, also while it waits to have it again."""
        found: set[int] = set()
        for frame in frames[:_NEAR]:
            if _place(frame) == ("asyncio", "locks.py", "wait"):
                with suppress(Unreadable):
                    own = next((one.value for one in self._frames.variables(frame, 1) if one.name == "self"), 0)
                    found.add(self._inner(own) if own else 0)
        return found

    def _acquired(self, frame: FrameState) -> Iterator[int]:
        """What the frame has taken with a bare `acquire()`, as its source says."""
        code, position = frame.code, frame.position
        if code is None or not code.file or not code.name or position is None or not position.line or _place(frame)[0] == "asyncio":
            return
        standing = Standing(code.name.rpartition(".")[2], code.first_line, position.line, position.column)
        for taken in self._of(code.file).taken(standing):
            with suppress(Unreadable):
                value = self._value(taken.lock, frame)
                lock = self._inner(value) if value else 0
                others = [self._value(names, frame) for names in taken.unless] if lock else []
                if lock and all(other and self._inner(other) != lock for other in others):
                    yield lock

    def _value(self, names: Expression, frame: FrameState) -> int:
        """What the frame's variable, or the attribute of an attribute of it, is; 0 if there is none. Raises Unreadable."""
        value = next((one.value for one in self._frames.variables(frame, 64) if one.name == names[0]), 0)
        if not value:
            value = self._objects.item(self._objects.view.word(frame.address + globals_at(self._objects)), names[0]) or 0
        for name in names[1:]:
            value = (self._objects.attribute(value, name) or 0) if value else 0
        return value

    def _of(self, file: str) -> Parsed:
        if file not in self._parsed:
            self._objects.view.check_time()
            self._parsed[file] = Parsed(self._source(file) or "")
        return self._parsed[file]

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
                if self._is(variable.value, lock):
                    return variable.name
                try:
                    for item in islice(self._objects.attributes(variable.value), _MOST_ATTRIBUTES):
                        if self._is(item.value, lock):
                            return f"{variable.name}.{self._objects.text(item.key, 100)}"
                except Unreadable:
                    continue
            try:
                contents = self._objects.view.word(frame.address + globals_at(self._objects))
                for item in self._objects.dictionary(contents, _MOST_GLOBALS):
                    if self._is(item.value, lock):
                        return self._objects.text(item.key, 100)
            except Unreadable:
                continue
        return None

    def _is(self, address: int, lock: int) -> bool:
        """Whether it is the lock, or the condition that has it."""
        if address == lock:
            return True
        try:
            named = self._values.type_name(self._objects.type_of(address)).rpartition(".")[2] == "Condition"
            return named and self._inner(address) == lock
        except Unreadable:
            return False


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _place(frame: FrameState) -> tuple[str, str, str]:
    """The folder, the file and the function, each without what stands before."""
    folder, _, file = (frame.code.file or "" if frame.code else "").rpartition("/")
    return folder.rpartition("/")[2], file, (frame.code.name or "" if frame.code else "").rpartition(".")[2]


def stuck_in_circles(needs_all: Mapping[int, Iterable[int]], waits: Mapping[int, int], holders: Mapping[int, Iterable[int]]) -> set[int]:
    """As `in_circles`, of those that need all of what they wait for, and of those that wait for a lock: any one of its holders is enough.

    `waits` has the lock of each of these, `holders` those of each lock. Thousands may wait for one that hundreds have, so a lock is one
    thing between them.
    """
    edges: dict[int, Iterable[int]] = {**needs_all}
    # An address is never negative.
    edges.update((one, (~lock,)) for one, lock in waits.items())
    edges.update((~lock, holders[lock]) for lock in set(waits.values()))
    return {one for one in in_circles(edges, {~lock for lock in waits.values()}) if one >= 0}


def in_circles(edges: Mapping[int, Iterable[int]], any_is_enough: AbstractSet[int] = frozenset()) -> set[int]:
    """Who waits for each other in a circle, or between two circles. Each needs all that it waits for, but to some any one is enough."""
    ahead: dict[int, set[int]] = {}
    free: list[int] = []
    for one, others in edges.items():
        wanted = set(others)
        ahead[one] = {other for other in wanted if other in edges}
        if not ahead[one] or (one in any_is_enough and len(ahead[one]) < len(wanted)):
            free.append(one)
    behind: dict[int, set[int]] = {one: set() for one in ahead}
    for one, others in ahead.items():
        for other in others:
            behind[other].add(one)
    _take_away(free, ahead, behind, any_is_enough)
    _take_away([one for one, others in behind.items() if not others], behind, ahead, frozenset())
    return set(ahead)


def _take_away(ends: list[int], forth: dict[int, set[int]], back: dict[int, set[int]], any_is_enough: AbstractSet[int]) -> None:
    """Take away these, and whatever then has no way forth any more; or, of some, one way less."""
    while ends:
        gone = ends.pop()
        for other in forth.pop(gone, ()):
            back[other].discard(gone)
        for other in back.pop(gone, ()):
            if other in forth:
                forth[other].discard(gone)
                if not forth[other] or other in any_is_enough:
                    ends.append(other)
