"""The words of a fatal error, from the core alone: what the process wrote is not needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crashkit.model import NativeFrame, Thread
from crashkit.pipeline import analyze
from crashkit.report import text
from crashkit.stacks.fatal_error import fatal_error

from ..crashes import every_interpreter, needs_gdb, python_crash

OWN = """import ctypes
ctypes.pythonapi.Py_FatalError(b"the 'words' of it, which are longer than what gdb shows of a string")
"""


@pytest.mark.slow
@needs_gdb
@pytest.mark.parametrize("python", every_interpreter(debuggable=True))
def test_as_the_process_wrote_them(python, tmp_path: Path) -> None:
    script = tmp_path / "fatal.py"
    script.write_text(OWN)
    folder = python_crash(script, python=python, faulthandler=False)
    wrote = re.search(r"^Fatal Python error: .*", folder.stderr, re.MULTILINE)
    assert wrote is not None
    crash = analyze(folder.core)
    said = [line for line in crash.log if line.kind == "fatal-python-error"]
    if not said:
        # An older compiler's code kept no argument.
        frames = crash.thread.natives() if crash.thread else ()
        assert all("optimized out" in frame.args.get("msg", "optimized out") for frame in frames)
        return
    assert [line.text for line in said] == [wrote[0]] and said[0].from_core
    assert wrote[0][:60] in "\n".join(text.summary(crash, None, color=False, width=120))


@pytest.mark.parametrize(
    ("function", "args", "said"),
    [
        ("Py_FatalError", {"msg": '0x10 "whole"'}, "text at 16"),
        ("fatal_error", {"prefix": '0x20 "x"', "msg": '0x10 "y"'}, "text at 32: text at 16"),
        ("_Py_FatalErrorFunc", {"func": '0x20 <__func__.1> "x"', "msg": '0x10 "y"'}, "text at 32: text at 16"),
        ("fatal_error", {"prefix": "0x0", "msg": r'0x1000 "a \"quoted\" beg"...'}, 'a "quoted" beg…'),
        ("fatal_error", {"prefix": "0x0", "msg": "<optimized out>"}, None),
        ("fatal_error", {}, None),
        ("fatal_error_exit", {"status": "1"}, None),
    ],
)
def test_from_the_arguments(function: str, args: dict[str, str], said: str | None) -> None:
    thread = Thread(frames=(NativeFrame(function="abort"), NativeFrame(function=function, args=args)))
    told = fatal_error(thread, lambda address: f"text at {address}" if address < 0x100 else None)
    assert told == (f"Fatal Python error: {said}" if said else None)
