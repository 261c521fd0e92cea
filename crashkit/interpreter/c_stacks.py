"""Whose C stack an address lies on: from 3.12 on the outermost frame of an interpreter call names an entry frame there."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple, Optional

from crashkit.evidence.core import signal_frame
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
        self._mappings = [one for one in memory.mappings() if "w" in (one.permissions or "")]
        self._starts = [int(one.start) for one in self._mappings]
        self._stacks: list[CStack] = []
        names = memory.architecture
        for thread in memory.threads():
            pointer = interrupted(memory, thread.registers.get(names.stack_pointer, 0))
            descriptor = thread.registers.get(names.thread_pointer or "", 0)
            at_pointer, at_descriptor = self._mapping(pointer), self._mapping(descriptor)
            # The C library has its own data behind a thread's stack, but for the first thread's, and the kernel makes one mapping of both.
            if at_descriptor is not None:
                self._stacks.append(CStack(int(at_descriptor.start), descriptor, thread.tid))
            if at_pointer is not None and at_pointer is not at_descriptor:
                self._stacks.append(CStack(pointer, int(at_pointer.end), thread.tid))

    def at(self, address: int) -> Optional[CStack]:
        """The one on which this address lies; None if there is none, or more than one may have it."""
        found = [stack for stack in self._stacks if stack.holds(address)]
        return found[0] if len(found) == 1 else None

    def _mapping(self, address: int) -> Optional[Mapping]:
        index = bisect_right(self._starts, address) - 1
        return self._mappings[index] if index >= 0 and address < self._mappings[index].end else None
