"""Where the threads' C stacks are, and whose one an address lies on: from 3.12 on the outermost frame of an interpreter call names an entry
frame there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Optional

from crashkit.evidence.core import signal_frame
from crashkit.evidence.core.thread_stack import thread_stack
from crashkit.interpreter.search import Ranges
from crashkit.memory import Memory
from crashkit.model import Mapping


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
        names = memory.architecture
        pointers = [interrupted(memory, thread.registers.get(names.stack_pointer, 0)) for thread in memory.threads()]
        descriptors = [thread.registers.get(names.thread_pointer or "", 0) for thread in memory.threads()]
        self._places = sorted((*pointers, *descriptors))
        each = zip(memory.threads(), pointers, descriptors, strict=True)
        self._stacks = [CStack(*stack, thread.tid) for thread, pointer, own in each for stack in self._of(pointer, own)]

    def at(self, address: int) -> Optional[CStack]:
        """The one on which this address lies; None if there is none, or more than one may have it."""
        found = [stack for stack in self._stacks if stack.holds(address)]
        return found[0] if len(found) == 1 else None

    def _of(self, pointer: int, descriptor: int) -> Iterator[tuple[int, int]]:
        """Where the stack may be of a thread with this stack pointer, and with the C library's own data about it at `descriptor`.

        It ends there: the kernel makes one mapping of both, but for the first thread's.
        """
        at_pointer, at_descriptor = self._writable.at(pointer), self._writable.at(descriptor)
        if at_descriptor is not None:
            own = thread_stack(self._memory, descriptor)
            lowest = min(pointer, descriptor) if at_pointer is at_descriptor else descriptor
            yield own.start if own is not None else self._begin(at_descriptor, lowest), descriptor
        if at_pointer is not None and at_pointer is not at_descriptor:
            yield self._begin(at_pointer, pointer), int(at_pointer.end)

    def _begin(self, mapping: Mapping, place: int) -> int:
        """The start of the mapping, or the last place before this one that another thread has in it: see `thread_stack`."""
        return max([int(mapping.start), *(one for one in self._places if one < place)])
