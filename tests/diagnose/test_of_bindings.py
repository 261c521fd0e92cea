"""What extension modules of C++ do wrong with the interpreter: no thread state, and exceptions of Python's that nobody in C++ catches."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from crashkit.model import Crash
from crashkit.naming.failing import failing, said
from crashkit.pipeline import Options, analyze

from ..crashes import CRASHERS, DEADLINE, NO_COMPILER, Interpreter, headers_of, needs_gdb, needs_x86_64, python_crash, some_interpreters

pytestmark = [needs_x86_64(), needs_gdb, pytest.mark.slow]
PROGRAM = """
import sys
sys.path.insert(0, FOLDER)
import no_state
def lookup(key):
    return {"a": 1}[key]
no_state.KIND(lookup)
"""


def crash_of(kind: str, folder: Path, python: Interpreter, gdb: str | None = "gdb") -> Crash:
    compiler = shutil.which("g++") or pytest.skip(NO_COMPILER)
    source, module = CRASHERS / "no_state.cpp", folder / "no_state.so"
    command = [compiler, "-g", "-O1", "-w", "-shared", "-fPIC", f"-I{headers_of(python)}", source, "-o", module]
    subprocess.run(command, check=True, timeout=DEADLINE)
    program = folder / "program.py"
    program.write_text(PROGRAM.replace("FOLDER", repr(str(folder))).replace("KIND", kind))
    return analyze(python_crash(program, python=python, faulthandler=False).core, options=Options(gdb=gdb))


@pytest.mark.parametrize("kind", ["direct", "shared"])
@pytest.mark.parametrize("python", some_interpreters("3.9", "3.11", "3.13"))
def test_a_cxx_exception_that_carries_one_of_python(python: Interpreter, kind: str, tmp_path: Path) -> None:
    crash = crash_of(kind, tmp_path, python)
    finding = crash.findings[0]
    assert (finding.id, finding.confidence) == ("cxx-throw-in-destructor", "certain")
    assert f"It carried a Python exception: KeyError(7), raised in lookup ({tmp_path}/program.py:6)." in finding.summary
    assert "error_already_set &e" in finding.fix[0]


@pytest.mark.parametrize("python", some_interpreters("3.11"))
def test_what_lies_beside_a_cxx_exception_is_not_carried(python: Interpreter, tmp_path: Path) -> None:
    crash = crash_of("beside", tmp_path, python)
    assert any("of C++ alone" in line.text for line in crash.log)
    assert not any(line.kind == "cxx-python-error" for line in crash.log)


@pytest.mark.parametrize("gdb", ["gdb", None])
@pytest.mark.parametrize("python", some_interpreters("3.9", "3.11", "3.13"))
def test_no_thread_state_is_current(python: Interpreter, gdb: str | None, tmp_path: Path) -> None:
    """Up to 3.11 the GIL is locked by the thread all the same."""
    crash = crash_of("swapped", tmp_path, python, gdb)
    assert crash.thread is not None and crash.thread.holds_gil is False
    if gdb is not None:
        finding = crash.findings[0]
        assert (finding.id, finding.confidence) == ("gil-not-held", "likely")
        assert "Native code called PyList_New in a thread" in finding.summary
        assert finding.fix[0].startswith("Py_BLOCK_THREADS") and not any("PyGILState_Ensure" in fix for fix in finding.fix)
        index = failing(crash.thread.frames, crash.signal)
        assert index is not None and said(crash.thread.frames, index) == "PyList_New"
