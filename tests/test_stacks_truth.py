"""Our stacks against what others say of the same crash: faulthandler's dump for Python, a plain gdb's backtrace for native code."""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from crashkit.model import Crash, NativeFrame, PythonFrame, Thread
from crashkit.pipeline import Options, analyze
from tests.crashes import NO_TORCH, Folder, Interpreter, every_interpreter, python_crash
from tests.truth import SIGNAL_FRAME, Line, alone, backtrace, faulthandler, faulting_thread

SCRIPTS = ["threads.py", "asyncio_tasks.py"]

# What the interpreter runs for a Python frame; merged stacks show that frame in its place.
STANDS_FOR_PYTHON = ("_PyEval_", "PyEval_EvalCode", "_PyFunction_", "function_code_fastcall", "fast_function", "call_function")

EVALUATES = "_PyEval_EvalFrameDefault"

_CLONE = re.compile(r" \[clone [^\]]*\]")
"""gcc's copy of a function: a detail of the build that we leave out of its name."""
_METHOD = re.compile(r"[a-zA-Z_]\w*(?:\.\w+)*")


@cache
def analyzed(folder: Folder) -> Crash:
    return analyze(folder.core)


def crash_of(script: str, python: Interpreter | Path) -> tuple[Folder, Crash]:
    folder = python_crash(script, python=python)
    return folder, analyzed(folder)


def python_lines(thread: Thread) -> list[tuple[str | None, int | None, str]]:
    return [(frame.function, frame.line, PurePosixPath(frame.file or "").name) for frame in thread.pythons()]


def true_lines(lines: list[Line]) -> list[tuple[str, int, str]]:
    return [(line.function, line.line, PurePosixPath(line.file).name) for line in lines]


def check_python(folder: Folder, crash: Crash, running: tuple[str, ...] = ()) -> None:
    """`running` are threads that nothing holds between faulthandler's dump and the core: only their outer frames stay."""
    ours = {thread.pthread: thread for thread in crash.threads}
    truth = faulthandler(folder.stderr)
    if not truth and crash.python.free_threaded:
        # faulthandler of 3.14 prints no other thread there.
        assert python_lines(crash.thread) == true_lines(alone(folder.stderr)) != []
        return
    assert truth
    assert truth.keys() <= ours.keys()
    for ident, lines in truth.items():
        outer = slice(-3, None) if ours[ident].name in running else slice(None)
        assert python_lines(ours[ident])[outer] == true_lines(lines)[outer], f"thread {ours[ident].name}"
    for ident in ours.keys() - truth.keys():
        assert not python_lines(ours[ident])
    assert crash.thread is ours[faulting_thread(folder.stderr)]


def in_generated_code(thread: Thread) -> bool:
    """Whether it ran code that was made at run time, as torch's libraries do: nothing tells where such a frame ends, and gdb guesses."""
    first = next((frame for frame in thread.frames if isinstance(frame, NativeFrame)), None)
    return first is not None and not thread.crashed and not first.function and not first.module


def check_native(folder: Folder, crash: Crash) -> None:
    truth = backtrace(folder.backtrace())
    assert {thread.tid for thread in crash.threads} == truth.keys()
    for thread in crash.threads:
        if in_generated_code(thread):
            continue
        expected = [_CLONE.sub("", name) for name in truth[thread.tid]]
        ours, nameless = told(thread)
        if expected[-1] == "main" and "main" in ours:  # gdb stops there where it knows main's symbol
            ours = ours[: ours.index("main") + 1]
        at = 0
        for name in expected:
            # gdb makes up a name for a jump table's entry, in which a running thread is seldom caught. Where it has none, we may know what
            # Python calls the function (stacks/method_tables.py).
            its = ours[at] if at < len(ours) else ""
            same = name == its or (name.endswith("@plt") and its == "??") or (name == "??" and _METHOD.fullmatch(its))
            if same and at not in nameless:
                at += 1
                continue
            if name == "??" and at in nameless:
                nameless.remove(at)
                continue
            nameless -= {at} if name.startswith(EVALUATES) else set()
            assert name.startswith(STANDS_FOR_PYTHON), f"thread {thread.name}: {name} of gdb is missing before {ours[at : at + 1]}"
        assert at == len(ours), f"thread {thread.name}: {ours[at:]} are not gdb's"
        assert not nameless, (
            f"thread {thread.name}: gdb has nothing that ran the Python frames before {[ours[at : at + 1] for at in nameless]}"
        )


def told(thread: Thread) -> tuple[list[str], set[int]]:
    """The native functions of the stack, and before which of them Python frames stand.

    For those gdb has one evaluation (or more: each entered from the next one's C), which in a stripped interpreter can lack its name.
    """
    names: list[str] = []
    pythons: set[int] = set()
    for frame in thread.frames:
        if isinstance(frame, NativeFrame):
            names.append(frame.function or "??")
        elif isinstance(frame, PythonFrame):
            pythons.add(len(names))
    return names, pythons


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("python", every_interpreter())
def test_python_frames_of_every_thread_are_faulthandlers(python, script):
    running = ("spinner-1", "spinner-7") if python.free_threaded else ()
    check_python(*crash_of(script, python), running)


@pytest.mark.slow
@pytest.mark.parametrize("gdb", ["gdb", None], ids=["gdb", "pystack"])
@pytest.mark.parametrize("python", every_interpreter())
def test_warm_calls_of_classes(python, gdb):
    """A specialised call of a class puts an artificial frame on the stack (3.13 and newer), which no traceback shows."""
    folder = python_crash("warm_calls.py", python=python)
    crash = analyze(folder.core, options=Options(gdb=gdb))
    assert not [error for error in crash.soft_errors if error.stage == "merge"]
    printed = faulthandler(folder.stderr).get(crash.thread.pthread) or alone(folder.stderr)
    ours, true = python_lines(crash.thread), true_lines(printed)
    # faulthandler of 3.14 itself breaks off at such a frame.
    assert ours == true or ("<invalid frame>" in folder.stderr and ours[: len(true)] == true)
    assert ours[-1][0] == "<module>"


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("python", every_interpreter())
def test_native_frames_of_every_thread_are_gdbs(python, script):
    check_native(*crash_of(script, python))


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_stacks_are_merged_in_order(python):
    """The names are known to a debugger of a stripped interpreter, too: Python functions, and what libraries export."""
    _, crash = crash_of("threads.py", python)
    assert not any(thread.python_frames for thread in crash.threads)
    frames = [frame for frame in crash.thread.frames if isinstance(frame, (NativeFrame, PythonFrame))]
    order = [frame.function for frame in frames]
    signal_frame = next(at for at, frame in enumerate(frames) if isinstance(frame, NativeFrame) and frame.trust == "signal")
    assert order[signal_frame] == SIGNAL_FRAME
    places = [order.index(name, signal_frame) for name in ("ffi_call", "read", "handle", "crash", "run")]
    assert places == sorted(places)
    assert not any(name and name.startswith("_PyEval_EvalFrameDefault") for name in order)


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter(debuggable=True))
def test_functions_of_the_interpreter_are_merged_in_order(python):
    _, crash = crash_of("threads.py", python)
    order = [frame.function for frame in crash.thread.frames]
    signal_frame = order.index(SIGNAL_FRAME)
    places = [order.index(name, signal_frame) for name in ("PyCFuncPtr_call", "read", "map_next", "handle", "crash", "run")]
    assert places == sorted(places)


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter(debuggable=True))
def test_names_of_threads(python):
    _, crash = crash_of("threads.py", python)
    assert sorted(thread.name or "" for thread in crash.threads) == sorted(
        ["MainThread", "crasher", "reader", "sorter", "spinner-1", "spinner-7", "waiter"]
    )
    assert crash.thread.name == "crasher"


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_source_locals_and_the_gil(python):
    _, crash = crash_of("threads.py", python)
    assert [thread for thread in crash.threads if thread.holds_gil] == ([] if python.free_threaded else [crash.thread])
    read = next(frame for frame in crash.thread.pythons() if frame.function == "read")
    assert read.source == "return ctypes.string_at(address)"
    assert read.locals["address"] == "16"
    assert read.args == ("self", "address")
    assert (crash.signal.reason, crash.signal.address, crash.signal.recovered) == ("null-pointer", 16, True)


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=NO_TORCH)
class TestTorch:
    def test_python_frames(self):
        folder, crash = crash_of("torch_lstm.py", Path(sys.executable))
        check_python(folder, crash)
        inside = [thread for thread in crash.threads if next((frame.function for frame in thread.pythons()), "") == "forward"]
        assert len(inside) == 4
        if crash.python.debug_info:
            assert all(thread.name.startswith("lstm-") for thread in inside)
        assert all(frame.line for thread in crash.threads for frame in thread.pythons())

    def test_native_frames(self):
        check_native(*crash_of("torch_lstm.py", Path(sys.executable)))
