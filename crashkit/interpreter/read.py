"""The Python side of a process: every thread with its stack, read from a `Memory` in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import NamedTuple, Optional

import msgspec

from crashkit.interpreter.accessed import Accessed, Place, accessed, below
from crashkit.interpreter.dict_variables import dict_variables
from crashkit.interpreter.exceptions import Raised, carried, chain
from crashkit.interpreter.finding import Found, Module, addresses_of, find
from crashkit.interpreter.forward import ForwardLine, forward_lines
from crashkit.interpreter.frames import Frames, FrameState, Variable
from crashkit.interpreter.greenlets import GreenletReader, Greenlets
from crashkit.interpreter.held import Holders
from crashkit.interpreter.kept_sources import KeptSource, kept_sources
from crashkit.interpreter.layouts import Version
from crashkit.interpreter.loaded import loaded_files
from crashkit.interpreter.locks import LockReader, PythonLocks
from crashkit.interpreter.objects import EXCEPTION, Objects
from crashkit.interpreter.python_threads import PythonThread, named
from crashkit.interpreter.search import Ranges
from crashkit.interpreter.signals import VARIABLE, Pending, pending
from crashkit.interpreter.streams import unwritten
from crashkit.interpreter.task_locks import ReadSource, TaskLocks
from crashkit.interpreter.tasks import OFFSETS, TaskReader, Tasks
from crashkit.interpreter.threads import (
    ThreadState,
    gil_at,
    gil_holder,
    gil_waiters,
    handled_exception,
    is_collecting,
    is_whole,
    pending_exception,
    read_state,
    says_it_holds_gil,
    states_of,
)
from crashkit.interpreter.unled import Unled, find_unled, with_c_stacks, with_unled
from crashkit.interpreter.values import Values
from crashkit.interpreter.view import Read, Unreadable, View
from crashkit.interpreter.visited import NativeState, Visited, visited
from crashkit.limits import MOST_THREADS
from crashkit.memory import Memory, thread_storage

_MOST_VARIABLES = 64
_MOST_PRINTING = 4
"""Interpreters whose streams are read."""
_THREADS_WITH_LOCKS = 500
_NONE = "_Py_NoneStruct"


class Value(NamedTuple):
    """The value of a variable, as text."""

    name: str
    text: str
    is_argument: bool


class PythonState(msgspec.Struct, frozen=True):
    """What CPython's memory tells."""

    version: Version
    threads: tuple[PythonThread, ...]
    finalizing: Optional[bool]
    lost_threads: int
    """Thread states that could not be read."""
    unlisted_threads: int
    """Those that only the threads themselves led to: the interpreter's list of them is damaged."""
    variables: Callable[[FrameState], list[Value]]
    """Reads the variables of a frame."""
    raised: Callable[[PythonThread], list[Raised]]
    """The exception that a thread was handling, and those that it came from."""
    exception: Callable[[PythonThread], Optional[str]]
    """Reads the exception that a thread is handling: its type and arguments."""
    pending: Callable[[PythonThread], Optional[str]]
    """Reads the exception that is set in a thread and has not reached Python code: its type and arguments."""
    carried: Callable[[int], Optional[Raised]]
    """Reads the exception that an exception of C++ at this address refers to."""
    visited: Callable[[Sequence[NativeState], Optional[int]], Optional[Visited]]
    """Finds the object that the garbage collector or a finalizer was at, in these native frames and for this fault address."""
    accessed: Callable[[PythonThread, Sequence[int], int], Optional[Accessed]]
    """Finds the array in a variable of these frames of this thread, the likeliest first, that describes the memory at this address."""
    below: Callable[[PythonThread, Sequence[int], int], list[Accessed]]
    """Finds the buffers in variables of these frames of this thread that end below this address, the nearest first."""
    loaded: Callable[[Memory, Optional[Read]], list[str]]
    """Reads the files of what was imported, one for each package, from this memory and these constants: it takes many pages."""
    kept_sources: Callable[[Collection[str]], dict[str, KeptSource]]
    """Reads the code that is in no file, by these names."""
    locks: Callable[[], PythonLocks]
    """Reads the locks that the threads hold and want."""
    tasks: Callable[[ReadSource], Tasks]
    """Reads asyncio's tasks, with the sources of what they run."""
    greenlets: Callable[[], Greenlets]
    """Reads the greenlets."""
    unwritten: Callable[[], list[bytes]]
    """Reads what is in the buffers of sys.stdout and sys.stderr."""
    pending_signals: Callable[[], list[Pending]]
    """Reads the signals whose Python handlers had not run yet."""
    forward: Callable[[int, int], list[ForwardLine]]
    """Reads what torch's anomaly mode kept, for the thread with this thread pointer, from as many bytes of torch's own variables."""
    stateless_threads: int
    """Those whose states are lost: their frames were found on their data stacks."""
    unplaced: tuple[tuple[FrameState, ...], ...]
    """Frames that some thread was running, as they name each other, innermost first: nothing in memory says which."""
    may_be_suspended: bool
    """Whether greenlets that were suspended may have those frames."""
    gil_waiters: tuple[range, ...]
    """The addresses that threads name to the kernel while they wait for the GIL; none if it is not known where it is."""


def read_python(
    memory: Memory,
    modules: Sequence[Module],
    version: Optional[Version],
    idents: Mapping[int, int],
    constants: Optional[Read] = None,
    main: Optional[int] = None,
) -> Optional[PythonState]:
    """Read the interpreter in one of these modules, the likeliest first; None if there is none, or nothing is left of it.

    `idents` are tids by pthread ident. `constants` also reads what cores leave out because it is in a file and never changes.
    `main` is the ident of the process's first thread.
    """
    view = View(memory)
    found = find(view, modules, version, idents)
    if found is None:
        return None
    objects = Objects(view, found.layout, found.version, View(memory, constants))
    frames = Frames(objects, Ranges(memory).holds)
    threads: list[PythonThread] = []
    known, lost, unlisted = _states(view, found, idents)
    waiters = list(found.gil_waiters)
    for interpreter, states in known.items():
        first = len(threads)
        gil = _gil(view, found, interpreter)
        holder = gil_holder(view, gil) if gil else None
        waiters += [gil_waiters(gil)] if gil and not found.gil else []
        collecting = is_collecting(view, found.layout, found.runtime, interpreter)
        for state in states[: MOST_THREADS - len(threads)]:
            holds = says_it_holds_gil(objects, state.address) if holder is None else holder == state.address
            collects = None if collecting is None or holds is None else collecting and holds
            stack = frames.stack(state.frame, state.address)
            threads.append(PythonThread(state, None, holds, collects, stack))
        threads[first:] = named(objects, frames, interpreter, threads[first:], main)
    values = Values(
        objects,
        found.interpreters[-1] if found.interpreters else None,
        lambda: next((address for module in modules for address in addresses_of(module, _NONE)), None),
    )
    greenlets = cache(lambda: _greenlets(objects, frames, values, found))
    read = len(threads)
    unled = Unled()
    if lost or unlisted or not found.interpreters or any(thread.stack.cut for thread in threads):
        threads = with_c_stacks(objects, frames, threads, idents, main)
        unled = find_unled(objects, frames, threads, modules, greenlets)
        threads, unled = with_unled(objects, frames, threads, unled, idents, main)
    if not threads and not unled.chains:
        return None
    return PythonState(
        version=found.version,
        threads=tuple(threads),
        finalizing=_finalizing(view, found),
        lost_threads=lost,
        unlisted_threads=unlisted,
        stateless_threads=len(threads) - read,
        unplaced=unled.chains,
        may_be_suspended=unled.may_be_suspended,
        variables=lambda frame: [
            Value(one.name, values.text(one.value), one.is_argument) for one in _variables(objects, frames, values, frame)
        ],
        exception=lambda thread: _exception(objects, values, thread),
        raised=lambda thread: _raised(objects, frames, values, thread),
        pending=lambda thread: _set_exception(objects, values, thread),
        carried=lambda place: carried(objects, frames, values, place),
        visited=lambda natives, fault: visited(objects, natives, fault),
        accessed=lambda thread, order, address: accessed(objects, values.arrays, _places(objects, frames, values, thread, order), address),
        below=lambda thread, order, address: _below(objects, values, found, _places(objects, frames, values, thread, order), address),
        loaded=lambda other, told: _loaded(Objects(View(other), found.layout, found.version, View(other, told)), found),
        kept_sources=lambda wanted: {
            name: lines for one in found.interpreters for name, lines in kept_sources(objects, one, values.nothing, wanted).items()
        },
        locks=lambda: LockReader(objects, frames, values).read(
            [(one.state.ident, one.state.native_id, one.stack.inner) for one in threads[:_THREADS_WITH_LOCKS]]
        ),
        tasks=lambda source: _tasks(objects, frames, values, found, [(one.state.ident, one.stack.inner) for one in threads], source),
        greenlets=greenlets,
        unwritten=lambda: [data for one in found.interpreters[:_MOST_PRINTING] for data in unwritten(objects, values, one)],
        pending_signals=lambda: _pending(objects, values, found, modules, threads),
        forward=lambda pointer, size: forward_lines(objects, thread_storage.words(memory, pointer, size)),
        gil_waiters=tuple(dict.fromkeys(waiters)),
    )


def _states(view: View, found: Found, idents: Mapping[int, int]) -> tuple[dict[Optional[int], list[ThreadState]], int, int]:
    """The thread states by interpreter, which may be lost; how many could not be read; how many its list should have led to."""
    layout = found.layout
    listed: dict[Optional[int], Sequence[int]] = {one: states_of(view, layout, one) for one in found.interpreters}
    whole = bool(listed) and all(is_whole(view, layout, one, states) for one, states in listed.items() if one is not None)
    listed[None] = found.states
    states: dict[Optional[int], list[ThreadState]] = {}
    lost = 0
    for interpreter, addresses in listed.items():
        states[interpreter] = []
        for address in addresses[:MOST_THREADS]:
            try:
                state = read_state(view, layout, address)
                # A damaged link may lead into a list of something else.
                if interpreter is None or state.ident in idents or view.word(address + layout.thread.interpreter) == interpreter:
                    states[interpreter].append(state)
            except Unreadable:
                lost += 1
    known = [one for each in states.values() for one in each]
    reached, native = {one.ident for one in known}, {one.native_id for one in known}
    missing = {ident: tid for ident, tid in idents.items() if ident not in reached and tid not in native}
    held = Holders(view, layout, found.interpreters, missing).states(whole)
    for owner, address in held:
        with suppress(Unreadable):
            states[owner if owner in states else None].append(read_state(view, layout, address))
    return states, lost, len(held) if found.interpreters else 0


def _variables(objects: Objects, frames: Frames, values: Values, frame: FrameState) -> list[Variable]:
    own = frames.variables(frame, _MOST_VARIABLES)
    return [*own, *dict_variables(objects, frame, values.type_name, _MOST_VARIABLES - len(own))]


def _places(objects: Objects, frames: Frames, values: Values, thread: PythonThread, order: Sequence[int]) -> Iterator[tuple[Place, int]]:
    for index in order:
        for variable in _variables(objects, frames, values, thread.stack.inner[index]):
            yield Place(index, variable.name), variable.value


def _below(objects: Objects, values: Values, found: Found, variables: Iterator[tuple[Place, int]], address: int) -> list[Accessed]:
    if objects.view.word_size != 8:
        return []
    # Few crashes need it.
    from crashkit.interpreter.buffers import Buffers

    return below(objects, Buffers(objects, found.interpreters[-1] if found.interpreters else None, values.arrays), variables, address)


def _greenlets(objects: Objects, frames: Frames, values: Values, found: Found) -> Greenlets:
    if objects.view.word_size != 8:
        return Greenlets()
    reader = GreenletReader(objects, frames, values)
    each = [reader.read(interpreter) for interpreter in found.interpreters]
    return Greenlets(
        tuple(greenlet for one in each for greenlet in one.found),
        all(one.in_time for one in each),
        sum(one.left_out for one in each),
        all(one.all_counted for one in each),
    )


def _loaded(objects: Objects, found: Found) -> list[str]:
    return [file for interpreter in found.interpreters for file in loaded_files(objects, interpreter)]


def _tasks(
    objects: Objects, frames: Frames, values: Values, found: Found, stacks: Sequence[tuple[int, Sequence[FrameState]]], source: ReadSource
) -> Tasks:
    offsets = OFFSETS.get((found.version.major, found.version.minor))
    if offsets is None or objects.view.word_size != 8:
        return Tasks()
    reader = TaskReader(objects, frames, values, offsets)
    each = [reader.read(interpreter, stacks, source) for interpreter in found.interpreters]
    return Tasks(
        tuple(task for one in each for task in one.found),
        all(one.in_time for one in each),
        sum(one.left_out for one in each),
        all(one.all_counted for one in each),
        TaskLocks(
            {address: lock for one in each for address, lock in one.locks.wanted.items()},
            frozenset(address for one in each for address in one.locks.limited),
        ),
    )


def _pending(objects: Objects, values: Values, found: Found, modules: Sequence[Module], threads: Sequence[PythonThread]) -> list[Pending]:
    runtime, table = found.layout.runtime, None
    if runtime is not None and runtime.signals is not None:
        table = found.runtime + runtime.signals if found.runtime is not None else None
    else:
        tables = [address for module in modules for address in addresses_of(module, VARIABLE)]
        table = tables[0] if len(tables) == 1 else None
    if table is None:
        return []
    codes = (frame.code.address for thread in threads for frame in thread.stack.inner if frame.code is not None)
    return pending(objects, values, table, codes)


def _handled(objects: Objects, values: Values, thread: PythonThread) -> int:
    """The address of the exception that the thread was handling; 0 if there is none, or it is lost."""
    try:
        return handled_exception(objects, thread.state.address, values.nothing)
    except Unreadable:
        return 0


def _exception(objects: Objects, values: Values, thread: PythonThread) -> Optional[str]:
    exception = _handled(objects, values, thread)
    return values.text(exception) if exception else None


def _set_exception(objects: Objects, values: Values, thread: PythonThread) -> Optional[str]:
    try:
        kind, value = pending_exception(objects, thread.state.address)
        if not kind or objects.flags(kind) & EXCEPTION == 0:
            return None
        if value and objects.type_of(value) == kind:
            return values.text(value)
        # PyErr_SetString() and its like: made when somebody asks for it.
        arguments = values.text(value) if value else ""
        return f"{values.type_name(kind)}{arguments if arguments.startswith('(') else f'({arguments})'}"
    except Unreadable:
        return None


def _raised(objects: Objects, frames: Frames, values: Values, thread: PythonThread) -> list[Raised]:
    exception = _handled(objects, values, thread)
    return chain(objects, frames, values, exception) if exception else []


def _gil(view: View, found: Found, interpreter: Optional[int]) -> Optional[tuple[int, int]]:
    return found.gil or gil_at(view, found.layout, found.runtime, interpreter)


def _finalizing(view: View, found: Found) -> Optional[bool]:
    if found.runtime is None or found.layout.runtime is None:
        return None
    try:
        return view.word(found.runtime + found.layout.runtime.finalizing) != 0
    except Unreadable:
        return None
