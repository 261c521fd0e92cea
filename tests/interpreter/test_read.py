"""Python's state as crashkit reads it itself, against faulthandler's own dump of the same crash, on every interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.evidence.core.constants import read_constant
from crashkit.evidence.module_files import ModuleFile
from crashkit.interpreter.finding import Module
from crashkit.interpreter.python_threads import PythonThread
from crashkit.interpreter.read import read_python
from tests.crashes import Interpreter, every_interpreter, python_crash
from tests.interpreter.process import dumped, idents, interpreter_of, lines, opened, state_of
from tests.truth import faulting_thread

MOST_PRINTED = 100
"""faulthandler prints no more frames of one thread (MAX_FRAME_DEPTH, Python/traceback.c)."""


@pytest.fixture(params=every_interpreter())
def python(request: pytest.FixtureRequest) -> Interpreter:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("with_file", [True, False], ids=["file", "core alone"])
@pytest.mark.parametrize("script", ["threads.py", "kinds_of_frames.py", "asyncio_tasks.py"])
def test_every_frame_is_faulthandlers(python: Interpreter, script: str, with_file: bool) -> None:
    made = python_crash(script, python=python, environment={"PYTHONIOENCODING": "utf-8"})
    with opened(made.core) as core:
        truth = dumped(core, made.stderr)
        state = state_of(core, with_file)
        assert state is not None and state.lost_threads == 0 and not state.finalizing
        assert str(state.version) == "{}.{}{}".format(*python.version[:2], "t" if python.free_threaded else "")
        ours = {thread.state.ident: thread for thread in state.threads}
        # Without the GIL, the others run on while faulthandler prints, and from 3.14 on it does not look at them.
        assert ours.keys() == truth.keys() or (python.free_threaded and ours.keys() > truth.keys())
        for ident, expected in truth.items():
            runs = python.free_threaded and (ours[ident].name or "").startswith("spinner")
            assert (runs or lines(ours[ident]) == expected) and not ours[ident].stack.cut
        holders = [thread.state.ident for thread in state.threads if thread.holds_gil]
        if python.free_threaded:
            assert {thread.holds_gil for thread in state.threads} == {None}
        elif with_file or python.version >= (3, 7):
            assert holders == [faulting_thread(made.stderr)]


@pytest.mark.slow
def test_names_of_threads_are_threadings(python: Interpreter) -> None:
    with opened(python_crash("threads.py", python=python).core) as core:
        state = state_of(core)
        assert state is not None
        assert sorted(thread.name or "" for thread in state.threads) == sorted(
            ["MainThread", "crasher", "reader", "sorter", "spinner-1", "spinner-7", "waiter"]
        )
        if python.version >= (3, 11):
            assert {thread.state.native_id for thread in state.threads} == {thread.tid for thread in core.threads()}


def variables(state, thread: PythonThread, function: str) -> dict[str, str]:
    frame = next(frame for frame in thread.stack.inner if frame.code and frame.code.name == function)
    return {value.name: value.text for value in state.variables(frame)}


@pytest.mark.slow
def test_values(python: Interpreter) -> None:
    with opened(python_crash("kinds_of_frames.py", python=python).core) as core:
        state = state_of(core)
        assert state is not None
        (thread,) = state.threads
        assert variables(state, thread, "café") == {"wert": "16", "größe": "'naïve £'"}
        assert variables(state, thread, "处理") == {"请求": "16", "数据": "'数据 и данные'", "表情": "'🔥 tall'"}
        values = variables(state, thread, "callback")
        assert values.pop("match").startswith("<")
        values.pop("text", None)
        assert values == {
            "number": "12345678901234567890",
            "real": "-2.5",
            "imaginary": "(1+2j)",
            "raw": r"b'\x00raw'",
            "nothing": "None",
            "yes": "True",
            "nested": "{'list': [1, -2, (3,)], 'empty': {}, 7: ()}",
        }
        assert variables(state, thread, "recursive") == {"depth": "0", "text": "'16'", "captured": "0"}


@pytest.mark.slow
def test_exceptions_that_are_handled(python: Interpreter) -> None:
    with opened(python_crash("handling.py", python=python).core) as core:
        state = state_of(core)
        assert state is not None
        exceptions = {thread.name: state.exception(thread) for thread in state.threads}
        # Names of types are constants of the interpreter's file, but for those that the module builtins holds.
        assert exceptions == {"MainThread": "ValueError('bad row', 2)", "waiter": "KeyError('no such key')"}
        thread = next(thread for thread in state.threads if thread.name == "MainThread")
        values = variables(state, thread, "work")
        assert values == {"rows": "{1, 2}", "kinds": "{'b'}", "empty": "frozenset()"}
    with opened(python_crash("threads.py", python=python).core) as core:
        state = state_of(core)
        assert state is not None and not any(map(state.exception, state.threads))


def test_names_of_functions_and_modules(python: Interpreter) -> None:
    """Their types are told by names that lie in the interpreter's file."""
    with opened(python_crash("kinds_of_frames.py", python=python).core) as core:
        module, version = interpreter_of(core)
        files = {module.path: ModuleFile("found", Path(module.path))}
        state = read_python(core, [Module(module, None)], version, idents(core), lambda *place: read_constant(core, files, *place))
        assert state is not None
        assert variables(state, state.threads[0], "wrapper")["function"] == "<function callback>"
        assert variables(state, state.threads[0], "wrapper")["kwargs"] == "{}"


OUTSIDE_OF_PYTHON = """
import ctypes
ctypes.CDLL(None).strlen(ctypes.c_void_p(16))
"""


def test_nobody_holds_the_gil_outside_of_python(python: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text(OUTSIDE_OF_PYTHON)
    with opened(python_crash(tmp_path / "outside.py", python=python).core) as core:
        state = state_of(core, with_file=True)
        assert state is not None
        assert [thread.holds_gil for thread in state.threads] == [None if python.free_threaded else False]


DEEP = """
import ctypes, sys
sys.setrecursionlimit(10000)
def recurse(depth):
    return recurse(depth - 1) if depth else ctypes.string_at(16)
recurse(3000)
"""


def test_deep_recursion_is_read_whole(python: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(DEEP)
    made = python_crash(tmp_path / "deep.py", python=python)
    with opened(made.core) as core:
        state = state_of(core)
        assert state is not None
        (thread,) = state.threads
        (truth,) = dumped(core, made.stderr).values()
        assert lines(thread)[:MOST_PRINTED] == truth[:MOST_PRINTED]
        assert len(thread.stack.inner) == 3003 and not thread.stack.cut and not thread.stack.outer
        assert [frame.code.name for frame in thread.stack.inner[-2:] if frame.code] == ["recurse", "<module>"]


def test_columns(python: Interpreter) -> None:
    """In bytes of the source, from 3.11 on: `ctypes.string_at(wert)` in a line of `café`."""
    if python.version < (3, 11):
        pytest.skip("columns are known from Python 3.11 on")
    with opened(python_crash("kinds_of_frames.py", python=python).core) as core:
        state = state_of(core)
        assert state is not None
        frame = next(frame for frame in state.threads[0].stack.inner if frame.code and frame.code.name == "café")
        assert frame.position is not None and frame.code is not None
        source = Path(frame.code.file or "").read_bytes().splitlines()[frame.position.line - 1]
        assert source[frame.position.column : frame.position.end_column] == b"ctypes.string_at(wert)"
