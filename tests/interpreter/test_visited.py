"""The object that the garbage collector or a finalizer was at when the process died, with its type."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from crashkit.report import text, wording

from ..crashes import (
    CRASHERS,
    DEADLINE,
    NO_COMPILER,
    NO_HEADERS,
    Interpreter,
    every_interpreter,
    lock,
    needs_gdb,
    needs_x86_64,
    python_crash,
)

pytestmark = [needs_x86_64(), pytest.mark.slow]

DAMAGED = "whose type pointer is damaged"


def built(python: Interpreter) -> Path:
    """The folder with the extension for this interpreter, built once in a session."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip(NO_COMPILER)
    abi = "m" if python.version < (3, 8) else ""
    headers = python.path.parent.parent / "include" / f"python{python.version[0]}.{python.version[1]}{abi}"
    if not (headers / "Python.h").exists():
        pytest.skip(NO_HEADERS)
    source = CRASHERS / "bad_types.c"
    key = hashlib.sha256(repr((source.read_bytes(), python)).encode()).hexdigest()[:12]
    folder = Path(os.environ["CRASHKIT_TEST_CRASHES"]) / f"bad_types-{key}"
    with lock(folder.with_suffix(".lock")):
        folder.mkdir(exist_ok=True)
        if not (folder / "bad_types.so").exists():
            command = [compiler, "-shared", "-fPIC", "-O2", f"-I{headers}", source, "-o", folder / "bad_types.so"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
            assert done.returncode == 0, done.stderr
    return folder


def visited(crash: Crash) -> str | None:
    assert crash.thread is not None
    return crash.thread.visited


@pytest.mark.parametrize("python", every_interpreter())
@pytest.mark.parametrize(
    ("how", "type_"),
    [("traverse", "bad_types.Visited"), ("subclass", "Derived"), ("dealloc", "bad_types.Freed")],
    ids=["traverse", "subclass", "dealloc"],
)
def test_its_type(python: Interpreter, how: str, type_: str) -> None:
    crash = analyze(python_crash("visited.py", str(built(python)), how, python=python).core, options=Options(gdb=None))
    assert visited(crash) == f"an object of type {type_}"


@pytest.mark.parametrize("python", every_interpreter())
def test_a_damaged_one(python: Interpreter) -> None:
    crash = analyze(python_crash("collected.py", "traverse", python=python).core, options=Options(gdb=None))
    assert DAMAGED in (visited(crash) or "")


@needs_gdb
@pytest.mark.parametrize("python", every_interpreter(debuggable=True)[-1:])
def test_it_is_shown(python: Interpreter) -> None:
    crash = analyze(python_crash("visited.py", str(built(python)), "traverse", python=python).core)
    note = "the garbage collector was running, at an object of type bad_types.Visited: this line only triggered it"
    for width in (60, 100, 200):  # to its end
        assert note in " ".join("\n".join(text.summary(crash, None, color=False, width=width)).split())
    assert "during a garbage collection that happened to run in innocent" in wording.sentence(crash)


@pytest.mark.parametrize("python", every_interpreter()[-1:])
def test_nothing_was_visited(python: Interpreter) -> None:
    assert visited(analyze(python_crash("threads.py", python=python).core, options=Options(gdb=None))) is None
