"""Where the threads' C stacks are, and whose one an address lies on: from 3.12 on the outermost frame of an interpreter call names an entry
frame there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Optional

from crashkit.evidence.core import signal_frame
from crashkit.interpreter.search import Ranges
from crashkit.memory import Memory


def interrupted(memory: Memory, stack_pointer: int) -> int:
    """Where the stack was before a signal: its handler may have a stack of its own, and runs no Python."""
    frame = signal_frame.find(memory, stack_pointer)
    return frame.registers.get(memory.architecture.stack_pointer, 0) if frame is not None else stack_pointer


class CStack(NamedTuple):
    """Where a thread's C stack is."""

    start: int
    end: int
    tid: int

    def holds(self, address: int) -> bool:
        """Whether the address lies on it."""
        return self.start <= address < self.end


class CStackRanges:
    """The C stacks of one process."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._writable = memory, Ranges(memory, writable=True)
        self._stacks = [CStack(*stack, thread.tid) for thread in memory.threads() for stack in self._of(thread.registers)]

    def at(self, address: int) -> Optional[CStack]:
        """The one on which this address lies; None if there is none, or more than one may have it."""
        found = [stack for stack in self._stacks if stack.holds(address)]
        return found[0] if len(found) == 1 else None

    def _of(self, registers: Mapping[str, int]) -> Iterator[tuple[int, int]]:
        """Where the stack of a thread with these registers may be: below the C library's own data, of which the kernel makes one mapping
        with a thread's stack, but for the first thread's, and from its stack pointer on."""
        names = self._memory.architecture
        pointer = interrupted(self._memory, registers.get(names.stack_pointer, 0))
        descriptor = registers.get(names.thread_pointer or "", 0)
        at_pointer, at_descriptor = self._writable.at(pointer), self._writable.at(descriptor)
        if at_descriptor is not None:
            yield int(at_descriptor.start), descriptor
        if at_pointer is not None and at_pointer is not at_descriptor:
            yield pointer, int(at_pointer.end)
