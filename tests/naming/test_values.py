"""Which values of a line are told: those of attributes and items, not of what is set or only called, and none of another object's."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.model import PythonFrame
from crashkit.naming.values import statement, telling, used
from crashkit.pipeline import analyze
from crashkit.report import html, text

from ..crashes import an_interpreter, python_crash


def line(source: str, **values: str) -> PythonFrame:
    return PythonFrame(function="f", file="/srv/app.py", line=3, source=source, locals=values)


CODEC = "<Codec(table={'a': 1, 'b': 112}) at 0x7f10>"


@pytest.mark.parametrize(
    ("source", "values", "expected"),
    [
        ("f(self.table[key])", {"self": CODEC, "key": "'b'"}, ["self.table[key] = 112", "key = 'b'"]),
        ('f(row["at"], 10)', {"row": "{'name': 'a, b: c', 'at': <c_void_p 0x1d8>}"}, ['row["at"] = <c_void_p 0x1d8>']),
        ("f(rows[1][ 0 ])", {"rows": "[(1, 2), (3, 4)]"}, ["rows[1][0] = 3"]),
        ("f(rows[-1])", {"rows": "(1, <N(a=1, b=2) at 0x1>)"}, ["rows[-1] = <N(a=1, b=2) at 0x1>"]),
        ("f(node.size)", {"node": "<Node(link=<Node(size=3, link=None) at 0x1>, size=24) at 0x2>"}, ["node.size = 24"]),
        ("f(node.at.x)", {"node": "<Node(at=<P(x=1.5, y=2) at 0x1>, n=1) at 0x2>"}, ["node.at.x = 1.5"]),
        # Of a text that was cut, only what stands before the cut.
        ("f(rows[0], rows[-1])", {"rows": "[1, 2, ...]"}, ["rows[0] = 1", "rows = [1, 2, ...]"]),
        ("f(rows[0])", {"rows": "['abc, d…"}, ["rows = ['abc, d…"]),
        ("f(rows[7], rows[k])", {"rows": "[1, 2]", "k": "{}"}, ["rows = [1, 2]", "k = {}"]),
        # What the line sets has not got its value, an argument's keyword is no variable, and `.size` is of what `g` returns.
        ("x = f(y, size=z)", {"x": "1", "y": "2", "size": "3", "z": "4"}, ["y = 2", "z = 4"]),
        ("row['at'] = f(y)", {"row": "{'at': 7}", "y": "2"}, ["row = {'at': 7}", "y = 2"]),
        ("g(y).size == x", {"y": "2", "size": "3", "x": "1"}, ["y = 2", "x = 1"]),
        # What is called says nothing; what it is an attribute of may.
        ("lib.strtol(x)", {"lib": "<CDLL(_name=None, strtol=<_FuncPtr 0x7f31>) at 0x7f>", "x": "1"}, ["x = 1"]),
        ("codec.decode(x)  # not of y", {"codec": CODEC, "x": "1", "y": "2"}, [f"codec = {CODEC[:40]}…", "x = 1"]),
    ],
)
def test_what_is_told(source: str, values: dict[str, str], expected: list[str]) -> None:
    assert [str(value) for value in telling(line(source, **values))] == expected


def test_what_is_only_called_may_still_be_the_pointer() -> None:
    (found,) = used(line("callback()", callback="<CFunctionType 0x10>"))
    assert found.called and found.text == "<CFunctionType 0x10>"


def excerpt(*lines: str, columns: tuple[int, int] | None = None, **values: str) -> PythonFrame:
    """A frame at the first of these lines."""
    return PythonFrame(
        function="f", file="/srv/app.py", line=3, source=lines[0].strip(), context=lines, context_start=3, columns=columns, locals=values
    )


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("    return load(start,", "                width)", "x = 1"), "return load(start, width)"),
        (("load(", '    row["(at"]  # where :-)', "    * scale,", ")", ".upper()"), 'load(row["(at"] * scale,)'),
        (("load(a)  # (", "b)"), "load(a)  # ("),
        (("    16,", ")"), "16,"),
        (("load([", "    1,"), "load([1, …"),
    ],
)
def test_a_line_that_leaves_brackets_open_is_shown_to_their_end(lines: tuple[str, ...], told: str) -> None:
    assert statement(excerpt(*lines)) == told


def test_variables_of_all_lines_of_an_expression_are_told() -> None:
    lines = ("    return load(start,", "                width) + skipped")
    assert [str(one) for one in used(excerpt(*lines, columns=(11, 22), start="448", width="64"))] == ["start = 448", "width = 64"]
    # An expression that ends in the line needs no other.
    assert [str(one) for one in used(excerpt("f(g(x),", "  y)", columns=(2, 6), x="1", y="2"))] == ["x = 1"]


SEVERAL_LINES = """
import ctypes
def decode(scale, offset):
    ctypes.memset(
        0,
        9,
        offset
        * scale,
    )
decode(2, 20)
"""


def test_a_real_crash_in_an_expression_of_several_lines(tmp_path: Path) -> None:
    """Its arguments are told, and the whole expression is shown on the terminal and in the page."""
    program = tmp_path / "app.py"
    program.write_text(SEVERAL_LINES)
    found = analyze(python_crash(program, python=an_interpreter()).core)
    shown = "\\n".join(text.summary(found, None, color=False, width=100, brief=True))
    assert "ctypes.memset(0, 9, offset * scale,)\\n" in shown
    assert "ctypes.memset(" in html.render(found) and "offset * scale" in html.render(found)
    assert "decode (app.py:4): offset = 20, scale = 2" in shown
