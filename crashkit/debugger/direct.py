"""crashkit's own reading of CPython's memory, as an answer beside the debuggers': without gdb, debug info or another process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import NamedTuple, Optional, Union

from msgspec.structs import replace

from crashkit.debugger.contract import Answer, PythonStack
from crashkit.evidence.core.constants import read_constant
from crashkit.evidence.core.core import Core
from crashkit.evidence.core.describe import Scene
from crashkit.evidence.core.modules import torch_storage
from crashkit.evidence.core.walk import names, walk
from crashkit.interpreter.accessed import Accessed
from crashkit.interpreter.c_stacks import CStackRanges
from crashkit.interpreter.finding import Absent, Module, absent
from crashkit.interpreter.forward import ForwardLine
from crashkit.interpreter.frames import FrameState
from crashkit.interpreter.greenlets import Greenlets
from crashkit.interpreter.kept_sources import KeptSource
from crashkit.interpreter.layouts import Version, layout_of
from crashkit.interpreter.linetable import Position
from crashkit.interpreter.locks import PythonLocks
from crashkit.interpreter.python_threads import PythonThread, frames_of
from crashkit.interpreter.read import PythonState, read_python
from crashkit.interpreter.task_locks import ReadSource
from crashkit.interpreter.tasks import Tasks, TaskState
from crashkit.interpreter.view import View
from crashkit.interpreter.visited import NativeState
from crashkit.model import AccessedArray, Address, Crash, Greenlet, PendingSignal, PythonFrame, Raised, SoftError, Task
from crashkit.naming.own_code import is_own
from crashkit.naming.signals import signal_name

ORIGIN = "crashkit"
_CELLS = "/ipykernel_"
"""In the names of files that a notebook's kernel gives to its cells, and does not write."""
_THREADS_WITH_VARIABLES = 64
_FRAMES_WITH_VARIABLES = 1000
"""At either end of a deep stack."""
_FRAMES_WITH_ARRAYS = 20
_THREADS_WITH_ARRAYS = 16
_THREADS_WITH_FORWARD = 64
_FORWARD_LINES = 20
_UNPLACED = 20
"""Frames named of which nothing says in which thread they ran."""
_MOST_NATIVE = 24
"""Native frames in which an object is looked for."""


class Carried(NamedTuple):
    """A Python exception that an exception of C++ carried."""

    text: str
    """Its type and arguments."""
    function: Optional[str]
    """Where it was raised."""
    file: Optional[str]
    line: Optional[int]


class DirectReader:
    """Reads the Python stacks of one core. Does nothing for a process without Python 3."""

    def __init__(self, core: Core, scene: Scene) -> None:
        self._core = core
        self._scene = scene
        self._state: Optional[PythonState] = None
        self._truncated = core.truncated
        self._tids = {
            int(thread.pthread): thread.tid for thread in scene.crash.threads if thread.pthread is not None and thread.tid is not None
        }
        interpreter = scene.interpreter
        self._absent: Optional[Absent] = None
        if interpreter is None or interpreter.is_too_old:
            return
        pid = core.process.pid if core.process else None
        modules = [Module(interpreter.module, scene.files[interpreter.module.path].path)]
        self._state = read_python(
            core,
            modules,
            _version(scene),
            self._tids,
            lambda address, size: read_constant(core, scene.files, address, size),
            next((ident for ident, tid in self._tids.items() if tid == pid), None),
        )
        self._absent = absent(View(core), modules, _version(scene)) if self._state is None else None

    def stacks(self) -> dict[int, PythonStack]:
        """By tid; without the values of variables."""
        return self._by_tid(lambda _tid: False)

    @property
    def tells_all(self) -> bool:
        """Whether nobody else can tell more: every thread state and every frame could be read, or what is missing is not in the core."""
        version = _version(self._scene)
        if self._truncated and (self._state is not None or (version is not None and layout_of(version) is not None)):
            return True
        stacks = self.stacks().values()
        lost = any(stack.cut or stack.has_gaps for stack in stacks)
        return self._state is not None and self._state.lost_threads == 0 and not lost and any(stack.frames for stack in stacks)

    def preview(self) -> Crash:
        """The described crash with the Python frames, which no native ones are merged with yet; values of the crashed thread only."""
        crash = self._scene.crash
        stacks = self._by_tid(lambda tid: tid == crash.crashed_thread)
        unread = True if self._state is not None and not self._is_whole(stacks) else None
        threads = tuple(
            replace(thread, name=stack.name, python_frames=stack.frames, python_unread=(stack.cut and not stack.frames) or None)
            if (stack := stacks.get(thread.tid or 0))
            else replace(thread, python_unread=unread)
            for thread in crash.threads
        )
        return replace(crash, threads=threads)

    def answer(self) -> Answer:
        """The whole answer, with the values of variables."""
        state = self._state
        if self._absent is Absent.NEVER_STARTED:
            return Answer(python_started=False)
        if self._absent is Absent.ENDED:
            return Answer(python={}, python_finalizing=True)
        if state is None:
            return Answer(soft_errors=tuple(self._nothing()))
        crashed = self._scene.crash.crashed_thread
        tids = sorted({tid for tid, _ in self._threads()}, key=lambda tid: tid != crashed)
        stacks = self._by_tid(set(tids[:_THREADS_WITH_VARIABLES]).__contains__)
        return Answer(
            python=stacks,
            python_is_whole=self._is_whole(stacks),
            python_version=f"{state.version.major}.{state.version.minor}",
            python_finalizing=state.finalizing,
            pending_signals=tuple(
                PendingSignal(number=one.number, name=signal_name(one.number), handler=one.handler, file=one.file, line=one.line)
                for one in state.pending_signals()
            ),
            visited=self._visited(state),
            arrays=self._arrays(state),
            loaded=self.loaded(),
            kept_sources=self.kept_sources,
            soft_errors=tuple(self._lost(stacks)),
        )

    def unwritten(self) -> list[bytes]:
        """What Python code had printed, and was still in the buffers of sys.stdout and sys.stderr."""
        return self._state.unwritten() if self._state is not None else []

    def carried(self, thrown: int) -> Optional[Carried]:
        """The Python exception that the C++ exception at this address carried; None if there was none."""
        carried = self._state.carried(thrown) if self._state is not None else None
        if carried is None:
            return None
        frame = next((self._frame(one, False) for one in carried.frames), None)
        return Carried(carried.text, *((frame.function, frame.file, frame.line) if frame else (None, None, None)))

    def _is_whole(self, stacks: Mapping[int, PythonStack]) -> bool:
        return self._state is not None and self._state.lost_threads == 0 and not any(stack.cut for stack in stacks.values())

    def loaded(self) -> tuple[str, ...]:
        """Files of what was imported, one for each package."""
        if self._core.left is not None:
            return self._core.left.loaded
        if self._state is None:
            return ()
        core, files = self._core.aside(), self._scene.files
        return tuple(self._state.loaded(core, lambda address, size: read_constant(core, files, address, size)))

    @cached_property
    def kept_sources(self) -> dict[str, KeptSource]:
        """Code that is in no file, where the process kept them, by the name that its frames have in place of a file's."""
        threads = self._state.threads if self._state is not None else ()
        files = {frame.code.file or "" for frame in frames_of(threads) if frame.code is not None}
        wanted = {file for file in files if file.startswith("<") or _CELLS in file}
        return self._state.kept_sources(wanted) if self._state is not None and wanted else {}

    def _visited(self, state: PythonState) -> Optional[str]:
        scene, signal = self._scene, self._scene.crash.signal
        if not scene.faults or signal is None:
            return None
        frames = walk(self._core, scene.modules, scene.files, scene.faults[-1].registers)[:_MOST_NATIVE]
        functions = names(frames, scene.files)
        evaluation = next((at for at, name in enumerate(functions) if (name or "").startswith("_PyEval_EvalFrame")), len(frames))
        found = state.visited([NativeState(frame.start, frame.registers) for frame in frames[:evaluation]], signal.address)
        if found is None:
            return None
        return f"an object of type {found.type}" if found.type else f"the object at {Address(found.address)}, whose type pointer is damaged"

    def _arrays(self, state: PythonState) -> tuple[AccessedArray, ...]:
        crashed = self._scene.crash.crashed_thread
        # Which of them ended the process, the stack tells only later.
        signals = [self._scene.crash.signal, *(fault.signal for fault in reversed(self._scene.faults))]
        addresses = dict.fromkeys(one.address for one in signals if one is not None and one.address is not None)
        # A worker of a library's pool has no Python frames: the thread that waits for it has the array.
        threads = [(tid, thread) for tid, thread in self._threads() if tid == crashed] or list(self._threads())[:_THREADS_WITH_ARRAYS]
        return tuple(one for address in addresses for tid, thread in threads for one in self._accessed(state, tid, thread, address))

    def _accessed(self, state: PythonState, tid: int, thread: PythonThread, address: int) -> list[AccessedArray]:
        """The array that describes the memory at the address, else the buffers that end below it."""
        frames = [self._frame(one, False) for one in thread.stack.inner[:_FRAMES_WITH_ARRAYS]]
        # The libraries' own functions have the user's array under names of theirs.
        order = sorted(range(len(frames)), key=lambda index: not is_own(frames[index]))
        found = state.accessed(thread, order, address)
        return [_array(tid, frames, one) for one in ([found] if found is not None else state.below(thread, order, address))]

    def locks(self) -> Optional[PythonLocks]:
        """The locks that the threads hold and want; None without an interpreter."""
        return self._state.locks() if self._state is not None else None

    @property
    def gil_waiters(self) -> tuple[range, ...]:
        """The addresses that threads name to the kernel while they wait for the GIL; none if it is not known where it is."""
        return self._state.gil_waiters if self._state is not None else ()

    def with_tasks(self, crash: Crash, source: ReadSource = lambda _name: None) -> Crash:
        """The crash with asyncio's tasks, without the values of their variables. `source`: what they ran, where it is at hand."""
        if self._state is None:
            return crash
        read = self._state.tasks(source)
        stuck = read.stuck()
        found = _those_in_question_first(read.found, stuck)
        places = {task.address: index for index, task in enumerate(found)}
        tids = {thread.state.ident: tid for tid, thread in self._threads()}
        awaits = [tuple(dict.fromkeys(places[address] for address in task.awaits if address in places)) for task in found]
        awaited_by: dict[int, list[int]] = {}
        for index, others in enumerate(awaits):
            for other in others:
                awaited_by.setdefault(other, []).append(index)
        wanted = [read.locks.wanted.get(task.address) for task in found]
        tasks = tuple(
            Task(
                name=task.name,
                state=task.state,
                loop_thread=tids.get(task.ident) if task.ident is not None else None,
                awaits=(found[awaits[index][0]].name if len(awaits[index]) == 1 else None) or task.waits_for,
                awaits_tasks=awaits[index],
                awaited_by=tuple(awaited_by.get(index, ())),
                lock=lock.name if (lock := wanted[index]) is not None else None,
                held_by=places.get(lock.holder) if lock is not None else None,
                held_at=lock.frame if lock is not None and lock.holder in places else None,
                detail=lock.detail if lock is not None else None,
                cycle=task.address in stuck,
                frames=tuple(self._frame(frame, False) for frame in task.frames),
            )
            for index, task in enumerate(found)
        )
        late = _late("tasks", "asyncio tasks", read)
        return replace(crash, tasks=tasks, soft_errors=(*crash.soft_errors, *late))

    def with_greenlets(self, crash: Crash) -> Crash:
        """The crash with its greenlets, without the values of their variables. `crash` has its threads' registers."""
        if self._state is None:
            return crash
        read = self._state.greenlets()
        found = read.found
        places = {greenlet.address: index for index, greenlet in enumerate(found)}
        stacks = CStackRanges(self._core)
        greenlets = tuple(
            Greenlet(
                address=Address(one.address),
                type=one.type,
                state=one.state,
                thread=stack.tid if one.stack is not None and (stack := stacks.at(one.stack)) is not None else None,
                main=one.is_main,
                parent=places.get(one.parent) if one.parent is not None else None,
                frames=tuple(self._frame(frame, False) for frame in one.frames),
            )
            for one in found
        )
        late = _late("greenlets", "greenlets", read)
        return replace(crash, greenlets=greenlets, soft_errors=(*crash.soft_errors, *late))

    def with_forward(self, crash: Crash) -> Crash:
        """The crash with the forward lines of threads in torch's backward pass, where torch kept them."""
        state, core = self._state, self._core
        size = torch_storage(core, self._scene.modules)
        if state is None or size is None:
            return crash
        name = core.architecture.thread_pointer or ""
        threads = list(crash.threads)
        # The crashed thread comes first.
        for index in sorted(range(len(threads)), key=lambda index: not threads[index].crashed)[:_THREADS_WITH_FORWARD]:
            pointer = threads[index].registers.get(name)
            if lines := state.forward(pointer, size) if pointer else []:
                threads[index] = replace(threads[index], forward=tuple(map(_forward, lines[:_FORWARD_LINES])))
        return replace(crash, threads=tuple(threads))

    def _threads(self) -> Iterator[tuple[int, PythonThread]]:
        """With their tids, those of the newest interpreter first."""
        known = {thread.tid for thread in self._scene.crash.threads}
        for thread in self._state.threads if self._state else ():
            native = thread.state.native_id
            tid = self._tids.get(thread.state.ident) or (native if native in known else None)
            if tid is not None:
                yield tid, thread

    def _by_tid(self, with_variables: Callable[[int], bool]) -> dict[int, PythonStack]:
        stacks: dict[int, PythonStack] = {}
        for tid, thread in self._threads():
            stack = self._stack(thread, with_variables(tid))
            stacks[tid] = stacks[tid].over(stack) if tid in stacks else stack
        return stacks

    def _stack(self, thread: PythonThread, with_variables: bool) -> PythonStack:
        def frames(states: tuple[FrameState, ...]) -> tuple[PythonFrame, ...]:
            return tuple(self._frame(state, with_variables and index < _FRAMES_WITH_VARIABLES) for index, state in enumerate(states))

        stack = thread.stack
        return PythonStack(
            frames=frames(stack.inner),
            name=thread.name,
            holds_gil=thread.holds_gil,
            outer=frames(stack.outer),
            total=stack.total,
            cut=stack.cut,
            gap=stack.gap,
            exception=self._state.exception(thread) if self._state and with_variables else None,
            raised=self._raised(thread) if with_variables else (),
            pending=self._state.pending(thread) if self._state and with_variables else None,
            collecting=thread.collecting,
        )

    def _raised(self, thread: PythonThread) -> tuple[Raised, ...]:
        return tuple(
            Raised(
                text=one.text,
                relation=one.relation,
                frames=tuple(self._frame(frame, False) for frame in one.frames),
                left_out=one.left_out or None,
            )
            for one in (self._state.raised(thread) if self._state else ())
        )

    def _frame(self, state: FrameState, with_variables: bool) -> PythonFrame:
        values = self._state.variables(state) if self._state and with_variables else []
        code = state.code
        return PythonFrame(
            function=code.name if code else None,
            file=code.file if code else None,
            line=state.position.line if state.position else None,
            columns=_columns(state.position),
            args=tuple(value.name for value in values if value.is_argument),
            locals={value.name: value.text for value in values},
            origin=ORIGIN,
            entry=state.is_entry,
        )

    def _nothing(self) -> Iterator[SoftError]:
        interpreter = self._scene.interpreter
        if interpreter is not None and not interpreter.is_too_old:
            message = f"no thread states of Python {interpreter.version or ''} found in the core's memory".replace("  ", " ")
            yield SoftError(stage="python", message=message)

    def _lost(self, stacks: dict[int, PythonStack]) -> Iterator[SoftError]:
        unlisted = self._state.unlisted_threads if self._state else 0
        if unlisted:
            missing = "one thread was" if unlisted == 1 else f"{unlisted} threads were"
            message = f"the interpreter's list of threads is damaged: {missing} found by their own storage or C stacks"
            yield SoftError(stage="python", message=message)
        frames = [frame for stack in stacks.values() for frame in (*stack.frames, *stack.outer)]
        nameless = sum(frame.function is None for frame in frames)
        if nameless:
            message = f"{nameless} of {len(frames)} Python frames cannot be named: their code objects are missing from the core"
            yield SoftError(stage="python", message=message)
        stateless = self._state.stateless_threads if self._state else 0
        if stateless:
            whose = "one thread is lost: its" if stateless == 1 else f"{stateless} threads are lost: their"
            yield SoftError(stage="python", message=f"the interpreter's state of {whose} frames were found without it")
        gaps = sum(stack.gap for stack in stacks.values())
        if gaps:
            message = (
                f"inner Python frames of {'one thread' if gaps == 1 else f'{gaps} threads'} may be missing: what leads to them is lost"
            )
            yield SoftError(stage="python", message=message)
        unplaced = [frame for chain in self._state.unplaced for frame in chain] if self._state else []
        if unplaced:
            named = [_place(frame) for frame in unplaced if frame.code is not None]
            shown = (": " if named else "") + ", ".join(named[:_UNPLACED]) + (", ..." if len(named) > _UNPLACED else "")
            one = "one more Python frame was" if len(unplaced) == 1 else f"{len(unplaced)} more Python frames were"
            how = "running or suspended in greenlets" if self._state and self._state.may_be_suspended else "running"
            yield SoftError(stage="python", message=f"{one} {how}, but what tells in which thread is lost{shown}")
        cut = [stack for stack in stacks.values() if stack.cut and not stack.gap]
        lost = sum(not stack.frames for stack in cut) + (self._state.lost_threads if self._state else 0)
        for which, count in (("Python frames", lost), ("outer Python frames", sum(bool(stack.frames) for stack in cut))):
            if count:
                threads = "one thread" if count == 1 else f"{count} threads"
                yield SoftError(stage="python", message=f"the {which} of {threads} are lost: their memory is missing or damaged")


def _place(frame: FrameState) -> str:
    code = frame.code
    function, file = (code.name if code else None) or "?", PurePosixPath((code.file if code else None) or "?").name
    return f"{function} ({file}:{frame.position.line if frame.position else '?'})"


def _forward(line: ForwardLine) -> PythonFrame:
    return PythonFrame(function=line.function, file=line.file, line=line.line, source=line.source or None, origin="anomaly-mode")


def _late(stage: str, what: str, read: Union[Tasks, Greenlets]) -> tuple[SoftError, ...]:
    """What is missing, if anything is, and why."""
    if read.all_counted and not read.left_out:
        return ()
    if read.all_counted:
        total = len(read.found) + read.left_out
        message = f"{read.left_out:,} of {total:,} {what} were left out: reading them took too long"
        return (SoftError(stage=stage, message=message),)
    besides = f", {read.left_out:,} were only counted" if read.left_out else ""
    message = f"the search for {what} took too long and was ended: {len(read.found):,} were read{besides}, and there may be more"
    return (SoftError(stage=stage, message=message, hint="The memory that leads to them may be damaged."),)


def _those_in_question_first(tasks: Sequence[TaskState], stuck: Collection[int]) -> list[TaskState]:
    """Those that wait for each other, running tasks, then those that wait for them, and so on: a report may have no room for all."""
    waiting: dict[int, list[TaskState]] = {}
    for task in tasks:
        for other in task.awaits:
            waiting.setdefault(other, []).append(task)
    first = {task.address: task for task in tasks if task.address in stuck}
    first.update({task.address: task for task in tasks if task.state == "running"})
    queue = list(first)
    for address in queue:
        for task in waiting.get(address, ()):
            if task.address not in first:
                first[task.address] = task
                queue.append(task.address)
    return [*first.values(), *(task for task in tasks if task.address not in first)]


def _columns(position: Optional[Position]) -> Optional[tuple[int, int]]:
    """In bytes. An end of 0 stands for that of the line: the expression goes on in the next one."""
    if position is None or position.column is None:
        return None
    within = position.end_line in (None, position.line)
    return position.column, (position.end_column or 0) if within else 0


def _version(scene: Scene) -> Optional[Version]:
    text = (scene.crash.python.version if scene.crash.python else None) or (scene.interpreter.version if scene.interpreter else None)
    parts = (text or "").split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return Version(int(parts[0]), int(parts[1]), bool(scene.interpreter and scene.interpreter.free_threaded))


def _array(tid: int, frames: Sequence[PythonFrame], found: Accessed) -> AccessedArray:
    frame, owner = frames[found.place.frame], found.owner
    return AccessedArray(
        variable=found.place.name,
        thread=tid,
        description=found.extent.description,
        start=Address(found.extent.addresses.start),
        end=Address(found.extent.addresses.stop),
        function=frame.function,
        file=frame.file,
        line=frame.line,
        owner=owner.description if owner is not None else None,
        owner_start=Address(owner.addresses.start) if owner is not None else None,
        owner_end=Address(owner.addresses.stop) if owner is not None else None,
    )
