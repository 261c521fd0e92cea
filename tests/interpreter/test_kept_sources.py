"""The lines of code that is in no file: a notebook's cells, `python -c`."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.interpreter import kept_sources
from crashkit.model import Crash, PythonFrame
from crashkit.naming.own_code import python_frames
from crashkit.pipeline import Options, analyze
from crashkit.report import one_line
from tests.crashes import Interpreter, crash, every_interpreter, python_crash

COMMAND = """\
import ctypes
def read(place):
    ctypes.string_at(place)
def work():
    return [read(place) for place in (24,)]
exec("pass\\nwork()")
"""


@pytest.fixture(params=every_interpreter())
def python(request: pytest.FixtureRequest) -> Interpreter:
    found: Interpreter = request.param
    return found


def lines(analyzed: Crash) -> list[tuple[str | None, int | None, str | None]]:
    """Function, line and source of the frames in no file, innermost first."""
    assert analyzed.thread is not None
    frames: list[PythonFrame] = [frame for frame in python_frames(analyzed.thread) if not (frame.file or "").endswith(".py")]
    return [((frame.function or "").rpartition(".")[2], frame.line, frame.source) for frame in frames]


@pytest.mark.parametrize(("name", "title"), [("<ipython-input-1-2f>", "<ipython-input-1-2f>"), ("/tmp/ipykernel_77/123456", "Cell In[3]")])
def test_a_cell_has_its_lines(name: str, title: str, python: Interpreter) -> None:
    found = analyze(python_crash("kept_source.py", name, python=python).core, options=Options(gdb=None))
    assert lines(found) == [("read", 4, "return ctypes.string_at(place)"), ("<module>", 6, "read(24)")]
    # A user of IPython knows the cell by its number.
    assert one_line.where(found) == f"read ({title}:4)"


def test_of_two_texts_with_one_name_neither_is_taken(python: Interpreter) -> None:
    found = analyze(python_crash("kept_source.py", "<cell>", "beside", python=python).core, options=Options(gdb=None))
    assert lines(found) == [("read", 4, None), ("<module>", 6, None)]


def test_a_large_text_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    core = python_crash("kept_source.py", "<cell>").core
    assert lines(analyze(core, options=Options(gdb=None)))[0][2] is not None
    monkeypatch.setattr(kept_sources, "_MOST_TEXT", 50)
    assert lines(analyze(core, options=Options(gdb=None)))[0][2] is None


def test_a_command_has_its_lines_and_what_it_executes_does_not(python: Interpreter, tmp_path: Path) -> None:
    made = crash([python.path, "-X", "faulthandler", "-c", COMMAND], tmp_path, {})
    found = lines(analyze(made.core, options=Options(gdb=None)))
    every = [one for one in found if one[0] != "<listcomp>"]  # Since 3.12 it is a part of its function.
    assert every == [
        ("read", 3, "ctypes.string_at(place)"),
        ("work", 5, "return [read(place) for place in (24,)]"),
        ("<module>", 2, None),
        ("<module>", 6, 'exec("pass\\nwork()")'),
    ]
    assert all(source == "return [read(place) for place in (24,)]" for function, _, source in found if function == "<listcomp>")
