"""What is read of a process does not depend on what else the machine has to do: limits of time are of processor time."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from tests.crashes import Interpreter, python_crash, some_interpreters
from tests.interpreter.process import opened, state_of


def read(core: Path) -> tuple[object, object, list[object]]:
    """Everything that has a limit of time: tasks, locks, values."""
    with opened(core) as memory:
        state = state_of(memory)
        assert state is not None
        return (
            state.tasks(lambda _name: None),
            state.locks(),
            [state.variables(frame) for thread in state.threads for frame in thread.stack.inner],
        )


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.8", "3.13"))
def test_a_machine_that_has_no_time_for_us(python: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock comes much later than the one before."""
    made = python_crash("waiting_tasks.py", python=python)
    expected = read(made.core)
    clock = itertools.count(time.monotonic(), 1000)
    for name in ("perf_counter", "monotonic", "time"):
        monkeypatch.setattr(time, name, lambda: next(clock))
    assert read(made.core) == expected
