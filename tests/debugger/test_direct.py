"""crashkit's own reading of Python frames in a report: before gdb, without gdb, without files, beside the other sources."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crashkit.interpreter.finding import Module, find
from crashkit.interpreter.view import View
from crashkit.model import Crash, PythonFrame
from crashkit.naming.functions import without_suffix
from crashkit.pipeline import REHEARSAL, Options, analyze
from crashkit.report import text
from crashkit.report.first_answer import first_answer
from crashkit.report.renderer import renderer
from crashkit.stacks.merge import EVALUATE, runs
from tests.crashes import Interpreter, an_interpreter, c_crash, every_interpreter, interpreters, python_crash
from tests.interpreter.process import idents, interpreter_of, library, opened
from tests.test_peers import overwritten
from tests.test_stacks_truth import check_python
from tests.truth import backtrace


@pytest.fixture(params=every_interpreter())
def python(request: pytest.FixtureRequest) -> Interpreter:
    return request.param  # type: ignore[no-any-return]


def test_the_first_answer_has_the_python_line(python: Interpreter) -> None:
    made = python_crash("threads.py", python=python)
    said: list[str] = []

    class Stop(Exception):
        pass

    def progress(stage: str, so_far: Callable[[], Crash]) -> None:
        if stage == "gdb":
            said.append(first_answer(so_far()))
            raise Stop

    with pytest.raises(Stop):
        analyze(made.core, progress=progress)
    assert "in read (threads.py:70)" in said[0].splitlines()[0]
    assert "in thread crasher (" in said[0]


def test_what_is_known_is_diagnosed_while_gdb_works(tmp_path: Path) -> None:
    """For the caller to rehearse the report with. This gdb does not begin before that is done."""
    gate, late = tmp_path / "gate", tmp_path / "gdb"
    os.mkfifo(gate)
    late.write_text(f'#!/bin/sh\nread -r _ < {gate}\nexec gdb "$@"\n')
    late.chmod(0o755)
    early: list[Crash] = []

    def progress(stage: str, so_far: Callable[[], Crash]) -> None:
        if stage == REHEARSAL:
            early.append(so_far())
            gate.write_text("\n")

    crash = analyze(
        python_crash("threads.py", python=an_interpreter()).core, options=Options(gdb=str(late), deadline=30), progress=progress
    )
    assert crash.thread is not None and crash.thread.frames and crash.findings
    assert [(one.thread is not None and one.thread.frames, one.findings != ()) for one in early] == [((), True)]


def test_no_debugger_and_no_files_are_needed(python: Interpreter, tmp_path: Path) -> None:
    made = python_crash("kinds_of_frames.py", python=python)
    alone = tmp_path / "core"
    shutil.copy(made.core, alone)
    crash = analyze(alone, options=Options(gdb=None, sysroot=tmp_path / "nothing"))
    assert crash.thread is not None
    frames = [frame for frame in crash.thread.pythons() if isinstance(frame, PythonFrame)]
    assert [frame.function for frame in frames[:4]] == ["string_at", "café", "<lambda>", "处理"]
    assert {frame.origin for frame in frames} == {"crashkit"}
    assert (frames[1].args, frames[1].locals) == (("wert",), {"wert": "16", "größe": "'naïve £'"})
    assert not any("PyStack found" in error.message or "disagree" in error.message for error in crash.soft_errors)


@pytest.mark.slow
def test_sources_agree(python: Interpreter) -> None:
    made = python_crash("asyncio_tasks.py", python=python)
    crash = analyze(made.core)
    check_python(made, crash)
    assert not [error for error in crash.soft_errors if "disagree" in error.message]
    assert "pystack" not in crash.seconds


@pytest.mark.slow
@pytest.mark.parametrize("debuggable", every_interpreter(debuggable=True))
def test_where_interpreter_calls_begin(debuggable: Interpreter, tmp_path: Path) -> None:
    """As often as the native stack has the evaluating function."""
    made = python_crash("threads.py", python=debuggable)
    crash = analyze(made.core, options=Options(gdb=None, sysroot=tmp_path / "nothing"))
    for thread in crash.threads:
        evaluations = [name for name in backtrace(made.backtrace())[thread.tid or 0] if without_suffix(name) == EVALUATE]
        assert len(runs(tuple(thread.pythons()))) == len(evaluations)


@pytest.mark.slow
def test_the_exception_that_was_handled_is_shown(python: Interpreter) -> None:
    crash = analyze(python_crash("handling.py", python=python).core)
    assert {thread.name: thread.exception for thread in crash.threads} == {
        "MainThread": "ValueError('bad row', 2)",
        "waiter": "KeyError('no such key')",
    }
    assert any(line.split() == ["handling", "ValueError('bad", "row',", "2)"] for line in text.summary(crash, None, False, 100))
    assert b"ValueError(&#39;bad row&#39;, 2)" in renderer("html").render(crash)


@pytest.mark.slow
@pytest.mark.parametrize("alone", [True, False], ids=["core alone", "gdb"])
def test_frames_of_subinterpreters_stand_above_those_that_run_them(python: Interpreter, alone: bool, tmp_path: Path) -> None:
    """They have thread states of their own on the same thread."""
    if python.version < (3, 8):
        pytest.skip("subinterpreters can be made from Python 3.8 on")
    made = python_crash("subinterpreter.py", python=python)
    crash = analyze(made.core, options=Options(gdb=None, sysroot=tmp_path / "nothing") if alone else None)
    assert (crash.thread is not None and not crash.thread.python_frames) or alone
    names = [frame.function for frame in crash.thread.pythons()]  # type: ignore[union-attr]
    comprehension = ["<listcomp>"] if python.version < (3, 12) else []
    assert names == ["inner", "<lambda>", *comprehension, "outer", "<module>", "run", "main", "<module>"]
    assert not [error for error in crash.soft_errors if "disagree" in error.message]


RENAMED = """
import os
def work():
    os.abort()
work()
"""


@pytest.mark.slow
@pytest.mark.parametrize("sections", [True, False], ids=["as it is", "without section headers"])
def test_python_in_an_executable_of_another_name(sections: bool, tmp_path: Path) -> None:
    """Without a single extension module, whose name would tell."""
    static = [one for one in interpreters() if library(one) == one.path]
    if not static:
        pytest.skip("no Python here that is one executable: apt-get install python3")
    server, script = tmp_path / "server", tmp_path / "work.py"
    shutil.copy(static[-1].path, server)
    if not sections:
        with server.open("r+b") as binary:
            binary.seek(40)
            binary.write(bytes(8))
            binary.seek(60)
            binary.write(bytes(4))
    script.write_text(RENAMED)
    made = python_crash(script, python=server, environment={"PYTHONHOME": str(static[-1].path.parent.parent)})
    crash = analyze(made.core, options=Options(gdb=None))
    assert crash.python is not None and crash.python.version == "{}.{}.{}".format(*static[-1].version)
    assert crash.thread is not None
    assert [(frame.function, frame.origin) for frame in crash.thread.pythons()] == [("work", "crashkit"), ("<module>", "crashkit")]


def test_crash_without_python(tmp_path: Path) -> None:
    crash = analyze(c_crash("no_python.c").core)
    assert crash.python is None and not [error for error in crash.soft_errors if error.stage == "python"]


@pytest.mark.slow
def test_threads_have_their_names_where_threading_is_damaged(python: Interpreter) -> None:
    made = python_crash("threads.py", python=python)
    with opened(made.core) as memory:
        loaded, version = interpreter_of(memory)
        found = find(View(memory), [Module(loaded, Path(loaded.path))], version, idents(memory))
        assert found is not None
        place = found.interpreters[0] + found.layout.interpreter.modules
    damaged = overwritten(made.core, place, "without-modules")
    names = [{thread.tid: thread.name for thread in analyze(core, options=Options(gdb=None)).threads} for core in (made.core, damaged)]
    assert names[0] == names[1] and "MainThread" in names[0].values()
