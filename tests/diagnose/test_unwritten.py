"""What a process had printed and never written is read from its core."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.evidence.core.stdio import unwritten
from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from crashkit.report import html, markdown, text
from tests.crashes import Interpreter, an_interpreter, build_library, needs_x86_64, python_crash, some_interpreters

pytestmark = needs_x86_64()
PROGRAM = """
import ctypes, io, sys
library = ctypes.CDLL({library!r})
sys.stdout = sys.__stdout__ = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8")
print("epoch 1", flush=True)
print("epoch 2: \u00fc")
{more}
sys.stderr.write("half a line")
library.{call}
"""


def crash_of(call: str, folder: Path, python: Interpreter, more: str = "") -> Crash:
    library = build_library("misused.c", folder, python)
    program = folder / "program.py"
    program.write_text(PROGRAM.format(library=str(library), call=call, more=more), encoding="utf-8")
    return analyze(python_crash(program, python=python).core, options=Options(gdb=None))


@pytest.mark.slow
@pytest.mark.parametrize("python", some_interpreters("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13"))
def test_the_last_words_of_python_and_c(python: Interpreter, tmp_path: Path) -> None:
    """Not what was written: a log may have that."""
    found = crash_of("gives_up(b'blocks')", tmp_path, python)
    assert found.unwritten[0] == "epoch 2: \u00fc" and found.unwritten[-1] == "engine: no more blocks"
    assert "epoch 1" not in found.unwritten and "written blocks" not in found.unwritten
    assert not found.log, "nothing of it is known"
    shown = "\n".join(text.summary(found, None, color=False, width=100))
    assert "unwritten epoch 2: \u00fc" in shown and "engine: no more blocks" in shown
    assert "engine: no more blocks" in html.render(found) and "engine: no more blocks" in markdown.summary(found)


@pytest.mark.slow
def test_a_line_that_is_known(tmp_path: Path) -> None:
    """An assertion that somebody printed with printf()."""
    found = crash_of("asserts()", tmp_path, an_interpreter())
    (line,) = found.log
    assert (line.kind, line.from_core) == ("c-assert", True)
    assert (found.findings[0].id, found.findings[0].confidence) == ("c-assertion-failed", "certain")
    assert "weights != 0" in (found.findings[0].summary or ""), (line, found.findings)


@pytest.mark.slow
def test_no_more_than_the_end(tmp_path: Path) -> None:
    """Of a large buffer, and of a text that was collected and handed on in parts."""
    more = "for number in range(700): print('line', number)"
    found = crash_of("gives_up(b'blocks')", tmp_path, an_interpreter(), more)
    assert [line for line in found.unwritten if line.startswith("line")] == [f"line {number}" for number in range(694, 700)]


@pytest.mark.slow
def test_without_the_file_of_the_c_library(tmp_path: Path) -> None:
    """Nothing is guessed."""
    made = python_crash("faults.py", "abort", python=an_interpreter())
    from crashkit.evidence.core.core import open_core
    from crashkit.evidence.core.describe import describe
    from crashkit.evidence.input import open_input
    from crashkit.evidence.module_files import Finder

    with open_input(made.core) as source:
        core = open_core(source.file, source.path, source.size)
        assert core is not None
        with core:
            scene = describe(core, source, Finder())
            assert unwritten(core, scene.modules, {}) == []
