"""Cores read by crashkit's own reader, without any file but the core unless a test says so."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crashkit.evidence.core.core import Core, open_core
from crashkit.evidence.core.modules import LoadedModule, loaded_modules
from crashkit.evidence.interpreter import find_interpreter
from crashkit.interpreter.finding import Module
from crashkit.interpreter.layouts import Version
from crashkit.interpreter.python_threads import PythonThread
from crashkit.interpreter.read import PythonState, read_python
from tests.crashes import DEADLINE, Interpreter
from tests.truth import Line, alone, faulthandler

MORE = int(os.environ.get("CRASHKIT_TEST_EXAMPLES", "0")) or 1
"""How many times as many damaged heaps to read (docs/fuzzing.md): in a usual run they are hundreds of each version."""
SCRIPT = Path(__file__).parent.parent.parent / "gdb_scripts" / "crashkit_layouts.py"


def library(python: Interpreter) -> Path:
    """The file that contains the interpreter."""
    code = "print(next((line.split()[-1] for line in open('/proc/self/maps') if 'libpython' in line), ''))"
    done = subprocess.run([python.path, "-I", "-c", code], capture_output=True, text=True, timeout=DEADLINE, check=True)
    return Path(done.stdout.strip() or python.path)


@contextmanager
def opened(path: Path) -> Iterator[Core]:
    with path.open("rb") as file:
        core = open_core(file, path, path.stat().st_size)
        assert core is not None
        yield core


def idents(core: Core) -> dict[int, int]:
    pairs = ((core.architecture.pthread(thread.registers, thread.tid, core.read), thread.tid) for thread in core.threads())
    return {ident: tid for ident, tid in pairs if ident}


def interpreter_of(core: Core) -> tuple[LoadedModule, Version]:
    found = find_interpreter(loaded_modules(core), core.executable())
    assert found is not None and found.version is not None
    major, minor = map(int, found.version.split("."))
    return found.module, Version(major, minor, found.free_threaded)


def state_of(core: Core, with_file: bool = False) -> PythonState | None:
    module, version = interpreter_of(core)
    return read_python(core, [Module(module, Path(module.path) if with_file else None)], version, idents(core), main=main_ident(core))


def main_ident(core: Core) -> int | None:
    """The ident of the process's first thread."""
    return next((ident for ident, tid in idents(core).items() if core.process and tid == core.process.pid), None)


def dumped(core: Core, stderr: str) -> dict[int, list[Line]]:
    """faulthandler's stacks by pthread ident: all of them, or the crashed thread's, which is the first in a core."""
    crashed = {tid: ident for ident, tid in idents(core).items()}[core.threads()[0].tid]
    return faulthandler(stderr) or {crashed: alone(stderr)}


def lines(thread: PythonThread) -> list[Line]:
    """As faulthandler prints them."""
    return [
        Line(printed(frame.code.name), frame.position.line, printed(frame.code.file))  # type: ignore[union-attr]
        for frame in thread.stack.inner
    ]


def printed(text: str | None) -> str:
    """faulthandler escapes what is not ASCII (`_Py_DumpASCII`, Python/traceback.c)."""
    return (text or "???").encode("ascii", "backslashreplace").decode()
