"""The Python side of a process: every thread with its stack, read from a `Memory` in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import PurePosixPath
from typing import NamedTuple, Optional

import msgspec

from crashkit.interpreter.accessed import Accessed, Place, accessed, below
from crashkit.interpreter.c_stacks import CStackRanges
from crashkit.interpreter.exceptions import Raised, chain
from crashkit.interpreter.finding import Found, Module, addresses_of, find
from crashkit.interpreter.forward import ForwardLine, forward_lines
from crashkit.interpreter.frames import Frames, FrameState, Stack
from crashkit.interpreter.greenlets import GreenletReader, Greenlets
from crashkit.interpreter.held import Holders
from crashkit.interpreter.layouts import Version
from crashkit.interpreter.loaded import loaded_files
from crashkit.interpreter.locks import LockReader, PythonLocks
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.placing import with_generators
from crashkit.interpreter.running import holder, holding_types
from crashkit.interpreter.search import Ranges
from crashkit.interpreter.signals import VARIABLE, Pending, pending
from crashkit.interpreter.task_locks import ReadSource, TaskLocks
from crashkit.interpreter.tasks import OFFSETS, TaskReader, Tasks
from crashkit.interpreter.threads import (
    LONGEST_NAME,
    ThreadState,
    gil_at,
    gil_holder,
    gil_waiters,
    handled_exception,
    is_collecting,
    is_threading,
    is_whole,
    main_name,
    names_in,
    read_state,
    says_it_holds_gil,
    states_of,
    threading_contents,
)
from crashkit.interpreter.upwards import newest_parts
from crashkit.interpreter.values import Values
from crashkit.interpreter.view import Read, Unreadable, View
from crashkit.interpreter.visited import NativeState, Visited, visited
from crashkit.limits import MOST_THREADS
from crashkit.memory import Memory, thread_storage

_MOST_VARIABLES = 64
_OUTER_FRAMES_OF_THREAD = 2
"""Frames that a thread of `threading` begins with: `_bootstrap`, which calls `_bootstrap_inner`."""
_THREADS_WITH_LOCKS = 500
_THREADING = "threading.py"
_NONE = "_Py_NoneStruct"
_GREENLET = ("_greenlet.", "greenlet.")
"""How the files of greenlet's module begin."""
_FIRST_FRAMES = ("<module>", "_run_module_as_main")
"""What runs in the outermost frame of the process's first thread: a script, or `runpy` for `python -m`."""


class PythonThread(NamedTuple):
    """One thread that the interpreter knows."""

    state: ThreadState
    name: Optional[str]
    """What `threading` calls it."""
    holds_gil: Optional[bool]
    collecting: Optional[bool]
    """Whether it held the GIL while its interpreter's garbage collector was running."""
    stack: Stack


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
    visited: Callable[[Sequence[NativeState], Optional[int]], Optional[Visited]]
    """Finds the object that the garbage collector or a finalizer was at, in these native frames and for this fault address."""
    accessed: Callable[[PythonThread, Sequence[int], int], Optional[Accessed]]
    """Finds the array in a variable of these frames of this thread, the likeliest first, that describes the memory at this address."""
    below: Callable[[PythonThread, Sequence[int], int], list[Accessed]]
    """Finds the buffers in variables of these frames of this thread that end below this address, the nearest first."""
    loaded: Callable[[Memory, Optional[Read]], list[str]]
    """Reads the files of what was imported, one for each package, from this memory and these constants: it takes many pages."""
    locks: Callable[[], PythonLocks]
    """Reads the locks that the threads hold and want."""
    tasks: Callable[[ReadSource], Tasks]
    """Reads asyncio's tasks, with the sources of what they run."""
    greenlets: Callable[[], Greenlets]
    """Reads the greenlets."""
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
        threads[first:] = _named(objects, frames, interpreter, threads[first:], main)
    values = Values(
        objects,
        found.interpreters[-1] if found.interpreters else None,
        lambda: next((address for module in modules for address in addresses_of(module, _NONE)), None),
    )
    greenlets = cache(lambda: _greenlets(objects, frames, values, found))
    read = len(threads)
    unled = _Unled()
    if lost or unlisted or not found.interpreters or any(thread.stack.cut for thread in threads):
        threads = _with_c_stacks(objects, frames, threads, idents, main)
        unled = _unled(objects, frames, threads, _holding_types(objects, modules, threads), greenlets)
        threads, unled = _with_unled(objects, frames, threads, unled, idents, main)
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
            Value(one.name, values.text(one.value), one.is_argument) for one in frames.variables(frame, _MOST_VARIABLES)
        ],
        exception=lambda thread: _exception(objects, values, thread),
        raised=lambda thread: _raised(objects, frames, values, thread),
        visited=lambda natives, fault: visited(objects, natives, fault),
        accessed=lambda thread, order, address: accessed(objects, values.arrays, _places(frames, thread, order), address),
        below=lambda thread, order, address: _below(objects, values, found, _places(frames, thread, order), address),
        loaded=lambda other, told: _loaded(Objects(View(other), found.layout, found.version, View(other, told)), found),
        locks=lambda: LockReader(objects, frames, values).read(
            [(one.state.ident, one.state.native_id, one.stack.inner) for one in threads[:_THREADS_WITH_LOCKS]]
        ),
        tasks=lambda source: _tasks(objects, frames, values, found, [(one.state.ident, one.stack.inner) for one in threads], source),
        greenlets=greenlets,
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


def _named(
    objects: Objects, frames: Frames, interpreter: Optional[int], threads: Sequence[PythonThread], main: Optional[int]
) -> list[PythonThread]:
    """The threads of one interpreter with their names: from `threading`'s table, else from the `Thread` that each of them runs.

    Where `sys.modules` does not lead to `threading`, its functions do that are on a stack. Only the main thread runs no `Thread`: it has
    the name that it begins with if `threading` is known to be imported, and nothing that is left says otherwise.
    """
    contents = threading_contents(objects, interpreter) if interpreter is not None else None
    if contents is None:
        contents = _on_stacks(objects, frames, _of_all(threads))
    names = names_in(objects, contents) if contents is not None else {}
    done = []
    for thread in threads:
        name = names.get(thread.state.ident) or _name_on_stack(objects, frames, thread.state, thread.stack)
        if name is None and contents is not None and thread.state.ident == main:
            name = main_name(objects, contents)
        done.append(thread._replace(name=name))
    return done


def _on_stacks(objects: Objects, frames: Frames, known: Iterable[FrameState]) -> Optional[int]:
    """The address of the variables of `threading`, which the frames of its functions have; None if there are none among these."""
    for frame in known:
        if frame.code is not None and PurePosixPath(frame.code.file or "").name == _THREADING:
            with suppress(Unreadable):
                contents = objects.view.word(frame.address + frames.globals_at)
                if is_threading(objects, contents):
                    return contents
    return None


def _of_all(threads: Iterable[PythonThread]) -> list[FrameState]:
    return [frame for thread in threads for frame in (*thread.stack.inner, *thread.stack.outer)]


def _name_on_stack(objects: Objects, frames: Frames, state: ThreadState, stack: Stack) -> Optional[str]:
    """What the `Thread` calls itself that the thread runs: for where the table of threads in `threading` is damaged or lost."""
    for frame in (stack.outer or stack.inner)[-_OUTER_FRAMES_OF_THREAD:]:
        if frame.code is None or frame.code.name not in ("_bootstrap", "_bootstrap_inner"):
            continue
        for variable in frames.variables(frame, 1):
            ident, name = _of_thread_object(objects, variable.value)
            if ident == state.ident:
                return name
    return None


def _holding_types(objects: Objects, modules: Sequence[Module], threads: Sequence[PythonThread]) -> set[int]:
    """Where the types may be of what holds running frames, to which nothing may lead: by the interpreter's file, else by known frames."""
    names = holding_types(objects)
    found = {address for module in modules for name in names for address in addresses_of(module, name)}
    for frame in (one for thread in threads for one in thread.stack.inner) if names and len(found) < len(names) else ():
        with suppress(Unreadable):
            held = holder(objects, frame.address)
            found |= {objects.type_of(held)} if held is not None and len(found) < len(names) else set()
    return found


def _with_c_stacks(
    objects: Objects, frames: Frames, threads: Sequence[PythonThread], idents: Mapping[int, int], main: Optional[int]
) -> list[PythonThread]:
    """The threads with those whose states are lost, or what leads on from there, and whose C stacks say what they run."""
    registers = {thread.tid: thread.registers for thread in objects.view.memory.threads()}
    leading = {thread.state.ident for thread in threads if thread.stack.inner or not thread.stack.cut}
    reached = {frame.address for thread in threads for frame in thread.stack.inner}
    found: dict[int, PythonThread] = {}
    for ident, tid in idents.items():
        stack = frames.on_c_stack(registers.get(tid, {})) if ident not in leading else None
        if stack is None or not stack.inner or not reached.isdisjoint(frame.address for frame in stack.inner):
            continue
        own, name = _own_thread(objects, frames, stack.inner[-1])
        if own in (ident, None):
            name = name or _main_name(objects, frames, _of_all(threads), ident, main)
            found[ident] = PythonThread(ThreadState(0, ident, tid, stack.inner[0].address), name, None, None, stack)
    done = []
    for thread in threads:
        other = found.pop(thread.state.ident, None) if thread.stack.cut else None
        done.append(thread._replace(stack=other.stack, name=thread.name or other.name) if other is not None else thread)
    return [*done, *found.values()]


def _main_name(objects: Objects, frames: Frames, known: Iterable[FrameState], ident: int, main: Optional[int]) -> Optional[str]:
    """The name of the process's first thread, if that is this one, and `threading` is known to be imported."""
    contents = _on_stacks(objects, frames, known) if ident == main else None
    return main_name(objects, contents) if contents is not None else None


def _beyond(chain: tuple[FrameState, ...], reached: Collection[int]) -> tuple[FrameState, ...]:
    """The frames further out than those that were reached in another way."""
    return chain[max((index + 1 for index, frame in enumerate(chain) if frame.address in reached), default=0) :]


class _Unled(msgspec.Struct, frozen=True):
    """Frames that nothing leads to from a thread's state, as they name each other, innermost first."""

    chains: tuple[tuple[FrameState, ...], ...] = ()
    may_be_suspended: bool = False
    """Whether some may be of suspended greenlets."""


def _unled(
    objects: Objects, frames: Frames, threads: Sequence[PythonThread], types: Collection[int], greenlets: Callable[[], Greenlets]
) -> _Unled:
    """Those of no thread, and of no greenlet that is known to be suspended: the frames of such a greenlet look as if they ran."""
    reached = {frame.address for thread in threads for frame in (*thread.stack.inner, *thread.stack.outer)}
    parts = newest_parts(objects.view, objects.layout, [thread.state.address for thread in threads])
    found = (*map(frames.upwards, parts), *frames.running(types, reached))
    chains = [beyond for one in found if (beyond := _beyond(one, reached))]
    if not chains or not any(PurePosixPath(one.path or "").name.startswith(_GREENLET) for one in objects.view.memory.mappings()):
        return _Unled(tuple(chains))
    known = greenlets()
    suspended = {frame.address for one in known.found for frame in (*one.stood.inner, *one.stood.outer)}
    left = (one for one in chains if suspended.isdisjoint(frame.address for frame in one))
    return _Unled(tuple(left), may_be_suspended=not known.found or not known.in_time)


def _with_unled(
    objects: Objects,
    frames: Frames,
    threads: Sequence[PythonThread],
    unled: _Unled,
    idents: Mapping[int, int],
    main: Optional[int],
) -> tuple[list[PythonThread], _Unled]:
    """The threads with these frames where the outermost one says whose they are, and the frames of which nothing says it.

    The outermost frame of a thread may be of a suspended greenlet, too: then it says nothing.
    """
    if unled.may_be_suspended or not unled.chains:
        return list(threads), unled
    chains = list(unled.chains)
    # A call of the interpreter begins on its thread's C stack.
    ranges, by_tid = CStackRanges(objects.view.memory), {tid: ident for ident, tid in idents.items()}
    c_stacks = [ranges.at(frames.named(one[-1])) for one in chains]
    on_c_stacks = {by_tid.get(stack.tid): stack for stack in c_stacks if stack is not None}
    known = [*_of_all(threads), *(frame for one in chains for frame in one)]
    owned: dict[int, list[int]] = {}
    names: dict[int, Optional[str]] = {}
    for index, one in enumerate(chains):
        if not frames.is_outermost(one[-1]):
            continue
        ident, name = _own_thread(objects, frames, one[-1])
        if ident is None:
            c_stack = c_stacks[index]
            ident = by_tid.get(c_stack.tid) if c_stack is not None else None
            if ident is None and main is not None and _is_first(frames, one[-1]):
                ident = main
            name = _main_name(objects, frames, known, ident, main) if ident is not None else None
        if ident in idents and ident is not None:
            owned.setdefault(ident, []).append(index)
            names[ident] = name
    found = {ident: of_it[0] for ident, of_it in owned.items() if len(of_it) == 1}
    done = []
    for thread in threads:
        if thread.stack.cut and not thread.stack.outer and thread.state.ident in found:
            index = found.pop(thread.state.ident)
            one, chains[index] = chains[index], ()
            inner = thread.stack.inner
            stack = Stack(inner, one, cut=True, gap=True) if inner else Stack(one, cut=True, gap=True)
            thread = thread._replace(stack=stack, name=thread.name or names[thread.state.ident])
        done.append(thread)
    for ident in set(found).difference(thread.state.ident for thread in threads):
        stack = Stack(chains[found[ident]], cut=True, gap=True)
        done.append(PythonThread(ThreadState(0, ident, None, None), names[ident], None, None, stack))
        chains[found[ident]] = ()
    left = [one for one in chains if one]
    on_data_stacks = [one for one in left if frames.is_outermost(one[-1])]
    others = [one for one in left if not frames.is_outermost(one[-1])]
    for index, thread in enumerate(done if objects.layout.frame.owner is not None else ()):
        if others and thread.stack.cut:
            is_current = bool(thread.stack.outer or not thread.stack.gap)
            stack, others = with_generators(thread.stack, others, frames.named, is_current, on_c_stacks.get(thread.state.ident))
            done[index] = thread._replace(stack=stack)
    return done[:MOST_THREADS], _Unled((*on_data_stacks, *others))


def _is_first(frames: Frames, frame: FrameState) -> bool:
    """Whether the first thread of a process may have this outermost frame."""
    name = frame.code.name if frame.code is not None else None
    # `<module>` is a constant of the interpreter's own, which a truncated core may lack.
    return frames.is_of_module(frame) if name is None else name in _FIRST_FRAMES


def _own_thread(objects: Objects, frames: Frames, frame: FrameState) -> tuple[Optional[int], Optional[str]]:
    """Ident and name by the `Thread` that such a thread's outermost frame has as its only variable; nothing if this is none."""
    try:
        return _of_thread_object(objects, frames.first_slot(frame))
    except Unreadable:
        return None, None


def _of_thread_object(objects: Objects, address: int) -> tuple[Optional[int], Optional[str]]:
    """What the `Thread` at this address calls itself, with its ident; nothing if this is none, or has not both."""
    try:
        ident, name = (objects.attribute(address, attribute) for attribute in ("_ident", "_name"))
        if ident is None or name is None:
            return None, None
        return objects.integer(ident), objects.text(name, LONGEST_NAME)
    except Unreadable:
        return None, None


def _places(frames: Frames, thread: PythonThread, order: Sequence[int]) -> Iterator[tuple[Place, int]]:
    for index in order:
        for variable in frames.variables(thread.stack.inner[index], _MOST_VARIABLES):
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
