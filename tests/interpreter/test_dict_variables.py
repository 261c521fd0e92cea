"""The variables of code that has no slots for them in its frame: a script's line has values like a function's."""

from __future__ import annotations

import pytest

from crashkit.model import PythonFrame
from crashkit.naming.own_code import python_frames
from crashkit.pipeline import Options, analyze

from ..crashes import Interpreter, every_interpreter, needs_gdb, needs_x86_64, python_crash

pytestmark = [pytest.mark.slow, needs_x86_64()]


def frame_of(kind: str, python: Interpreter, gdb: bool = False) -> PythonFrame:
    """The innermost frame of the program, without that of ctypes."""
    crash = analyze(python_crash("in_dicts.py", kind, python=python).core, options=Options(gdb="gdb" if gdb else None))
    assert crash.thread is not None
    return next(frame for frame in python_frames(crash.thread) if "ctypes" not in (frame.file or ""))


@pytest.mark.parametrize("python", every_interpreter())
def test_the_variables_of_a_module_that_its_line_and_those_around_it_name(python):
    frame = frame_of("module", python)
    assert (frame.function, frame.source) == ("<module>", 'print(ctypes.string_at(row["start"]), helper)')
    assert frame.locals == {"rows": "[{'start': 512}]", "row": "{'start': 512}"}
    assert frame.args == ()


@needs_gdb
@pytest.mark.parametrize("python", every_interpreter(debuggable=True))
def test_what_libpython_leaves_out(python):
    assert frame_of("module", python, gdb=True).locals["row"] == "{'start': 512}"


@pytest.mark.parametrize("python", every_interpreter())
def test_the_variables_of_executed_code_are_those_of_its_own_dict(python):
    frame = frame_of("exec", python)
    assert (frame.function, frame.file) == ("<module>", "<string>")
    assert frame.locals == {"told": "3", "offset": "24"}


@pytest.mark.parametrize("python", every_interpreter())
def test_the_variables_of_the_body_of_a_class(python):
    frame = frame_of("class", python)
    assert (frame.function, frame.locals) == ("Reader", {"width": "40"})
