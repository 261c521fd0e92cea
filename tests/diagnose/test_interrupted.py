"""A signal handler in C that fails: the Python line that it interrupted did not call it."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.model import Crash, NativeFrame, PythonFrame, Signal, Thread
from crashkit.naming.failing import said
from crashkit.naming.interrupted import handler_at, handler_said
from crashkit.naming.machinery import NESTED, SIGNAL_FRAME
from crashkit.pipeline import analyze
from crashkit.report import answer, text, wording

from ..crashes import Interpreter, an_interpreter, build_library, needs_gdb, needs_x86_64, python_crash, some_interpreters

PROGRAM = """
import signal, sys
sys.path.insert(0, FOLDER)
import interrupting
def serve(slots):
    signal.raise_signal(signal.SIGALRM)
interrupting.KIND()
serve(8 * signal.SIGALRM)
"""


def crash_of(kind: str, folder: Path, python: Interpreter, faulthandler: bool = True) -> Crash:
    build_library("interrupting.c", folder, python)
    program = folder / "program.py"
    program.write_text(PROGRAM.replace("FOLDER", repr(str(folder))).replace("KIND", kind))
    return analyze(python_crash(program, python=python, faulthandler=faulthandler).core)


@needs_x86_64()
@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11", "3.13"))
def test_the_line_that_it_interrupted_is_not_to_blame(python: Interpreter, tmp_path: Path) -> None:
    """Nor is its variable, although it has just the number of the address."""
    crash = crash_of("null", tmp_path, python)
    found = answer.answer(crash)
    assert found is not None and not found.values
    assert answer.line(found, crash.signal).endswith("serve (program.py:6): interrupted by the signal handler on_null, which failed")
    finding = crash.findings[0]
    assert finding.id == "null-deref" and "reached from" not in finding.summary
    assert "The signal handler on_null was running, and had interrupted" in finding.summary and "program.py:6 in serve" in finding.summary
    assert "slots" not in " ".join(finding.fix) and any("on_null in interrupting.so" in fix for fix in finding.fix)
    assert "in a signal handler that had interrupted serve" in wording.sentence(crash)
    assert "this line did not call it" in "\n".join(text.summary(crash, None, color=False, width=100))


@needs_x86_64()
@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.11", "3.13"))
def test_a_handler_that_uses_python(python: Interpreter, tmp_path: Path) -> None:
    """To take the GIL there would be no remedy."""
    crash = crash_of("uses_python", tmp_path, python)
    finding = crash.findings[0]
    assert (finding.id, finding.confidence) == ("signal-handler-calls-python", "certain")
    assert "The signal handler on_python called PyDict_New" in finding.summary
    assert not any("PyGILState_Ensure" in fix for finding in crash.findings for fix in finding.fix)


@needs_x86_64()
@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("faulthandler", [False, True])
def test_a_handler_that_aborts(faulthandler: bool, tmp_path: Path) -> None:
    """Also where faulthandler only passed the abort on."""
    crash = crash_of("aborts", tmp_path, an_interpreter(), faulthandler)
    found = answer.answer(crash)
    assert found is not None and not found.values
    assert answer.line(found, crash.signal).endswith("(program.py:6): interrupted by the signal handler on_abort, which ended the process")
    assert [(finding.id, finding.confidence) for finding in crash.findings] == [("handler-ended-process", "certain")]
    summary, fix = crash.findings[0].summary, crash.findings[0].fix
    told = "on_abort handled SIGALRM, which the process itself had sent, and ended the process with SIGABRT."
    assert f"{told} It had interrupted serve, which was sending a signal." in summary
    assert fix[0] == "Find out what serve sent SIGALRM for: the handler only followed it."


def test_only_a_frame_of_the_kernel_between_the_failure_and_python() -> None:
    fault = Signal(number=11, name="SIGSEGV", code=1)
    kernels, line = NativeFrame(function=SIGNAL_FRAME, trust=NESTED), PythonFrame(function="f", file="/a.py", line=1)
    failed, called, loop = (NativeFrame(function=name) for name in ("read_from", "on_signal", "loop"))
    assert handler_at((failed, called, kernels, loop, line), fault) == 1
    assert handler_at((failed, called, loop, line), fault) is None
    # Python's own handler runs later, as a call of Python code; and what interrupted a line further out is over.
    assert handler_at((failed, line, called, kernels, loop), fault) is None
    assert handler_at((line, failed, kernels, loop), fault) is None
    # What handles the fault itself, such as faulthandler's, is no such handler.
    assert handler_at((failed, called, NativeFrame(function=SIGNAL_FRAME, trust="signal"), loop, line), fault) is None
    # ctypes makes functions that have no name.
    closure = NativeFrame(module="/usr/lib/libffi.so.8")
    assert handler_at((failed, closure, kernels, loop, line), fault) == 1
    assert handler_said((failed, closure, kernels), 1) == "(code in libffi.so.8)"
    assert said((failed, closure, kernels, loop), 1) == "code in libffi.so.8"
    reports = NativeFrame(function="faulthandler_fatal_error")
    assert handler_at((failed, reports, kernels, loop, line), fault) is None
    assert not wording.handler_note(Crash(signal=fault, crashed_thread=1, threads=(Thread(tid=1, crashed=True, frames=(failed, line)),)))
