"""Whether a process that burns a processor waits for the GPU: CUDA asks for the end of a kernel over and over, which looks like work.

It does if its Python position stays the same, and the thread that runs stands in the driver. Memory is read while the process runs;
only for the second fact, of which few looks are enough, are the threads that run stopped for a moment.
"""

from __future__ import annotations

import bisect
import os
import re
import struct
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Optional

from crashkit.collect.living import Watch
from crashkit.collect.python_memory import interpreter_of
from crashkit.errors import EvidenceError
from crashkit.interpreter.finding import find
from crashkit.interpreter.frames import Frames, FrameState
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.search import Ranges
from crashkit.interpreter.threads import ThreadState, read_state, states_of
from crashkit.interpreter.view import Unreadable, View
from crashkit.memory.live import LiveProcess
from crashkit.memory.stop import Stopped
from crashkit.model import PythonFrame
from crashkit.naming.cuda import DRIVER, SYSTEM
from crashkit.naming.own_code import own_line

RUNS = 0.1
"""The share of a processor from which on a thread counts as one that runs: others wake now and then to see that there is nothing to do."""
_FRAMES, _SLOTS = 32, 64
"""Frames of a stack, and variables of a frame, that are compared."""
_FIRST = 8
"""Variables that are compared often."""
_ITERATORS = 2
"""Words behind the variables: what the outermost loops of the frame go through."""
_WORD = 8
_CONTENT = 32
"""Bytes behind the head of an object: where an iterator is, what a number is."""
_STACK = 4 << 10
"""Bytes of a thread's stack that are compared: driver 580 takes 1 KiB of it, torch 2 KiB."""
_INNERMOST = 256
"""Bytes of the function that waits; driver 580 changes those up to the 80th."""
_STOPS, _BETWEEN_STOPS = 12, 0.001
_MOST_SYSTEM = 32
"""Words of the stack in which the caller of a function of the C library is looked for."""
_LONGEST_PLACE = 200


class Standing(NamedTuple):
    """A process that waits for the GPU."""

    since: float
    """As of time.monotonic()."""
    place: str
    """Where in its Python code: `train.py:40 (torch.cuda.synchronize)`."""


class Standstill:
    """Watches one process. `look` from time to time, and `sample` often in between.

    Raises EvidenceError if its memory may not be read, or it runs no Python that can be read.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._memory = LiveProcess(pid)
        try:
            self._python = _Python(self._memory)
        except BaseException:
            self._memory.close()
            raise
        self._watch = Watch(pid)
        self._moved()

    def close(self) -> None:
        """Close the files of the process."""
        self._memory.close()

    def _moved(self) -> None:
        self._since = time.monotonic()
        self._position: Optional[_Position] = None
        self._calls: dict[int, _Call] = {}
        self._place = ""

    def sample(self) -> bool:
        """Whether it has moved since the last look: what comes back to the same place until the next one has moved, too."""
        if self._position is not None and self._python.tops(self._position.states) != self._position.tops:
            self._moved()
        return self._position is None

    def look(self) -> Optional[Standing]:
        """Since when it stands; None if it does not, or was not yet at this place when it was last looked at."""
        shares, self._watch = self._watch.shares(0), Watch(self._pid)
        running = sorted(tid for tid, share in shares.items() if share >= RUNS)
        position = self._python.position(running) if running else None
        if position is None or position != self._position:
            self._moved()
            self._position = position
            return None
        # A process that moves is not stopped.
        calls = calls_of_the_driver(self._memory, running)
        if calls is None or not all(call.is_same(self._calls.get(tid, call)) for tid, call in calls.items()):
            self._moved()
            return None
        if not self._calls:
            self._since = time.monotonic()
        self._calls = calls
        self._place = self._place or self._python.place(position.states)
        return Standing(self._since, self._place)


class _Position(NamedTuple):
    """Where the threads that run stand in their Python code."""

    running: tuple[int, ...]
    states: tuple[int, ...]
    """Addresses of thread states: of the threads that run, or of the first one if those run no Python (autograd's)."""
    tops: tuple[tuple[int, bytes], ...]
    stacks: int
    """A number for all of their frames, variables and what these hold."""


class _Python:
    """The interpreter of a process that runs. Values read at different times may not fit together: then it has moved."""

    def __init__(self, memory: LiveProcess) -> None:
        self._memory = memory
        interpreter = interpreter_of(memory)
        found = None
        with suppress(Unreadable):
            found = find(View(memory), [interpreter[0]], interpreter[1], {}) if interpreter is not None else None
        if found is None or memory.word.size != 8:
            raise EvidenceError(f"process {memory.pid} runs no Python that can be read", "Python 3.6 to 3.14 can be read.")
        self._found = found
        self._idents: dict[int, Optional[int]] = {}

    def tops(self, states: Iterable[int]) -> tuple[tuple[int, bytes], ...]:
        """Where each of these threads stands: its current frame, and the beginning of that. Empty if that cannot be read."""
        view, size = View(self._memory), self._found.layout.frame.locals + _FIRST * _WORD
        try:
            return tuple((frame, self._memory.read(frame, size)) for frame in (_current(self._state(view, one)) for one in states))
        except Unreadable:
            return ()

    def position(self, running: Sequence[int]) -> Optional[_Position]:
        """Where the threads that run stand; None if no thread runs Python, or it moved while it was read."""
        view = View(self._memory)
        states = [state for state in self._states(view) if state.frame]
        chosen = [state for state in states if self._tid(state, running) in running] or states[-1:]
        addresses = tuple(state.address for state in chosen)
        before = self.tops(addresses)
        frames = self._frames(view)
        try:
            stacks = hash(tuple(part for state in chosen for part in self._stack(frames, _current(state))))
        except Unreadable:
            return None
        return _Position(tuple(running), addresses, before, stacks) if before and before == self.tops(addresses) else None

    def place(self, states: Iterable[int]) -> str:
        """The user's own line of the first of these threads that has one, and the library's function that it called."""
        view = View(self._memory)
        frames = self._frames(view)
        for address in states:
            try:
                stack = [_frame(one) for one in frames.stack(self._state(view, address).frame).inner]
            except Unreadable:
                continue
            own = own_line(stack) or next(iter(stack), None)
            if own is not None:
                line = f"{os.path.basename(own.file or '?')}:{own.line or '?'}"
                called = _function(stack[0]) if stack[0] is not own else None
                return (f"{line} ({called})" if called else line)[:_LONGEST_PLACE]
        return "an unknown line"

    def _frames(self, view: View) -> Frames:
        return Frames(Objects(view, self._found.layout, self._found.version), Ranges(self._memory).holds)

    def _state(self, view: View, address: int) -> ThreadState:
        return read_state(view, self._found.layout, address)

    def _states(self, view: View) -> list[ThreadState]:
        """All thread states, the main thread's last: new ones are put before it (`new_threadstate`, Python/pystate.c)."""
        found = []
        for interpreter in self._found.interpreters:
            for address in states_of(view, self._found.layout, interpreter):
                with suppress(Unreadable):
                    found.append(self._state(view, address))
        return found

    def _tid(self, state: ThreadState, running: Iterable[int]) -> Optional[int]:
        """The thread of a state. Up to 3.10 it knows its ident only, which the threads that run are asked for once."""
        if state.native_id is not None:
            return state.native_id
        unknown = [tid for tid in running if tid not in self._idents]
        if unknown:
            (stopped,) = _registers(self._memory, unknown)
            pthread = self._memory.architecture.pthread
            self._idents |= dict.fromkeys(unknown) | {tid: pthread(at, tid, self._memory.read) for tid, (at, _) in stopped.items()}
        return next((tid for tid, ident in self._idents.items() if ident == state.ident), None)

    def _stack(self, frames: Frames, frame: int) -> Iterator[bytes]:
        """What changes as the thread's Python code runs: its frames, their variables, and what these hold."""
        head, size = self._found.layout.object.type + _WORD, self._found.layout.frame.locals
        for one in frames.stack(frame).inner[:_FRAMES]:
            yield self._memory.read(one.address, size)
            count = min(_SLOTS, frames.slots(one.code) + _ITERATORS) if one.code is not None else 0
            slots = self._memory.read(one.address + size, count * _WORD)
            yield slots
            for pointer in struct.unpack(f"{len(slots) // _WORD}Q", slots[: len(slots) // _WORD * _WORD]):
                # Without its count of references, which other threads change.
                yield self._memory.read(frames.untagged(pointer) + head, _CONTENT) if pointer else b""


def _current(state: ThreadState) -> int:
    """The thread's current frame. Raises Unreadable if that could not be read."""
    if state.frame is None:
        raise Unreadable("a thread whose frames are lost")
    return state.frame


def _frame(frame: FrameState) -> PythonFrame:
    code = frame.code
    return PythonFrame(
        function=(code.qualified_name or code.name) if code is not None else None,
        file=code.file if code is not None else None,
        line=frame.position.line if frame.position is not None else None,
    )


def _function(frame: PythonFrame) -> Optional[str]:
    """`torch.cuda.synchronize`: the name by which an installed package's function is imported."""
    _, _, path = (frame.file or "").rpartition("-packages/")
    module = re.sub(r"(?:/__init__)?\.py$", "", path).replace("/", ".")
    return f"{module}.{frame.function}" if re.fullmatch(r"[\w.]+", module) and path != frame.file and frame.function else None


class _Call(NamedTuple):
    """A thread in a call of the driver."""

    start: int
    """Address on its stack, behind the function that waits: that keeps the time there."""
    callers: bytes
    """The stack from there on: of the driver's outer functions, with what they wait for, and of those that called them."""

    def is_same(self, other: _Call) -> bool:
        """Whether it has not returned between the one look and the other: another call waits for something else, at the same place."""
        start, end = max(self.start, other.start), min(self.start + len(self.callers), other.start + len(other.callers))
        return start < end and self.callers[start - self.start : end - self.start] == other.callers[start - other.start : end - other.start]


def calls_of_the_driver(memory: LiveProcess, tids: Collection[int]) -> Optional[dict[int, _Call]]:
    """By thread, the call of the driver that it stands in at each of some looks; None if one of them stands elsewhere."""
    code = _Code(memory)
    names = memory.architecture
    found: dict[int, _Call] = {}
    for times in (1, _STOPS - 1):
        for seen in _registers(memory, tids, times):
            if set(seen) != set(tids):
                return None
            for tid, (registers, stack) in seen.items():
                if not code.is_driver(registers[names.program_counter], stack):
                    return None
                start = registers[names.stack_pointer] + _INNERMOST
                # The driver calls functions as it waits: what is outside the outermost of them is always there.
                if tid not in found or start > found[tid].start:
                    found[tid] = _Call(start, stack[_INNERMOST:])
    return found or None


def _registers(memory: LiveProcess, tids: Collection[int], times: int = 1) -> list[dict[int, tuple[dict[str, int], bytes]]]:
    """The registers and the inner end of the stack of these threads, which are stopped so many times, each for a fraction of a millisecond.

    Nothing of those that cannot be stopped: the kernel lets go of one that is in an uninterruptible call when its tracer ends.
    """
    found: list[dict[int, tuple[dict[str, int], bytes]]] = []
    names = memory.architecture.registers

    def stop() -> None:
        for _ in range(times):
            seen = {}
            with suppress(EvidenceError), Stopped(memory.pid, tids) as stopped:
                for tid in stopped.threads:
                    data = stopped.registers(tid)
                    if names and len(data) >= len(names) * _WORD:
                        registers = dict(zip(names, struct.unpack_from(f"{memory.word.order}{len(names)}Q", data), strict=True))
                        seen[tid] = registers, memory.read(registers[memory.architecture.stack_pointer], _STACK)
            found.append(seen)
            if len(seen) < len(tids):
                break
            time.sleep(_BETWEEN_STOPS)

    tracer = threading.Thread(target=stop, name="tracer")
    tracer.start()
    tracer.join()
    return found


class _Code:
    """What code lies where."""

    def __init__(self, memory: LiveProcess) -> None:
        ranges = sorted((int(m.start), int(m.end), m.path or "") for m in memory.mappings() if "x" in (m.permissions or ""))
        self._starts = [start for start, _, _ in ranges]
        self._ranges = ranges

    def file(self, address: int) -> str:
        """The file whose code is at an address; empty if there is none."""
        at = bisect.bisect_right(self._starts, address) - 1
        return self._ranges[at][2] if at >= 0 and address < self._ranges[at][1] else ""

    def is_driver(self, counter: int, stack: bytes) -> bool:
        """Whether a thread that stands there is in the driver, or in what that calls to know the time or to let others run."""
        if not SYSTEM.search(self.file(counter)):
            return DRIVER.search(self.file(counter)) is not None
        # Among the return addresses are registers that were saved: those of an interpreter point to its code, too.
        words = struct.unpack_from(f"{min(_MOST_SYSTEM, len(stack) // _WORD)}Q", stack)
        return any(DRIVER.search(self.file(word)) for word in words)
