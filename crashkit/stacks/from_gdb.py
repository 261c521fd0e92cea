"""Python stacks as gdb took them with CPython's libpython.py, given to the threads they belong to. Pure."""

from __future__ import annotations

from typing import NamedTuple, Optional

from crashkit.debugger.session import PythonResult, PythonRow
from crashkit.model import PythonFrame, Thread


class PythonStack(NamedTuple):
    """One thread as the interpreter knew it."""

    frames: tuple[PythonFrame, ...]
    name: Optional[str]
    holds_gil: Optional[bool]
    outer: tuple[PythonFrame, ...] = ()
    """The outer end of a deep stack, of which `frames` is the inner one."""
    total: Optional[int] = None
    """How many frames a deep stack has."""
    cut: bool = False
    """True where the outer frames could not be read."""


def python_stacks(result: PythonResult, threads: tuple[Thread, ...]) -> dict[int, PythonStack]:
    """By tid. A Python thread is the kernel thread whose pthread ident it has, or whose tid the interpreter noted."""
    by_ident = {int(thread.pthread): thread.tid for thread in threads if thread.pthread is not None}
    known = {thread.tid for thread in threads}
    stacks: dict[int, PythonStack] = {}
    for thread in result.threads:
        tid = by_ident.get(thread.ident, thread.lwp if thread.lwp in known else None)
        if tid is None or (tid in stacks and not thread.frames):
            continue
        stacks[tid] = PythonStack(
            frames=tuple(map(_frame, thread.frames)),
            name=thread.name,
            holds_gil=None if result.gil is None else result.gil == thread.ident,
            outer=tuple(map(_frame, thread.outer)),
            total=thread.total,
            cut=thread.cut,
        )
    return stacks


def _frame(row: PythonRow) -> PythonFrame:
    return PythonFrame(
        function=row.function, file=row.file, line=row.line, args=row.args, locals=row.locals, origin="libpython", entry=row.entry
    )
