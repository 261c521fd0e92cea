"""gdb's rows as our frames, and its threads as those of the crash. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from crashkit.debugger.contract import NativeStack, PythonStack
from crashkit.debugger.gdb.session import NativeResult, NativeRow, NativeThread, PythonResult, PythonRow
from crashkit.model import Address, NativeFrame, PythonFrame, Thread


def native_stacks(result: NativeResult) -> dict[int, NativeStack]:
    """By tid, which gdb calls LWP."""
    return {
        thread.lwp: NativeStack(
            frames=tuple(map(_native_frame, thread.frames)),
            outer=tuple(map(_native_frame, thread.outer)),
            cut=thread.cut is not None,
            between=frames_between(thread),
        )
        for thread in result.threads
    }


def _native_frame(row: NativeRow) -> NativeFrame:
    return NativeFrame(
        function=row.function,
        file=row.file,
        line=row.line or None,
        pc=Address(row.pc),
        trust="scan" if row.found else {"inline": "inline", "signal": "signal"}.get(row.kind),
        args=row.args,
        locals=row.locals,
    )


def frames_between(thread: NativeThread) -> Optional[int]:
    """How many frames lie between the ends of a deep stack, from the size of the outer half of its inner end."""
    half = [row.sp for row in thread.frames[len(thread.frames) // 2 :] if row.sp is not None]
    if not thread.outer or thread.outer[0].sp is None or len(half) < 2 or half[-1] <= half[0]:
        return None
    return (thread.outer[0].sp - half[-1]) * (len(half) - 1) // (half[-1] - half[0])


def python_stacks(result: PythonResult, threads: Sequence[Thread]) -> dict[int, PythonStack]:
    """By tid. A Python thread is the kernel thread whose pthread ident it has, or whose tid the interpreter noted."""
    by_ident = {int(thread.pthread): thread.tid for thread in threads if thread.pthread is not None}
    known = {thread.tid for thread in threads}
    stacks: dict[int, PythonStack] = {}
    for thread in result.threads:
        tid = by_ident.get(thread.ident, thread.lwp if thread.lwp in known else None)
        if tid is None:
            continue
        stack = PythonStack(
            frames=tuple(map(_python_frame, thread.frames)),
            name=thread.name,
            holds_gil=None if result.gil is None else result.gil == thread.ident,
            outer=tuple(map(_python_frame, thread.outer)),
            total=thread.total,
            cut=thread.cut,
        )
        stacks[tid] = stacks[tid].over(stack) if tid in stacks else stack
    return stacks


def _python_frame(row: PythonRow) -> PythonFrame:
    return PythonFrame(
        function=row.function, file=row.file, line=row.line, args=row.args, locals=row.locals, origin="libpython", entry=row.entry
    )
