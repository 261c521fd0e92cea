"""The core names the source files: only Python source may get into a report, and only a bounded part of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crashkit.model import PythonFrame
from crashkit.stacks import source
from crashkit.stacks.source import Sources

SECRET = "root:$6$secret:19000:0:99999:7:::"


def annotated(path: Path, line: int = 1, crashed_at: float | None = None) -> tuple[PythonFrame, Sources]:
    sources = Sources(Path, crashed_at)
    return sources.annotate(PythonFrame(function="f", file=str(path), line=line)), sources


def is_not_read(path: Path) -> None:
    frame, _ = annotated(path)
    assert (frame.source, frame.context, frame.context_start) == (None, (), None)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_line_and_those_around_it(tmp_path):
    path = written(tmp_path / "app.py", "".join(f"    line({number})\n" for number in range(1, 21)))
    frame, _ = annotated(path, 10)
    assert frame.source == "line(10)"
    assert (frame.context_start, len(frame.context), frame.context[0]) == (5, 11, "    line(5)")


@pytest.mark.parametrize("name", ["shadow", "id_rsa", "secrets.json", "app.pyc", "app.txt", "py", ".py"])
def test_what_is_no_python_source_is_not_read(tmp_path, name):
    is_not_read(written(tmp_path / name, f"{SECRET}\n"))


@pytest.mark.parametrize("first", ["#!/bin/sh", "# python", "python", " #!/usr/bin/python3"])
def test_what_does_not_begin_as_a_python_script_is_not_read(tmp_path, first):
    is_not_read(written(tmp_path / "tool", f"{first}\n{SECRET}\n"))


@pytest.mark.parametrize(("name", "text"), [("app.py", "run()\n"), ("app.pyw", "run()\n"), ("tool", "#!/usr/bin/env python3\n")])
def test_python_source_is_read(tmp_path, name, text):
    assert annotated(written(tmp_path / name, text))[0].source == text.strip()


def test_a_file_too_large_is_not_read(tmp_path, monkeypatch):
    path = written(tmp_path / "app.py", "x = 1\n" * 100)
    monkeypatch.setattr(source, "_MOST_BYTES", 599)
    is_not_read(path)
    monkeypatch.setattr(source, "_MOST_BYTES", 600)
    assert annotated(path)[0].source == "x = 1"


def test_a_long_line_is_cut(tmp_path):
    frame, _ = annotated(written(tmp_path / "app.py", "x" * 10_000))
    assert frame.source == frame.context[0] == "x" * 500


@pytest.mark.parametrize("content", [b"# coding: no-such\nx\n", b"x = '\xff'\n"])
def test_bytes_that_are_no_text_are_not_read(tmp_path, content):
    path = tmp_path / "app.py"
    path.write_bytes(content)
    is_not_read(path)


def test_what_cannot_be_found_or_opened_is_not_read(tmp_path):
    is_not_read(tmp_path / "gone.py")
    (tmp_path / "folder.py").mkdir()
    is_not_read(tmp_path / "folder.py")
    assert Sources(lambda _name: None, None).annotate(PythonFrame(file="x.py", line=1)).source is None


def test_a_line_behind_the_end_is_not_there(tmp_path):
    assert annotated(written(tmp_path / "app.py", "one\n"), 2)[0].source is None


def test_a_file_changed_after_the_crash_is_named(tmp_path):
    path = written(tmp_path / "app.py", "one\n")
    os.utime(path, (1000, 1000))
    assert annotated(path, crashed_at=999)[1].newer == {str(path)}
    assert annotated(path, crashed_at=1001)[1].newer == set()
    assert annotated(path)[1].newer == set()


def test_a_file_is_read_once(tmp_path):
    path = written(tmp_path / "app.py", "one\n")
    frame, sources = annotated(path)
    path.write_text("two\n")
    assert sources.annotate(frame).source == "one"
