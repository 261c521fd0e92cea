"""How large the stack was that the crashed thread used up, and how much of it one function took. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from crashkit.arch import stack_pointer
from crashkit.diagnose.case import Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.memory import mapping_at
from crashkit.model import ElidedFrames, Evidence, Instruction, NativeFrame, PythonFrame, Thread
from crashkit.naming.machinery import is_outermost
from crashkit.regex import regex

_GAP = 1 << 20
"""Bytes below a stack that the kernel keeps free (stack_guard_gap): a stack pointer further down was not moved there step by step."""
_SMALL = 1 << 20
"""Bytes of a stack that is a small one: glibc gives a thread 8 MiB, macOS 512 KiB, musl 128 KiB, and a program may ask for less."""
_PROBE = regex(r"(?:or|mov) (?:(?:byte|[dq]?word) ptr )?\[rsp(?: \+ 0x[0-9a-f]{1,8})?\], 0|str xzr, \[sp(?:, #0x[0-9a-f]{1,8})?\]")
_UNTIL = regex(r"cmp r?sp, (?P<register>[rx]\w{1,3})")
"""A loop that touches each page of a large frame, from the top, until the stack pointer is in this register: GCC's and Clang's
-fstack-clash-protection, with which Debian, Ubuntu and Fedora build. GCC 16 touches a byte, older ones a word."""
_FEW = 60
"""Calls that no recursion is made of, if they use up a stack that is no small one."""


def large_frame(case: Case) -> Outcome:
    """The stack overflowed because one function took more than is left of it: the stack pointer is far below, or was to go there."""
    signal, stack = case.crash.signal, case.crashed
    if signal is None or signal.reason != "stack-overflow":
        return no("the stack did not overflow")
    pointer = stack_pointer(stack.thread.registers) if stack is not None else None
    if pointer is None or stack is None or not case.crash.mappings:
        return unknown("the stack pointer")
    missing = _missing(case.crash.instructions, stack.thread, pointer)
    if missing is not None and missing > _GAP:
        return _took(stack.thread, missing, "the function would have moved the stack pointer down by another")
    if mapping_at(case.crash.mappings, pointer) is not None:
        return no("the stack pointer is in the stack")
    end = min((one.start for one in case.crash.mappings if one.start > pointer), default=None)
    if end is None or end - pointer <= _GAP:
        return no("the stack pointer is at the end of the stack")
    return _took(stack.thread, end - pointer, "the stack pointer is below the next memory by")


def _missing(instructions: Sequence[Instruction], thread: Thread, pointer: int) -> Optional[int]:
    """How far down the stack pointer still had to go where a probe of the stack failed."""
    at = next((index for index, one in enumerate(instructions) if one.faulting), None)
    if at is None or at + 1 == len(instructions) or _PROBE.fullmatch(instructions[at].text) is None:
        return None
    until = _UNTIL.fullmatch(instructions[at + 1].text)
    target = thread.registers.get(until["register"]) if until is not None else None
    return pointer - target if target is not None else None


def _took(thread: Thread, size: int, what: str) -> Outcome:
    said = f"{size / 2**20:,.1f} MiB" if size < 2**30 else f"{size / 2**30:,.1f} GiB"
    return Outcome(True, (Evidence(text=f"{what} {said}", thread=thread.tid),), {"frame_size": f"more than {said}"})


def small_stack(case: Case) -> Outcome:
    """The stack that the crashed thread used up is a small one: that of the C library, of threading.stack_size(), or of an attribute."""
    signal = case.crash.signal
    if signal is None or signal.address is None or not case.crash.mappings:
        return unknown("how large the stack was")
    # The fault lies in the stack, or below it.
    above = [one for one in case.crash.mappings if one.end > signal.address and "w" in (one.permissions or "")]
    stack = min(above, key=lambda one: int(one.start), default=None)
    if stack is None or stack.start - signal.address > _SMALL or stack.end - stack.start > _SMALL:
        return no("the stack was no small one")
    size = f"{(stack.end - stack.start) >> 10:,} KiB"
    return Outcome(True, (Evidence(text=f"the whole stack has {size}"),), {"stack_size": size})


def few_calls(case: Case) -> Outcome:
    """The stack that overflowed is a large one and is known up to its outermost frame, and has few calls: some of them take a lot of it."""
    signal, stack = case.crash.signal, case.crashed
    if signal is None or signal.reason != "stack-overflow" or stack is None:
        return no("no stack overflowed, as far as is known")
    frames = stack.thread.frames
    outermost = frames[-1] if frames else None
    if not isinstance(outermost, NativeFrame) or not is_outermost(outermost.function):
        return unknown("the stack up to its outermost frame")
    if len(frames) > _FEW or any(isinstance(frame, ElidedFrames) for frame in frames):
        return no("it has many calls")
    if small_stack(case).holds:
        return no("the stack was a small one")
    calls = sum(isinstance(frame, (NativeFrame, PythonFrame)) for frame in frames)
    return Outcome(True, (Evidence(text=f"{calls} calls used up the stack", thread=stack.thread.tid),), {"calls": str(calls)})


STACK_FACTS = {"large-frame": large_frame, "small-stack": small_stack, "few-calls": few_calls}
