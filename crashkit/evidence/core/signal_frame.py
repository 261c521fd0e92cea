"""Recovers the fault behind a signal handler from the frame that the kernel pushed for the handler.

A handler that ends the process itself, by abort() or by raising the signal again (faulthandler, torch's DataLoader workers), leaves a
core whose siginfo describes that, and whose registers may point to the alternate stack. The kernel saved the original registers, the trap
and the fault address in the `struct ucontext` of the handler's frame (`struct rt_sigframe`), whose layout depends on the processor:
`crashkit.arch`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Optional

from crashkit.arch.contract import SignalFrame
from crashkit.memory import Memory, mapping_at
from crashkit.model import Mapping

_MOST_NESTED = 8
"""Of the innermost frames, and of the outermost where a handler was interrupted by itself until its stack was full."""
_LARGEST_STACK = 64 << 20
"""Bytes."""
_PAST_STACK = 64 << 10
"""Bytes: how far a function may take the stack pointer past the end of its stack at once."""
_LONGEST_FRAME = 2048
"""Bytes: the general registers; of the others, of which newer processors have more, the first."""


def chain(memory: Memory, stack_pointer: int, mappings: Optional[Sequence[Mapping]] = None) -> list[SignalFrame]:
    """The signal frames from the stack pointer outward: that of the handler that runs, of the handler that it interrupted, and so on.

    Where there are too many, those in the middle are left out.
    """
    mappings = memory.mappings() if mappings is None else mappings
    found: list[SignalFrame] = []
    while len(found) < _MOST_NESTED:
        frame = find(memory, stack_pointer, mappings)
        if frame is None or any(frame.address == other.address for other in found):
            return found
        found.append(frame)
        stack_pointer = frame.registers.get(memory.architecture.stack_pointer, 0)
    last = deque(_further(memory, stack_pointer, mappings), maxlen=_MOST_NESTED - 1)
    if last:
        # The frame that the handler of a fault has may lie on another stack than those of the handlers within it.
        stack_pointer = last[-1].registers.get(memory.architecture.stack_pointer, 0)
        outermost = find(memory, stack_pointer, mappings)
        found += [*last, *([outermost] if outermost is not None and outermost.address not in {frame.address for frame in found} else [])]
    return found


def _further(memory: Memory, stack_pointer: int, mappings: Sequence[Mapping]) -> Iterator[SignalFrame]:
    """The signal frames from the stack pointer outward on its stack, which is read once."""
    architecture = memory.architecture
    start = _start(memory, stack_pointer, mappings)
    for frame in architecture.signal_frames(_window(memory, start, _LARGEST_STACK, mappings), start):
        if stack_pointer <= frame.address < stack_pointer + architecture.signal_window and _returns(frame, mappings):
            yield frame
            stack_pointer = frame.registers.get(architecture.stack_pointer, 0)


def find(memory: Memory, stack_pointer: int, mappings: Optional[Sequence[Mapping]] = None) -> Optional[SignalFrame]:
    """The innermost signal frame above the stack pointer; None if there is none. `mappings`, if given, set the thread's stack apart."""
    mappings = memory.mappings() if mappings is None else mappings
    start = _start(memory, stack_pointer, mappings)
    # A window, of which only the part up to the frame counts: the alternate stack lies in the middle of the heap.
    window = _window(memory, start, memory.architecture.signal_window, mappings)
    frame = next((frame for frame in memory.architecture.signal_frames(window, start) if _returns(frame, mappings)), None)
    if frame is not None:
        memory.read(start, frame.address - start + _LONGEST_FRAME)
    return frame


def _returns(frame: SignalFrame, mappings: Sequence[Mapping]) -> bool:
    """Whether its handler could return to code."""
    code = mapping_at(mappings, frame.restorer) if frame.restorer is not None else None
    return frame.restorer is None or (code is not None and "x" in (code.permissions or ""))


def _start(memory: Memory, stack_pointer: int, mappings: Sequence[Mapping]) -> int:
    """Where the stack begins to be searched: one that has overflowed lies above the stack pointer."""
    start = stack_pointer & ~(memory.word.size - 1)
    home = mapping_at(mappings, start)
    if home is not None and (home.permissions is None or "r" in home.permissions):
        return start
    above = [int(one.start) for one in mappings if start < one.start <= start + _PAST_STACK and "r" in (one.permissions or "")]
    return min(above, default=start)


def _window(memory: Memory, start: int, size: int, mappings: Sequence[Mapping]) -> bytes:
    """The stack from `start` on, `size` bytes at most; empty where there is none."""
    stack = mapping_at(mappings, start)
    window = bytearray()
    for address, data in memory.scan(start, min(start + size, stack.end)) if stack is not None else ():
        if address != start + len(window):
            break
        window += data
    return bytes(window)
