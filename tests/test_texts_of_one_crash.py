"""What gdb printed and what faulthandler printed of one crash, without its core."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.model import NativeFrame, PythonFrame
from crashkit.pipeline import analyze
from tests.crashes import an_interpreter, python_crash
from tests.truth import backtrace, faulthandler


@pytest.mark.slow
def test_both_are_given_to_the_same_threads(tmp_path: Path) -> None:
    folder = python_crash("threads.py", python=an_interpreter())
    (tmp_path / "gdb.txt").write_text(folder.backtrace())
    (tmp_path / "stderr.log").write_text(folder.stderr)
    crash = analyze([tmp_path / "stderr.log", tmp_path / "gdb.txt"])
    truth, native = faulthandler(folder.stderr), backtrace(folder.backtrace())
    assert len(truth) >= 4
    stacks = {thread.pthread: thread for thread in crash.threads if thread.pthread is not None}
    for ident, frames in truth.items():
        thread = stacks[ident]
        told = [(frame.function, frame.line) for frame in thread.pythons()]
        assert told == [(frame[0], frame[1]) for frame in frames]
        assert any(isinstance(frame, NativeFrame) for frame in thread.frames)
        # faulthandler does not tell where each call of the interpreter begins; and gdb's text of a stripped one may name none of them.
        calls = sum(name.startswith("_PyEval_EvalFrameDefault") for name in native[thread.tid or 0])
        merged = any(isinstance(frame, PythonFrame) for frame in thread.frames)
        assert merged == (bool(frames) and calls in (1, len(frames))), f"{calls} calls"
