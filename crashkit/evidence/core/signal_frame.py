"""Recovers the fault behind a signal handler from the frame that the kernel pushed for the handler.

A handler that ends the process itself, by abort() or by raising the signal again (faulthandler, torch's DataLoader workers), leaves a
core whose siginfo describes that, and whose registers may point to the alternate stack. The kernel saved the original registers, the trap
and the fault address in the `struct ucontext` of the handler's frame (`struct rt_sigframe`), whose layout depends on the processor:
`crashkit.arch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from crashkit.arch.contract import SignalFrame
from crashkit.memory import Memory, mapping_at
from crashkit.model import Mapping

_MOST_NESTED = 8
_LONGEST_FRAME = 2048
"""Bytes: the general registers; of the others, of which newer processors have more, the first."""


def chain(memory: Memory, stack_pointer: int, mappings: Optional[Sequence[Mapping]] = None) -> list[SignalFrame]:
    """The signal frames from the stack pointer outward: that of the handler that runs, of the handler that it interrupted, and so on."""
    found: list[SignalFrame] = []
    while len(found) < _MOST_NESTED:
        frame = find(memory, stack_pointer, mappings)
        if frame is None or any(frame.address == other.address for other in found):
            break
        found.append(frame)
        stack_pointer = frame.registers.get(memory.architecture.stack_pointer, 0)
    return found


def find(memory: Memory, stack_pointer: int, mappings: Optional[Sequence[Mapping]] = None) -> Optional[SignalFrame]:
    """The innermost signal frame above the stack pointer; None if there is none. `mappings`, if given, set the thread's stack apart."""
    start = stack_pointer & ~(memory.word.size - 1)
    mappings = memory.mappings() if mappings is None else mappings
    stack = mapping_at(mappings, start)
    if stack is None:
        return None
    # A window, of which only the part up to the frame counts: the alternate stack lies in the middle of the heap.
    window = b""
    for address, data in memory.scan(start, min(start + memory.architecture.signal_window, stack.end)):
        if address != start + len(window):
            break
        window += data
    for frame in memory.architecture.signal_frames(window, start):
        code = mapping_at(mappings, frame.restorer) if frame.restorer is not None else None
        if frame.restorer is None or (code is not None and "x" in (code.permissions or "")):
            memory.read(start, frame.address - start + _LONGEST_FRAME)
            return frame
    return None
