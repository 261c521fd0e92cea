"""What the HTML page makes of frames: which rows, which of them open or folded, which expression is marked."""

from __future__ import annotations

import base64
import hashlib
import re
from html import unescape as html_unescape

import pytest
from msgspec.structs import replace

from crashkit.model import (
    Address,
    Crash,
    ElidedFrames,
    Evidence,
    Finding,
    Frame,
    GpuException,
    NativeFrame,
    Offset,
    PythonFrame,
    PythonRuntime,
    Signal,
    Thread,
)
from crashkit.report import html, wording
from crashkit.report.html import Page, Row, Rows, highlight, render
from crashkit.report.index import html as index
from crashkit.report.index.document import Index

PYTHON = "/opt/py/bin/python3.11"
NATIVE = NativeFrame(
    function="copy",
    module="/srv/fast.so",
    offset=Offset(0x10),
    pc=Address(0x1010),
    file="fast.c",
    line=3,
    trust="cfi",
    args={"size": "8"},
    locals={"at": "0x0"},
)
OWN = PythonFrame(
    function="load",
    file="/srv/app.py",
    line=3,
    source="    return copy(x)",
    context=("import fast", "def load(x):", "    return copy(x)", "", "", "", "load(1)"),
    context_start=1,
    args=("x",),
    locals={"y": "2", "x": "1"},
    origin="libpython",
)
EVALUATION = NativeFrame(function="_PyEval_EvalFrameDefault", module=PYTHON)
START = NativeFrame(function="_start", module=PYTHON)
ELIDED = ElidedFrames(count=3)


def page(*frames: Frame, python_frames: tuple[PythonFrame, ...] = (), findings: tuple[Finding, ...] = ()) -> Page:
    thread = Thread(tid=7, crashed=True, frames=frames, python_frames=python_frames)
    return Page(
        Crash(signal=Signal(number=11, name="SIGSEGV"), python=PythonRuntime(executable=PYTHON), threads=(thread,), findings=findings)
    )


def rows(made: Page) -> list[Row]:
    assert made.thread is not None
    return [row for part in made.stack(made.thread).rows for row in part.first]


def test_rows_of_a_stack() -> None:
    evidence = (Evidence(text="", thread=7, frame=0), Evidence(text="", thread=7, frame=3))
    native, python, evaluation, elided, start = rows(
        page(NATIVE, OWN, EVALUATION, ELIDED, START, findings=(Finding(id="x", title="X", confidence="likely", evidence=evidence),))
    )
    assert [(row.anchor, row.index, row.kind) for row in (native, python, evaluation, elided, start)] == [
        ("t0.0", 0, "native"), ("t0.1", 1, "python"), ("t0.2", 2, "native"), ("t0.3", 3, "elided"), ("t0.4", 4, "native"),
    ]  # fmt: skip
    assert [row.function for row in (native, python, evaluation, start)] == ["copy", "load", "_PyEval_EvalFrameDefault", "_start"]
    assert (native.place, python.place, elided.place) == ("fast.c:3 in fast.so", "/srv/app.py:3", "")
    assert [row.runtime for row in (native, python, evaluation, elided, start)] == [False, False, True, False, True]
    assert [row.cited for row in (native, python, evaluation, elided, start)] == [True, False, False, True, False]
    assert [row.open for row in (native, python, evaluation, elided, start)] == [False, True, False, False, False]
    assert [row.own for row in (native, python)] == [False, True] and "3" in elided.function


def test_facts_of_a_native_frame() -> None:
    (row,) = rows(page(NATIVE))
    facts = dict(row.facts)
    assert list(facts) == ["function", "source", "module", "pc", "found"]
    assert (facts["function"], facts["source"], facts["module"], facts["pc"]) == (
        "copy", "fast.c:3", "/srv/fast.so + 0x10", "0x0000000000001010",
    )  # fmt: skip
    assert row.values == (("size", "8", True), ("at", "0x0", False))
    (bare,) = rows(page(replace(NATIVE, function=None, offset=None, pc=None, line=None, trust=None)))
    assert bare.facts == (("source", "fast.c"), ("module", "/srv/fast.so"))


def test_facts_of_a_python_frame() -> None:
    """The arguments first, in their order. The file only where its place does not show it whole."""
    (row,) = rows(page(OWN))
    assert row.facts[0] == ("found by", "libpython") and "file" not in dict(row.facts)
    assert row.values == (("x", "1", True), ("y", "2", False))
    library = replace(OWN, file="/opt/py/lib/python3.11/site-packages/numpy/core/fromnumeric.py", origin=None, locals={})
    (row,) = rows(page(library))
    assert row.facts[0] == ("file", library.file) and not row.place.startswith("/opt")
    assert not row.open and not row.own and rows(page(replace(OWN, function=None)))[0].function == "(no name)"


def test_a_frame_without_values_is_folded() -> None:
    assert [row.open for row in rows(page(replace(OWN, locals={})))] == [False]


def test_of_other_threads_facts_are_shown_only_without_names() -> None:
    crash = Crash(
        threads=(
            Thread(tid=7, crashed=True, frames=(OWN,)),
            Thread(tid=8, frames=(NATIVE, replace(NATIVE, function=None), OWN)),
        )
    )
    made = Page(crash)
    named, nameless, python = [row for part in made.stack(crash.threads[1]).rows for row in part.first]
    assert named.facts == () and dict(nameless.facts)["module"] == "/srv/fast.so + 0x10"
    assert [str(line.code) for line in python.source] == ["return copy(x)"] and python.context == () and not python.open


def test_the_stacks_that_could_not_be_merged_have_rows_of_their_own() -> None:
    made = page(NATIVE, python_frames=(OWN,))
    assert made.thread is not None
    (part,) = made.stack(made.thread).python
    assert [(row.anchor, row.function) for row in part.first] == [("t0.p0", "load")]


# Deep stacks


def folded(*keys: str) -> tuple[Rows, ...]:
    made = page(*(NativeFrame(function=key, module="/srv/a.so") for key in keys))
    assert made.thread is not None
    return made.stack(made.thread).rows


def functions(part: Rows) -> list[str]:
    return [row.function for row in part.first]


def test_of_a_deep_stack_both_ends_are_shown() -> None:
    start, end = folded(*(f"f{number}" for number in range(2001)))
    assert functions(start) == [f"f{number}" for number in range(1000)] and start.left_out == 1
    assert functions(end) == [f"f{number}" for number in range(1001, 2001)] and end.left_out == 0
    (whole,) = folded(*(f"f{number}" for number in range(2000)))
    assert len(whole.first) == 2000 and whole.left_out == 0


@pytest.mark.parametrize(("rounds", "repeated"), [(4, 6), (201, 400), (202, 0)])
def test_of_a_cycle_the_first_round_is_shown_and_others_where_they_are_few(rounds: int, repeated: int) -> None:
    inner, cycle, outer = folded("inner", *("f", "g") * rounds, "outer")
    assert functions(inner) == ["inner"] and functions(outer) == ["outer"]
    assert (functions(cycle), cycle.rounds, len(cycle.repeated)) == (["f", "g"], rounds, repeated)
    assert [row.index for row in cycle.repeated[:2]] == ([3, 4] if repeated else [])


def test_a_cycle_is_shown_once_where_most_of_it_was_omitted() -> None:
    cycle = tuple(NativeFrame(function=key, module="/srv/a.so") for key in ("f", "g", "h"))
    frames = (*cycle * 30, ElidedFrames(count=50_000, cycle=("f", "g", "h")), *cycle[2:], *cycle * 3, START)
    made = page(*frames)
    assert made.thread is not None
    shown, outer = made.stack(made.thread).rows
    assert (functions(shown), shown.said) == (["f", "g", "h"], "the 3 frames above occur about 17,000 times in a row")
    assert len(shown.repeated) == len(frames) - 4 and functions(outer) == ["_start"]
    assert "The 3 frames above occur about 17,000 times in a row" in html.render(made.crash)


def test_the_frames_of_a_handler_that_raised_the_signal_again_are_folded() -> None:
    handler = tuple(NativeFrame(function=name) for name in ("raise", "faulthandler_fatal_error", "<signal handler called>"))
    made = page(*handler, NATIVE, OWN)
    assert made.thread is not None
    folded, shown = made.stack(made.thread).rows
    assert folded.first == () and [row.anchor for row in folded.repeated] == ["t0.0", "t0.1", "t0.2"]
    assert [row.anchor for row in shown.first] == ["t0.3", "t0.4"]
    assert "3 frames of the signal handler" in html.render(made.crash)
    assert [row.anchor for row in rows(page(handler[2], OWN))] == ["t0.0", "t0.1"], "a single one is shown"


def test_all_of_the_fix_is_offered_only_where_there_is_more() -> None:
    def shown(*fix: str) -> bool:
        return "all of it" in html.render(page(OWN, findings=(Finding(id="x", title="X", confidence="likely", fix=fix),)).crash)

    assert not shown("Check it.") and not shown()
    assert shown("Check it.", "Or do not.") and shown("cd build\nmake")


# Source


def test_source_around_the_users_own_line() -> None:
    """Two lines before and after it while it is folded, all of them in it."""
    (row,) = rows(page(OWN))
    assert [line.number for line in row.source] == [1, 2, 3, 4, 5] and [line.number for line in row.context] == [1, 2, 3, 4, 5, 6, 7]
    assert [line.number for line in row.source if line.current] == [line.number for line in row.context if line.current] == [3]


def test_of_other_code_only_its_line_is_seen_at_once() -> None:
    (row,) = rows(page(replace(OWN, file="/opt/py/lib/python3.11/json/decoder.py")))
    assert [(line.number, line.current) for line in row.source] == [(3, True)] and len(row.context) == 7
    (row,) = rows(page(replace(OWN, context=(), context_start=None)))
    assert [(line.number, line.current) for line in row.source] == [(3, True)] and row.context == ()
    (row,) = rows(page(replace(OWN, context=(), context_start=None, source=None)))
    assert row.source == ()


def marked(frame: PythonFrame) -> list[str]:
    (row,) = rows(page(frame))
    return [re.sub("</?span[^>]*>", "", str(line.code)) for line in row.source if "<mark>" in line.code]


@pytest.mark.parametrize(
    ("lines", "columns", "shown"),
    [
        (("def load(x):", "    return copy(x)"), (11, 18), "    return <mark>copy(x)</mark>"),
        (("\tif x:", "\t\treturn copy(x)"), (9, 16), "    return <mark>copy(x)</mark>"),
        (("    if x:", "        return copy(x)"), (15, 22), "    return <mark>copy(x)</mark>"),
        (("def load(x):", "    return a\x1bb + copy(x)"), (17, 24), "    return a\\x1bb + <mark>copy(x)</mark>"),
    ],
    ids=["plain", "tabs", "further to the left", "escaped"],
)
def test_the_running_expression_is_marked(lines: tuple[str, ...], columns: tuple[int, int], shown: str) -> None:
    """In the line as it is shown: without the indentation that all lines share, with spaces for tabs, control characters escaped."""
    frame = PythonFrame(
        function="load", file="/srv/app.py", line=5, columns=columns, source=lines[1].strip(), context=lines, context_start=4
    )
    assert marked(frame) == [shown]


def test_a_single_line_of_library_code_is_marked_too() -> None:
    frame = PythonFrame(file="/opt/py/lib/python3.11/json/x.py", line=5, columns=(2, 3), context=("  a + b",), context_start=5)
    assert marked(frame) == ["<mark>a</mark> + b"]


def test_the_source_of_a_gpu_kernel() -> None:
    """With colours where it is Python."""
    found = html._kernel_source
    kernel = GpuException(name="X", file="/srv/kernel.py", line=8, context=("    def f():", "        pass"), context_start=7)
    lines = found(kernel)
    assert [(line.number, line.current) for line in lines] == [(7, False), (8, True)]
    assert [str(line.code) for line in lines] == [str(line) for line in highlight(("def f():", "    pass"))] and "<span" in lines[0].code
    cuda = found(replace(kernel, file="/srv/kernel.cu", context=("if (a < b)",)))
    assert [str(line.code) for line in cuda] == ["if (a &lt; b)"] and found(replace(kernel, file=None))[0].code == "def f():"
    assert found(replace(kernel, context=())) == found(replace(kernel, context_start=None)) == ()


# Texts


@pytest.mark.parametrize(
    ("reference", "is_link"),
    [
        ("https://a.org/x?y=1", True),
        ("http://a.org", True),
        ("javascript:alert(1)", False),
        ("https://a.org/x y", False),
        ("https://a.org/\u202e", False),
        ("https://a.org/\n", False),
    ],
)
def test_what_is_a_link(reference: str, is_link: bool) -> None:
    assert html._is_link(reference) == is_link


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1536 << 10, "1.5 MiB"), (1 << 30, "1.0 GiB"),
        (1023 << 30, "1023.0 GiB"), (1 << 40, "1.0 TiB"), (1 << 50, "1024.0 TiB"),
    ],
)  # fmt: skip
def test_sizes(count: int, shown: str) -> None:
    assert html._size(count) == shown


def test_names_of_many_threads() -> None:
    threads = [Thread(tid=number) for number in range(62)]
    assert list(html._names(threads[:60])) == [*map(wording.thread_label, threads[:60])]
    assert list(html._names(threads))[60:] == ["and 2 more"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("call `f()` <now>", "call <code>f()</code> &lt;now&gt;"),
        ("`a` and `b`", "<code>a</code> and <code>b</code>"),
        ("one ` only", "one ` only"),
        ("", ""),
    ],
)
def test_code_in_prose(text: str, shown: str) -> None:
    assert str(html._prose(text)) == shown


@pytest.mark.parametrize("text", [render(Crash()), index.render(Index()).decode()], ids=["report", "index"])
def test_the_policy_allows_what_the_page_has_and_nothing_else(text: str) -> None:
    """By the hashes of its style and of its script (W3C Content Security Policy Level 3)."""
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    (style,), (script,) = re.findall(r"(?s)<style>(.*?)</style>", text), re.findall(r"(?s)<script>(.*?)</script>", text)
    assert html_unescape(policy).split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest(style)}'",
        f"script-src 'sha256-{digest(script)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
