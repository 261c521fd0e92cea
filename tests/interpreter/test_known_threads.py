"""Every thread as the interpreter itself saw it right before the crash: on each interpreter at hand, and in recorded crashes of
free-threaded builds, which no machine of the tests has to have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crashkit.evidence.core.core import Core
from crashkit.interpreter.read import PythonState
from tests.crashes import Folder, Interpreter, every_interpreter, python_crash
from tests.interpreter.process import dumped, lines, opened, state_of
from tests.interpreter.recorded import VERSIONS, recorded

PROGRAM = "known_threads.py"


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_of_an_interpreter(python: Interpreter) -> None:
    if python.version < (3, 10):
        pytest.skip("sys._current_exceptions is there from Python 3.10 on")
    made = python_crash(PROGRAM, python=python)
    with opened(made.core) as core:
        check(core, state_of(core), made)


@pytest.mark.parametrize("version", VERSIONS)
def test_of_a_recorded_crash(version: str, tmp_path: Path) -> None:
    made = recorded(version, PROGRAM, tmp_path)
    with opened(made.core) as core:
        state = state_of(core)
        assert state is not None and str(state.version) == version
        assert state.gil_waiters == () and {thread.holds_gil for thread in state.threads} == {None}
        check(core, state, made)


def check(core: Core, state: PythonState | None, made: Folder) -> None:
    assert state is not None and state.lost_threads == 0 and not state.finalizing
    threads = {thread.state.ident: thread for thread in state.threads}
    (crashed,) = (ident for ident, thread in threads.items() if thread.name == "crasher")
    assert lines(threads[crashed]) == dumped(core, made.stderr)[crashed]
    assert sum(line.function == "step" for line in lines(threads[crashed])) == 1
    truth = json.loads(next(line for line in made.stderr.splitlines() if line.startswith("[{")))
    assert len(truth) == 3 and len(threads) == 5
    for true in truth:
        ours = threads[true["ident"]]
        assert (ours.name, ours.state.native_id or true["native_id"]) == (true["name"], true["native_id"])
        assert state.exception(ours) == true["exception"]
        frames = [
            {
                "function": frame.code.name,
                "line": frame.position.line if frame.position else None,
                "file": frame.code.file,
                "values": {one.name: one.text for one in state.variables(frame) if one.name != "known"}
                if frame.code.name == "keep"
                else None,
            }
            for frame in ours.stack.inner
            if frame.code
        ]
        assert frames == true["frames"] and not ours.stack.cut
