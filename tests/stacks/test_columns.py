"""The expression that was running is marked in its line, and numbers have values: in real crashes, whoever read the frames."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crashkit.model import PythonFrame
from crashkit.pipeline import Options, analyze
from crashkit.report import html, text, wording
from crashkit.report.json import decode, encode
from crashkit.secrets.crash import masked
from crashkit.stacks.source import Sources
from tests.crashes import Interpreter, every_interpreter, needs_gdb, python_crash

COLUMNS_SINCE = (3, 11)


def marked(frame: PythonFrame) -> str | None:
    columns, source = wording.expression(frame), wording.source_line(frame)
    return source[slice(*columns)] if columns and source else None


@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("gdb", ["gdb", None])
@pytest.mark.parametrize("python", every_interpreter())
def test_expressions_and_numbers(python: Interpreter, gdb: str | None) -> None:
    crash = analyze(python_crash("columns.py", python=python).core, options=Options(gdb=gdb))
    assert crash.thread is not None
    frames = {frame.function: frame for frame in crash.thread.pythons()}
    weigh = frames["weigh"]
    assert weigh.locals == {"buffer": "24", "factor": "0.75", "spread": "(1.5-2j)", "größe": "(0.75, [(1.5-2j)])"}
    if python.version < COLUMNS_SINCE:
        assert not any(frame.columns for frame in frames.values())
        return
    assert marked(weigh) == "ctypes.string_at(buffer)"
    assert marked(frames["main"]) == "weigh(24, 0.75, complex(1.5, -2))"
    # A traceback marks no whole line either.
    assert frames["<module>"].columns == (0, len("main(")) and marked(frames["<module>"]) is None
    lines = list(text.summary(crash, None, color=False, width=100))
    source = next(index for index, line in enumerate(lines) if "ctypes.string_at(buffer)" in line)
    carets = re.search(r"\^+", lines[source + 1])
    assert carets is not None and lines[source][slice(*carets.span())] == "ctypes.string_at(buffer)"
    page = html.render(crash)
    shown = re.findall(r"<mark>(.*?)</mark>", page)
    assert "ctypes.string_at(buffer)" in [re.sub("<[^>]*>", "", one) for one in shown]
    assert decode(encode(crash)).threads == crash.threads


def annotated(tmp_path: Path, line: str, columns: tuple[int, int]) -> PythonFrame:
    path = tmp_path / "app.py"
    path.write_text(line)
    return Sources(Path, None).annotate(PythonFrame(function="f", file=str(path), line=1, columns=columns))


@pytest.mark.parametrize(
    ("line", "columns", "expected"),
    [
        ("a = call(b)\n", (4, 11), "call(b)"),
        ("  ä = call(ß)\n", (7, 15), "call(ß)"),
        ("a = call(\n", (4, 0), "call("),
        ("a = call(b)\n", (4, 60), None),
        ("a = call(b)\n", (60, 0), None),
        ("a = call(b)\n", (11, 4), None),
    ],
)
def test_bytes_become_characters(tmp_path: Path, line: str, columns: tuple[int, int], expected: str | None) -> None:
    """A line that was changed since is not marked beyond its end."""
    assert marked(annotated(tmp_path, line, columns)) == expected


def test_a_line_in_which_a_secret_was_masked_is_not_marked(tmp_path: Path) -> None:
    from crashkit.model import Crash, Thread

    frame = annotated(tmp_path, 'connect(password="hunter2-and-more", to=host())\n', (40, 46))
    assert marked(frame) == "host()"
    clean = next(masked(Crash(threads=(Thread(frames=(frame,)),))).threads[0].pythons())
    assert "hunter2" not in (clean.source or "") and clean.columns is None


def test_without_the_file_there_are_no_columns() -> None:
    frame = PythonFrame(function="f", file="/nowhere/app.py", line=1, columns=(4, 0))
    assert Sources(lambda name: None, None).annotate(frame).columns is None


def test_a_mark_in_a_line_with_markup() -> None:
    line = "x = a < f('<b>') and \t g(1)"
    frame = PythonFrame(function="f", file="/srv/app.py", line=2, columns=(8, 16), context=("if x:", "    " + line), context_start=1)
    frame = PythonFrame(**{**{name: getattr(frame, name) for name in frame.__struct_fields__}, "columns": (12, 20), "source": line})
    shown = "".join(str(row.code) for row in html._excerpts(frame)[0] if row.current)
    assert [re.sub("<[^>]*>", "", one) for one in re.findall("<mark>(.*?)</mark>", shown)] == ["f(&#39;&lt;b&gt;&#39;)"]
