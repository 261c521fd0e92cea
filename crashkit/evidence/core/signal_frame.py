"""Recovers the fault behind a signal handler from the frame that the kernel pushed for the handler.

A handler that re-raises (faulthandler, torch's DataLoader workers) leaves a core whose siginfo describes the raise, and whose
registers point to the alternate stack. The kernel saved the original registers, the trap and the fault address in the `struct ucontext`
of the handler's frame (`struct rt_sigframe`), whose layout depends on the processor: `crashkit.arch`.
"""

from __future__ import annotations

from typing import Optional

from crashkit.arch.contract import SignalFrame
from crashkit.memory import Memory, mapping_at


def find(memory: Memory, stack_pointer: int) -> Optional[SignalFrame]:
    """The innermost signal frame above the stack pointer; None if there is none."""
    start = stack_pointer & ~(memory.word.size - 1)
    mappings = memory.mappings()
    stack = mapping_at(mappings, start)
    if stack is None:
        return None
    window = memory.read(start, min(memory.architecture.signal_window, stack.end - start))
    for frame in memory.architecture.signal_frames(window, start):
        if frame.restorer is None:
            return frame
        code = mapping_at(mappings, frame.restorer)
        if code is not None and "x" in (code.permissions or ""):
            return frame
    return None
