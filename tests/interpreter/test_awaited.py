"""What asyncio's tasks wait for that is no task: held to the names that the program gave them."""

from __future__ import annotations

import re

import pytest

from crashkit.interpreter.tasks import OFFSETS
from crashkit.naming.tasks import state
from crashkit.pipeline import Options, analyze
from tests.crashes import Interpreter, every_interpreter, python_crash


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_it_is_told_as_the_program_called_it(python: Interpreter) -> None:
    if python.version[:2] not in OFFSETS:
        pytest.skip(f"tasks of {python.name} are not read")
    crash = analyze(python_crash("awaiting.py", python=python).core, options=Options(gdb=None))
    named = [task for task in crash.tasks if not re.fullmatch(r"Task-\d+", task.name or "")]
    assert [task.awaits for task in named] == [task.name for task in named]
    assert len(named) == (16 if python.version >= (3, 9) else 15)
    said = {state(crash, task) for task in named}
    assert said >= {"waiting for the lock (taken; asyncio does not record by whom)", "waiting for a Future", "waiting for as_completed()"}
    assert said >= {"waiting for an event (not set)", "waiting for room in a queue (full, with 1)", "waiting for shield()"}
