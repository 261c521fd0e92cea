"""Fingerprints of real crashes: one for equal ones, whatever the interpreter, its debug info and the handler; another for another."""

from __future__ import annotations

from functools import cache

import pytest

from crashkit.diagnose.fingerprint import fingerprint
from crashkit.model import Fingerprint
from crashkit.pipeline import analyze
from tests.crashes import (
    CRASHERS,
    Interpreter,
    an_interpreter,
    an_unguarded_interpreter,
    crash,
    interpreters,
    needs_x86_64,
    python_crash,
    unguarded_interpreters,
)

pytestmark = [needs_x86_64(), pytest.mark.slow]


@cache
def of(script: str, *arguments: str, python: Interpreter | None = None, handler: bool = True) -> Fingerprint:
    return fingerprint(analyze(python_crash(script, *arguments, python=python or an_interpreter(), faulthandler=handler).core))


def test_two_runs_of_one_crash(tmp_path):
    python = an_interpreter()
    again = crash([python.path, CRASHERS / "threads.py"], tmp_path, {"PYTHONFAULTHANDLER": "1"})
    assert fingerprint(analyze(again.core)) == of("threads.py")


@pytest.mark.parametrize("kind", ["null", "double_free", "c_overflow", "wild_call"])
def test_the_handler_does_not_matter(kind):
    assert of("faults.py", kind, handler=True).hash == of("faults.py", kind, handler=False).hash


@pytest.mark.long
@pytest.mark.parametrize("script", ["threads.py", "asyncio_tasks.py"])
def test_the_version_of_python_does_not_matter(script):
    assert len({of(script, python=python).hash for python in interpreters()}) == 1


@pytest.mark.parametrize("kind", ["null", "double_free", "c_overflow", "wild_call"])
def test_debug_info_does_not_matter(kind):
    """Where there is an interpreter with it and one without; both the same version, or nearly."""
    stripped = [python for python in interpreters() if not python.has_debug_info]
    assert len({of("faults.py", kind, python=python).hash for python in (*stripped, an_interpreter())}) == 1


@pytest.mark.long
def test_a_recursion_through_python_is_one_on_every_version():
    """On every one that does not end it itself, with debug info and without."""
    found = [of("faults.py", "python_overflow", python=python) for python in unguarded_interpreters()]
    assert all(one.frames == ("recursion", "faults.recurse") for one in found)
    assert len({one.hash for one in found}) == (1 if found else 0)


def test_different_crashes_differ():
    kinds = ["null", "null_field", "wild", "read_only", "no_exec", "divide", "double_free", "abort", "c_overflow"]
    found = [of("faults.py", kind) for kind in kinds] + [of("threads.py"), of("asyncio_tasks.py")]
    if unguarded_interpreters():
        found.append(of("faults.py", "python_overflow", python=an_unguarded_interpreter()))
    assert None not in {one.hash for one in found}
    assert len({one.hash for one in found}) == len(found)


def test_the_frames_are_the_ones_to_look_at():
    assert of("threads.py").frames == ("ctypes.string_at", "threads.read", "threads.handle", "threads.crash")
