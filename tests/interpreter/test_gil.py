"""Who holds the GIL and who wants it, by its own state: held to a program whose threads' names say so."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from crashkit.model import Crash
from crashkit.naming.gil import waits_for_gil
from crashkit.pipeline import Options, analyze
from tests.crashes import Interpreter, every_interpreter, needs_gdb, python_crash, some_interpreters


def analyzed(python: Interpreter, gdb: str | None, sysroot: Path | None = None) -> Crash:
    # A free-threaded build has a GIL that is off.
    environment = {"PYTHON_GIL": "1"} if python.free_threaded else None
    made = python_crash("gil.py", python=python, faulthandler=False, environment=environment)
    return analyze(made.core, options=Options(gdb=gdb, sysroot=sysroot))


def check(crash: Crash) -> None:
    found = {thread.name: (thread.holds_gil, thread.waits_for_gil) for thread in crash.threads}
    assert found == {
        "holds": (True, False),
        "without": (False, False),
        "locked": (False, False),
        **{f"wants {number}": (False, True) for number in range(3)},
    }


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_without_native_frames(python: Interpreter) -> None:
    check(analyzed(python, None))


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_with_nothing_but_the_core(python: Interpreter, tmp_path: Path) -> None:
    """No code that shows that a thread is in a system call, either: x86-64 tells it in a register, other processors do not."""
    if platform.machine() != "x86_64":
        pytest.skip("only on x86-64 the registers tell of a system call")
    crash = analyzed(python, None, tmp_path)
    if python.version < (3, 7):  # has it in variables of its own, which only its symbols tell
        assert {(thread.holds_gil, thread.waits_for_gil) for thread in crash.threads} == {(None, None)}
    else:
        check(crash)


@pytest.mark.slow
@needs_gdb
@pytest.mark.parametrize("python", some_interpreters("3.6", "3.8", "3.11", "3.12", "3.13"))
def test_frames_do_not_contradict(python: Interpreter) -> None:
    crash = analyzed(python, "gdb")
    check(crash)
    # They miss a thread between two waits: glibc's functions have other names there.
    assert any(waits_for_gil(thread.frames) for thread in crash.threads)
    assert not any(waits_for_gil(thread.frames) for thread in crash.threads if not thread.waits_for_gil)
    assert {(wait.kind, wait.held_by) for wait in crash.waits if wait.kind == "gil"} == {("gil", crash.crashed_thread)}
