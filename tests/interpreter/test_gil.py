"""Who holds the GIL and who wants it, by its own state: held to a program whose threads' names say so."""

from __future__ import annotations

import pytest

from crashkit.model import Crash
from crashkit.naming.gil import waits_for_gil
from crashkit.pipeline import Options, analyze
from tests.crashes import Interpreter, every_interpreter, needs_gdb, python_crash, some_interpreters


def analyzed(python: Interpreter, gdb: str | None) -> Crash:
    # A free-threaded build has a GIL that is off.
    environment = {"PYTHON_GIL": "1"} if python.free_threaded else None
    made = python_crash("gil.py", python=python, faulthandler=False, environment=environment)
    return analyze(made.core, options=Options(gdb=gdb))


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
@needs_gdb
@pytest.mark.parametrize("python", some_interpreters("3.6", "3.8", "3.11", "3.12", "3.13"))
def test_frames_do_not_contradict(python: Interpreter) -> None:
    crash = analyzed(python, "gdb")
    check(crash)
    # They miss a thread between two waits: glibc's functions have other names there.
    assert any(waits_for_gil(thread.frames) for thread in crash.threads)
    assert not any(waits_for_gil(thread.frames) for thread in crash.threads if not thread.waits_for_gil)
    assert {(wait.kind, wait.held_by) for wait in crash.waits if wait.kind == "gil"} == {("gil", crash.crashed_thread)}
