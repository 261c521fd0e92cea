"""A thread that waits for the GIL is told so, also where the interpreter's own functions have no names."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from crashkit.model import NativeFrame, PythonFrame, Thread
from crashkit.naming.gil import INTERPRETER, waits_for_gil
from crashkit.pipeline import analyze
from crashkit.report import wording

from ..crashes import every_interpreter, needs_gdb, python_crash

LIBC, PYTHON, EXTENSION = "/lib/libc.so.6", "/usr/bin/python3.11", "/srv/pool.so"
WAIT = (
    NativeFrame(function="__futex_abstimed_wait_common64", module=LIBC),
    NativeFrame(function="__pthread_cond_wait_common", module=LIBC),
    NativeFrame(function="___pthread_cond_timedwait64", module=LIBC),
)
TIMER = (NativeFrame(function="__GI___clock_nanosleep", module=LIBC),)


def native(name: str | None, module: str = PYTHON) -> NativeFrame:
    return NativeFrame(function=name, module=module)


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        ((*WAIT, native("take_gil"), native("PyEval_RestoreThread")), "the GIL"),
        ((*WAIT, native(None), native("PyEval_RestoreThread")), "the GIL"),
        ((*WAIT, native(None), native(None), PythonFrame(function="spin")), "the GIL"),
        ((*WAIT, native(None), PythonFrame(function="spin")), "the GIL"),
        ((*WAIT, native("drop_gil"), native("eval_frame_handle_pending"), PythonFrame(function="spin")), "the GIL"),
        ((*WAIT, native(None, LIBC), native(None), PythonFrame(function="spin")), "a condition"),
        ((*WAIT, native(None, EXTENSION), PythonFrame(function="spin")), "a condition"),
        ((*WAIT, native("std::condition_variable::wait", EXTENSION), native("start_thread", LIBC)), "a condition"),
        ((*TIMER, native(None), PythonFrame(function="sleep")), "a timer"),
        ((*WAIT, PythonFrame(function="spin")), "a condition"),
    ],
)
def test_what_is_waited_for(frames: tuple[NativeFrame, ...], said: str) -> None:
    assert wording.awaited(Thread(frames=frames)) == said


SPIN = """\
import ctypes, threading

def spin():
    while True:
        pass

for _ in range(3):
    threading.Thread(target=spin, daemon=True).start()
for _ in range(200000):
    pass
ctypes.PyDLL(None).abort()
"""
EXPORTED = ("Py", "_Py")


@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_threads_that_compete_for_it(python, tmp_path) -> None:
    """The crashed thread holds the GIL, all others wait for it (or were about to, in the middle of handing it over)."""
    script = tmp_path / "spin.py"
    script.write_text(SPIN)
    crash = analyze(python_crash(script, python=python, faulthandler=False).core)
    others = [thread for thread in crash.threads if not thread.crashed]
    assert others
    for thread in others:
        names = [frame.function or "" for frame in thread.natives()]
        assert wording.awaited(thread) != "a condition", names
        stripped = replace(thread, frames=tuple(_stripped(frame) for frame in thread.frames))
        # Seldom caught: a thread that waits for the mutex around the condition, which looks like any other lock without names.
        if "take_gil" in names and any("cond" in name for name in names):
            assert waits_for_gil(stripped.frames) == waits_for_gil(thread.frames), names


def _stripped(frame):
    """As in a stripped interpreter, which keeps the names that it exports."""
    if isinstance(frame, NativeFrame) and INTERPRETER.search(frame.module or "") and not (frame.function or "").startswith(EXPORTED):
        return replace(frame, function=None)
    return frame
