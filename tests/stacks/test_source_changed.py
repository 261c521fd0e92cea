"""Source lines: of which file, and whether that file is the one that ran."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crashkit.model import Crash, PythonFrame, Signal, Thread
from crashkit.report import text
from crashkit.stacks.source import Sources

CRASHED_AT = 1_000_000.0
WARNING = "the file changed after the crash"


def annotated(folder: Path, written_at: float, crashed_at: float | None = CRASHED_AT) -> tuple[PythonFrame, Sources]:
    script = folder / "app.py"
    script.write_text("def handle():\n    crash()\n")
    os.utime(script, (written_at, written_at))
    sources = Sources(Path, crashed_at)
    return sources.annotate(PythonFrame(file=str(script), line=2, function="handle")), sources


def summary(frame: PythonFrame) -> str:
    signal = Signal(number=11, name="SIGSEGV")
    crash = Crash(signal=signal, threads=(Thread(tid=1, crashed=True, frames=(frame,)),))
    return "\n".join(text.summary(crash, None, color=False, width=200))


@pytest.mark.parametrize(("later", "changed"), [(1, True), (0, False), (-1, False)])
def test_a_file_that_was_changed_after_the_crash_is_told_where_its_line_is_shown(later: float, changed: bool, tmp_path: Path) -> None:
    frame, sources = annotated(tmp_path, CRASHED_AT + later)
    assert frame.source == "crash()"
    assert frame.source_changed == changed == bool(sources.newer)
    assert (WARNING in summary(frame)) == changed


def test_nothing_is_said_where_the_time_of_the_crash_is_not_known(tmp_path: Path) -> None:
    frame, _ = annotated(tmp_path, CRASHED_AT, None)
    assert frame.source and not frame.source_changed


def test_another_file_of_the_same_crash_may_be_as_it_was(tmp_path: Path) -> None:
    frame, sources = annotated(tmp_path, CRASHED_AT + 1)
    other = tmp_path / "app.py.bak.py"
    other.write_text("crash()\n")
    os.utime(other, (CRASHED_AT - 1, CRASHED_AT - 1))
    assert frame.source_changed
    assert not sources.annotate(PythonFrame(file=str(other), line=1, function="f")).source_changed
