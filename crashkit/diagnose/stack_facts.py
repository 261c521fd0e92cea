"""Where the crashed thread's stack was left by one function, and whether the code that failed was compiled at run time. Pure."""

from __future__ import annotations

from crashkit.arch import stack_pointer
from crashkit.diagnose.case import Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import Evidence, NativeFrame
from crashkit.naming.machinery import handler_end

_GAP = 1 << 20
"""Bytes below a stack that the kernel keeps free (stack_guard_gap): a stack pointer further down was not moved there step by step."""


def large_frame(case: Case) -> Outcome:
    """The stack overflowed because one function took more than is left of it: the stack pointer is far below the stack."""
    signal, stack = case.crash.signal, case.crashed
    if signal is None or signal.reason != "stack-overflow":
        return no("the stack did not overflow")
    pointer = stack_pointer(stack.thread.registers) if stack is not None else None
    if pointer is None or stack is None or not case.crash.mappings:
        return unknown("the stack pointer")
    if any(one.start <= pointer < one.end for one in case.crash.mappings):
        return no("the stack pointer is in the stack")
    end = min((one.start for one in case.crash.mappings if one.start > pointer), default=None)
    if end is None or end - pointer <= _GAP:
        return no("the stack pointer is at the end of the stack")
    size = f"{(end - pointer) / 2**20:,.1f} MiB"
    evidence = Evidence(text=f"the stack pointer is {size} below the next memory", thread=stack.thread.tid)
    return Outcome(True, (evidence,), {"frame_size": f"more than {size}"})


def in_generated_code(case: Case) -> Outcome:
    """The code that failed is in no file and has no name: it was compiled at run time."""
    if case.crashed is None or not case.crash.mappings:
        return unknown("where the crashed thread was running")
    frames = case.crashed.thread.frames
    start = handler_end(frames)
    first = frames[start] if start < len(frames) else None
    if not isinstance(first, NativeFrame) or first.pc is None:
        return unknown("where the crashed thread was running")
    home = next((one for one in case.crash.mappings if one.start <= first.pc < one.end), None)
    if first.function or first.module or home is None or home.path or "x" not in (home.permissions or ""):
        return no("the code that failed is that of a file")
    evidence = Evidence(text=f"{first.pc} is in memory without a file", thread=case.crashed.thread.tid, frame=start)
    return Outcome(True, (evidence,))


STACK_FACTS = {"large-frame": large_frame, "in-generated-code": in_generated_code}
