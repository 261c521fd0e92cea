"""CPython's own gdb script, `libpython.py`: where it is for the interpreter that crashed, and what it gives.

It is never copied: it belongs to one version of CPython and lies beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Optional

from crashkit.debugger.session import PythonResult, PythonRow
from crashkit.evidence.interpreter import Interpreter
from crashkit.evidence.module_files import Finder, ModuleFile
from crashkit.model import PythonFrame, Thread

_AUTO_LOAD = "/usr/share/gdb/auto-load"


class PythonStack(NamedTuple):
    """One thread as the interpreter knew it."""

    frames: tuple[PythonFrame, ...]
    name: Optional[str]
    holds_gil: Optional[bool]
    outer: tuple[PythonFrame, ...] = ()
    """The outer end of a deep stack, of which `frames` is the inner one."""
    total: Optional[int] = None
    """How many frames a deep stack has."""


def find_script(interpreter: Interpreter, executable: Optional[str], files: dict[str, ModuleFile], finder: Finder) -> Optional[Path]:
    """The script made for this interpreter, or None."""
    return next((path for path in _candidates(interpreter, executable, files, finder) if path.is_file()), None)


def _candidates(interpreter: Interpreter, executable: Optional[str], files: dict[str, ModuleFile], finder: Finder) -> Iterator[Path]:
    names = [name for name in (interpreter.module.path, executable) if name]
    if executable and interpreter.version:
        names.append(str(PurePosixPath(executable).with_name(f"python{interpreter.version}")))
        # A library in PREFIX/lib has its script beside PREFIX/bin/pythonX.Y.
        prefix = PurePosixPath(interpreter.module.path).parent.parent
        names.append(str(prefix / "bin" / f"python{interpreter.version}"))
    for name in names:
        for place in (f"{name}-gdb.py", f"{_AUTO_LOAD}{name}-gdb.py"):
            found = finder.source(place)
            if found:
                yield found
        file = files.get(name)
        if file and file.path:
            resolved = file.path.resolve()
            yield resolved.with_name(resolved.name + "-gdb.py")
            yield Path(f"{_AUTO_LOAD}{resolved}-gdb.py")


def python_stacks(result: PythonResult, threads: tuple[Thread, ...]) -> dict[int, PythonStack]:
    """By tid. A Python thread and a kernel thread are one where the thread's `fs_base` is its pthread ident, or the interpreter noted the tid."""
    by_ident = {thread.registers["fs_base"]: thread.tid for thread in threads if "fs_base" in thread.registers}
    known = {thread.tid for thread in threads}
    stacks: dict[int, PythonStack] = {}
    for thread in result.threads:
        tid = by_ident.get(thread.ident, thread.lwp if thread.lwp in known else None)  # type: ignore[call-overload]
        if tid is None or (tid in stacks and not thread.frames):
            continue
        stacks[tid] = PythonStack(
            frames=tuple(map(_frame, thread.frames)),
            name=thread.name,
            holds_gil=None if result.gil is None else result.gil == thread.ident,
            outer=tuple(map(_frame, thread.outer)),
            total=thread.total,
        )
    return stacks


def _frame(row: PythonRow) -> PythonFrame:
    return PythonFrame(
        function=row.function, file=row.file, line=row.line, args=row.args, locals=row.locals, origin="libpython", entry=row.entry
    )
