"""A crash inside the garbage collector is told, and the Python line that set the collection off is not blamed."""

from __future__ import annotations

import pytest

from crashkit.model import NativeFrame, PythonFrame
from crashkit.naming.collector import in_collector, visited
from crashkit.pipeline import analyze
from crashkit.report import html, text, wording

from ..crashes import every_interpreter, needs_gdb, python_crash

LINE = PythonFrame(function="innocent", file="/srv/app.py", line=3)


@pytest.mark.parametrize(
    ("frames", "inside"),
    [
        (("visit_decref", "tupletraverse", "subtract_refs", "gc_collect_main"), True),
        (("signal_handler", "<signal handler called>", "dict_traverse", "deduce_unreachable"), True),
        (("_PyObject_GC_New", "PyTuple_New"), False),
        (("memcpy", "collect"), False),
        ((), False),
    ],
)
def test_by_the_functions_of_the_collector(frames: tuple[str, ...], inside: bool) -> None:
    assert in_collector([*(NativeFrame(function=name) for name in frames), LINE, NativeFrame(function="gc_collect_main")]) is inside


@pytest.mark.parametrize(
    ("frames", "container"),
    [
        (("visit_decref", "tupletraverse", "subtract_refs", "gc_collect_main"), "tuple"),
        (("Py_TYPE", "visit_decref", "list_traverse", "subtract_refs", "collect"), "list"),
        (("visit_reachable", "", "move_unreachable"), "object"),
        (("free", "list_dealloc", "delete_garbage", "gc_collect_main"), None),
        (("my_traverse", "main"), None),
        ((), None),
    ],
)
def test_what_the_collector_was_visiting(frames: tuple[str, ...], container: str | None) -> None:
    assert visited([*(NativeFrame(function=name or None) for name in frames), LINE, NativeFrame(function="subtract_refs")]) == container


@pytest.mark.slow
@needs_gdb
@pytest.mark.parametrize("python", every_interpreter(debuggable=True))
@pytest.mark.parametrize("how", ["traverse", "member"])
def test_the_line_that_set_it_off_is_not_blamed(how: str, python) -> None:
    crash = analyze(python_crash("collected.py", how, python=python).core)
    assert [finding.id for finding in crash.findings] == ["gc-corrupted-object"], "no pointer that nobody set"
    assert "during a garbage collection that happened to run in innocent" in wording.sentence(crash)
    assert "the garbage collector was running" in "\n".join(text.summary(crash, None, color=False, width=100))
    assert "The garbage collector was running" in html.render(crash)
    assert not [finding.summary for finding in crash.findings if "innocent" in (finding.summary or "")]


@pytest.mark.slow
@needs_gdb
@pytest.mark.parametrize("python", every_interpreter(debuggable=True))
def test_a_finalizer_that_fails_is(python) -> None:
    crash = analyze(python_crash("collected.py", "del", python=python).core)
    own = wording.own_at(crash.thread)
    assert own is not None and own.function == "__del__"
    assert "garbage" not in wording.sentence(crash)
