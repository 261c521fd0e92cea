"""A line that was set in the frame itself counts before the instruction's, as CPython has it: Nuitka's code has no instructions."""

from __future__ import annotations

import pytest

from crashkit.pipeline import analyze
from tests.crashes import Interpreter, every_interpreter, python_crash
from tests.interpreter.process import opened, state_of


@pytest.fixture(params=every_interpreter())
def python(request: pytest.FixtureRequest) -> Interpreter:
    found: Interpreter = request.param
    if found.version < (3, 10):
        pytest.skip("up to 3.9 the frame has a line only for tracing")
    return found


def test_line_is_what_the_frame_says(python: Interpreter) -> None:
    made = python_crash("set_line.py", python=python, faulthandler=False)
    assert "line 777" in made.stderr
    with opened(made.core) as core:
        state = state_of(core)
        assert state is not None
        (thread,) = state.threads
        told = {frame.code.name: frame.position.line for frame in thread.stack.inner if frame.code and frame.position}
    assert told["compiled"] == 777
    assert 0 < told["<module>"] < 100


@pytest.mark.slow
def test_line_in_the_report(python: Interpreter) -> None:
    """Whichever debugger is asked."""
    report = analyze(python_crash("set_line.py", python=python, faulthandler=False).core)
    assert report.thread is not None
    assert {frame.line for frame in report.thread.pythons() if frame.function == "compiled"} == {777}
    assert not [error for error in report.soft_errors if "disagree" in error.message]
