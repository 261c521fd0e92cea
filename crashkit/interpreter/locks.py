"""Python's locks: which of them a thread holds, who owns them, and on what memory their waiters wait.

A `Lock` does not record its owner. But a `with` statement keeps the lock's `__exit__` on the frame's stack of values until its block is
left: how deep that stack is at an instruction follows from the table of exception handlers (3.11 and newer, `co_exceptiontable`,
Objects/exception_handling_notes.txt) or from the frame's stack of blocks (`f_blockstack`). Only what lies below that depth is believed.

Sources: Modules/_threadmodule.c (`lockobject`, `rlockobject`), Include/cpython/methodobject.h, Include/internal/pycore_lock.h.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Optional

import msgspec

from crashkit.interpreter.exit_stacks import exits
from crashkit.interpreter.frame_fields import globals_at
from crashkit.interpreter.frames import Frames, FrameState
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.values import Values
from crashkit.interpreter.view import Unreadable

FRAMES = 40
"""Innermost frames of a thread that are searched."""
_NAMED_FRAMES = 6
"""Innermost frames whose variables are searched for locks."""
_NEAR = 4
"""Innermost frames among which one is that of `Condition.wait`, if the thread waits there."""
_MOST_GLOBALS = 2000
_PATIENCE = 2.0
"""Seconds of processor time after which no more frames are searched: containers that are damaged can take long to look through."""
_MOST_DEPTH = 200
_MOST_TABLE = 1 << 16

# Behind PyObject_HEAD: the lock, or a pointer to it; in an RLock then the owner's ident and how often it took it.
_LOCK_AT, _OWNER_AT, _COUNT_AT = 0, 8, 16
# The same of PyCFunctionObject: m_ml, m_self, and of PyMethodObject: im_func, im_self.
_DEFINITION_AT, _SELF_AT, _METHOD_SELF_AT = 0, 8, 8
# Behind PyObject_VAR_HEAD of PyCodeObject: co_consts, co_names, co_exceptiontable.
_EXCEPTIONS_AT = 16
# PyFrameObject up to 3.10 ends in int f_iblock; char f_state or f_executing; PyTryBlock f_blockstack[20]; f_localsplus.
_BLOCKS_BEFORE_LOCALS, _BLOCK_SIZE, _COUNT_BEFORE_BLOCKS = 240, 12, 8
_VALUE_STACK_AT = 64

_KINDS = {"_thread.lock": "lock", "_thread.RLock": "rlock"}
_INLINE = {"lock": 8, "rlock": 24}
"""Sizes behind PyObject_HEAD up to which an object contains its lock (`PyMutex`: 3.14, and a Lock in later releases of 3.13); larger ones
point to it."""
_WRAPPERS = ("Condition", "Semaphore", "BoundedSemaphore")
"""Classes of `threading` whose `_lock` or `_cond` is what a `with` statement takes."""
_LEAVES = "__exit__"
_AWAITING = {
    # `_ModuleLock`, Lib/importlib/_bootstrap.py.
    "<frozen importlib._bootstrap>:acquire": ("import", "owner", "name"),
    # `Thread`, Lib/threading.py.
    "threading.py:join": ("thread", "_ident", "_name"),
    "threading.py:_wait_for_tstate_lock": ("thread", "_ident", "_name"),
}
"""Functions of Python that wait for another thread: the kind, and the attributes of `self` with that thread's ident and with a name."""


class Lock(msgspec.Struct, frozen=True):
    """One lock."""

    address: int
    kind: str
    """lock, rlock."""
    waited_at: int
    """The address that its waiters name to the kernel, or to the interpreter's own table of waiters (3.14)."""
    owner: Optional[int]
    """The ident of the thread that owns an RLock; 0 if nobody does; None for a Lock, which does not know."""


class Held(msgspec.Struct, frozen=True):
    """A lock that a thread holds."""

    lock: int
    frame: int
    """Index of the Python frame whose `with` block it is."""


class Awaited(msgspec.Struct, frozen=True):
    """What a thread waits for, as the objects of Python code tell."""

    kind: str
    """import (another thread imports the module), thread (until it ends)."""
    name: str
    owner: int
    """The ident of the other thread."""


class ThreadLocks(msgspec.Struct, frozen=True):
    """One thread's locks."""

    ident: int
    native_id: Optional[int]
    held: tuple[Held, ...]


class PythonLocks(msgspec.Struct, frozen=True):
    """What is known of all locks that stacks lead to."""

    locks: dict[int, Lock]
    """By address."""
    names: dict[int, str]
    """By address: what a variable or an attribute calls a lock."""
    threads: tuple[ThreadLocks, ...]
    awaited: dict[int, Awaited]
    """By ident of a thread that waits for what another thread does."""


class LockReader:
    """Reads the locks of one interpreter."""

    def __init__(self, objects: Objects, frames: Frames, values: Values) -> None:
        self._objects, self._frames, self._values = objects, frames, values
        self._view, self._head = objects.view, objects.head
        self._kinds: dict[int, Optional[str]] = {}
        self._globals: set[int] = set()
        self._ends = time.thread_time() + _PATIENCE
        self._locks: dict[int, Lock] = {}
        self._names: dict[int, str] = {}

    def read(self, threads: Sequence[tuple[int, Optional[int], Sequence[FrameState]]]) -> PythonLocks:
        """The locks of these threads: their idents, tids and frames, innermost first."""
        found = []
        awaited: dict[int, Awaited] = {}
        for ident, native_id, frames in threads:
            held: list[Held] = []
            released = self._released(frames)
            for index, frame in enumerate(frames[:FRAMES] if time.thread_time() < self._ends else ()):
                held += [Held(address, index) for address in self._held_by(frame) if address != released]
                if index < _NAMED_FRAMES or (held and held[-1].frame == index):
                    self._look_around(frame)
            if wanted := self._awaited(frames):
                awaited[ident] = wanted
            found.append(ThreadLocks(ident, native_id, tuple(held)))
        return PythonLocks(self._locks, self._names, tuple(found), awaited)

    def _held_by(self, frame: FrameState) -> list[int]:
        """The locks whose `with` blocks the frame is in, the innermost last."""
        found: list[int] = []
        try:
            for value in kept_values(self._objects, self._frames, frame):
                own = bound_to(self._objects, self._values, value)
                several = exits(self._objects, self._values, own) if own is not None else ()
                found += [lock for one in (value, *several) if (lock := self._left_by(one)) is not None]
        except Unreadable:
            pass
        return found

    def _released(self, frames: Sequence[FrameState]) -> Optional[int]:
        """The lock of the condition that the thread waits for: the block that it stands in does not have it meanwhile."""
        for frame in frames[:_NEAR]:
            if frame.code is None or (frame.code.file or "").rpartition("/")[2] != "threading.py":
                return None
            if frame.code.name == "wait":
                try:
                    own = next((one.value for one in self._frames.variables(frame, 1) if one.name == "self"), 0)
                    if own and (lock := self._inner(own)) is not None:
                        return lock
                except Unreadable:
                    return None
        return None

    def _left_by(self, value: int) -> Optional[int]:
        """The lock that this object leaves: a bound `__exit__`, or from 3.14 on the lock itself beside an unbound one."""
        kind = self._objects.type_of(value)
        name = self._values.type_name(kind)
        if name == "builtin_function_or_method":
            definition = self._view.word(value + self._head + _DEFINITION_AT)
            if self._objects.constants.string(self._objects.constants.word(definition), 64) != _LEAVES:
                return None
            return self._lock(self._view.word(value + self._head + _SELF_AT))
        own = bound_to(self._objects, self._values, value)
        return self._inner(own) if own is not None else None

    def _inner(self, address: int) -> Optional[int]:
        """The lock in a condition or a semaphore, or the lock itself."""
        found = self._lock(address)
        if found is not None:
            return found
        if self._values.type_name(self._objects.type_of(address)) not in _WRAPPERS:
            return None
        inner = self._objects.attribute(address, "_lock")
        return self._lock(inner) if inner else None

    def _lock(self, address: int) -> Optional[int]:
        """The address itself if a lock is there, which is then known."""
        if address in self._locks:
            return address
        kind = self._kind(self._objects.type_of(address))
        if kind is None:
            return None
        own = address + self._head
        inline = self._size(self._objects.type_of(address)) <= self._head + _INLINE[kind]
        at = own + _LOCK_AT if inline else self._view.word(own + _LOCK_AT)
        owner = None
        if kind == "rlock":
            taken = self._view.byte(own + _LOCK_AT) & 1 if inline else self._view.word(own + _COUNT_AT)
            owner = self._view.word(own + _OWNER_AT) if taken else 0
        self._locks[address] = Lock(address, kind, at, owner)
        return address

    def _size(self, kind: int) -> int:
        return self._view.word(kind + self._objects.layout.type.basic_size)

    def _kind(self, kind: int) -> Optional[str]:
        if kind not in self._kinds:
            self._kinds[kind] = _KINDS.get(self._values.type_name(kind))
        return self._kinds[kind]

    def _look_around(self, frame: FrameState) -> None:
        """Name the locks in the frame's variables, in the attributes of their objects, and in the module's variables."""
        for variable in self._frames.variables(frame, 64 if time.thread_time() < self._ends else 0):
            self._name(variable.value, variable.name)
            try:
                for item in islice(self._objects.attributes(variable.value), 100):
                    self._name(item.value, f"{variable.name}.{self._objects.text(item.key, 100)}")
            except Unreadable:
                continue
        try:
            contents = self._view.word(frame.address + globals_at(self._objects))
            if contents not in self._globals:
                self._globals.add(contents)
                for item in self._objects.dictionary(contents, _MOST_GLOBALS):
                    self._name(item.value, self._objects.text(item.key, 100) if self._is_lock(item.value) else "")
        except Unreadable:
            pass

    def _is_lock(self, address: int) -> bool:
        try:
            return self._kind(self._objects.type_of(address)) is not None
        except Unreadable:
            return False

    def _name(self, address: int, name: str) -> None:
        try:
            if name and self._lock(address) is not None:
                self._names.setdefault(address, name)
        except Unreadable:
            pass

    def _awaited(self, frames: Sequence[FrameState]) -> Optional[Awaited]:
        """By the `self` of a function that waits for another thread."""
        for frame in frames[:2]:
            place = f"{(frame.code.file or '').rpartition('/')[2]}:{frame.code.name}" if frame.code is not None else ""
            known = _AWAITING.get(place)
            if known is None:
                continue
            kind, owner_name, name_name = known
            try:
                own = next((one.value for one in self._frames.variables(frame, 8) if one.name == "self"), 0)
                owner, name = (self._objects.attribute(own, key) if own else None for key in (owner_name, name_name))
                ident = self._objects.integer(owner) if owner else None
                return Awaited(kind, self._objects.text(name, 200) if name else "", ident) if ident else None
            except Unreadable:
                return None
        return None


def kept_values(objects: Objects, frames: Frames, frame: FrameState) -> Iterator[int]:
    """The addresses of the values that the frame's `with` and `try` blocks keep, the outermost first. Raises Unreadable."""
    place, depth = _values_of(objects, frames, frame)
    for index in range(min(depth, _MOST_DEPTH)):
        value = frames.untagged(objects.view.word(place + index * objects.view.word_size))
        if value:
            yield value


def bound_to(objects: Objects, values: Values, value: int) -> Optional[int]:
    """The object of a bound method; from 3.14 on also the object itself, which lies beside its unbound method. Raises Unreadable."""
    if values.type_name(objects.type_of(value)) == "method":
        return objects.view.word(value + objects.head + _METHOD_SELF_AT)
    return value if objects.version >= (3, 14) else None


def _values_of(objects: Objects, frames: Frames, frame: FrameState) -> tuple[int, int]:
    """Where the frame's stack of values begins, and how many of them a `with` or `try` block keeps."""
    code, view = frame.code, objects.view
    if code is None:
        raise Unreadable("a frame without code")
    local = frame.address + objects.layout.frame.locals
    if objects.version < (3, 11):
        blocks = local - _BLOCKS_BEFORE_LOCALS
        count = view.int32(blocks - _COUNT_BEFORE_BLOCKS)
        if not 0 < count <= _BLOCKS_BEFORE_LOCALS // _BLOCK_SIZE:
            return 0, 0
        return view.word(frame.address + _VALUE_STACK_AT), view.int32(blocks + (count - 1) * _BLOCK_SIZE + 8)
    instruction = frames.instruction(frame)
    if instruction is None:
        raise Unreadable("an unknown instruction")
    table = objects.bytes(objects.constants.word(code.address + objects.counted_head + _EXCEPTIONS_AT), _MOST_TABLE)
    return local + frames.slots(code) * view.word_size, depth_at(table, instruction)


def depth_at(table: bytes, instruction: int) -> int:
    """How many values an exception handler keeps that covers this instruction, counted in units of two bytes; 0 if none does.

    From 3.12 on, the one instruction at which a coroutine is suspended has a handler of its own (CLEANUP_THROW), which keeps also what is
    awaited, be it the beginning of an `async with` block. What encloses the `await` covers that handler, too.
    """
    _, length, target, kept = _covering(table, instruction)
    if length == 1 and not kept & 1:
        kept = _covering(table, target)[3]
    return kept >> 1


def _covering(table: bytes, instruction: int) -> tuple[int, int, int, int]:
    return next((entry for entry in _entries(table) if entry[0] <= instruction < entry[0] + entry[1]), (0, 0, 0, 0))


def _entries(table: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Six bits a byte, the most significant first; bit 6: the number goes on."""
    numbers: list[int] = []
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            numbers.append(value)
            value = 0
            if len(numbers) == 4:
                yield numbers[0], numbers[1], numbers[2], numbers[3]
                numbers = []
