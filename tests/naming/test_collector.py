"""A crash inside the garbage collector is told, and the Python line that set the collection off is not blamed."""

from __future__ import annotations

import pytest

from crashkit.model import NativeFrame, PythonFrame, Thread
from crashkit.naming.collector import in_collector, visited
from crashkit.pipeline import Options, analyze
from crashkit.report import html, text, wording

from ..crashes import every_interpreter, needs_gdb, python_crash

LINE = PythonFrame(function="innocent", file="/srv/app.py", line=3)


@pytest.mark.parametrize(
    ("frames", "inside"),
    [
        (("visit_decref", "tupletraverse", "subtract_refs", "gc_collect_main"), True),
        (("signal_handler", "<signal handler called>", "dict_traverse", "deduce_unreachable"), True),
        (("_PyObject_GC_New", "PyTuple_New"), False),
        (("_PyObject_GC_Link", "PyTuple_New"), False),
        (("gc_collect_generations", "_PyObject_GC_Link", "PyTuple_New"), True),
        (("_PyObject_GC_UNTRACK", "func_dealloc", "Py_DECREF"), False),
        (("_PyObject_GC_TRACK", "PyDict_New"), False),
        (("PyObject_GC_UnTrack", "subtype_dealloc"), False),
        (("memcpy", "collect"), False),
        ((), False),
    ],
)
def test_by_the_functions_of_the_collector(frames: tuple[str, ...], inside: bool) -> None:
    stack = (*(NativeFrame(function=name) for name in frames), LINE, NativeFrame(function="gc_collect_main"))
    assert in_collector(Thread(frames=stack)) is inside


@pytest.mark.parametrize(
    ("natives", "line", "collecting", "inside"),
    [
        (("", ""), LINE, True, True),
        (("memcpy", ""), LINE, True, True),
        ((), LINE, True, True),
        (("",), LINE, False, False),
        (("",), LINE, None, False),
        (("memcpy", "string_at"), LINE, True, False),
        (("",), PythonFrame(function="__del__", file="/srv/app.py", line=9), True, False),
    ],
)
def test_by_the_interpreters_record_where_names_are_missing(
    natives: tuple[str, ...], line: PythonFrame, collecting: bool | None, inside: bool
) -> None:
    stack = (*(NativeFrame(function=name or None) for name in natives), line)
    assert in_collector(Thread(frames=stack, collecting=collecting)) is inside


@pytest.mark.slow
@pytest.mark.parametrize("python", every_interpreter())
def test_the_record_is_read_from_the_core(python) -> None:
    crash = analyze(python_crash("collected.py", "member", python=python).core, options=Options(gdb=None))
    assert crash.thread and crash.thread.collecting is (True if python.version >= (3, 7) else None)
    other = analyze(python_crash("threads.py", python=python).core, options=Options(gdb=None))
    assert other.thread and other.thread.collecting is (False if python.version >= (3, 7) else None)


def test_the_record_is_read_from_a_log(tmp_path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text(
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f0000000002 (most recent call first):\n"
        '  Garbage-collecting\n  File "/srv/app.py", line 9 in parse\n'
    )
    crash = analyze(log)
    assert [(finding.id, finding.confidence) for finding in crash.findings] == [("gc-corrupted-object", "possible")]
    assert "garbage collection that happened to run in parse" in wording.sentence(crash)


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
@pytest.mark.parametrize("python", every_interpreter())
@pytest.mark.parametrize("how", ["traverse", "member"])
def test_the_line_that_set_it_off_is_not_blamed(how: str, python) -> None:
    crash = analyze(python_crash("collected.py", how, python=python).core)
    found = [finding.id for finding in crash.findings]
    # The list is a module's variable, and what has no object in it is told first.
    assert found == (["object-overwritten", "gc-corrupted-object"] if how == "member" else ["gc-corrupted-object"])
    assert "during a garbage collection that happened to run in innocent" in wording.sentence(crash)
    assert "the garbage collector was running" in "\n".join(text.summary(crash, None, color=False, width=100))
    assert "The garbage collector was running" in html.render(crash)
    assert not [finding.summary for finding in crash.findings if "innocent" in (finding.summary or "")]


@pytest.mark.slow
@needs_gdb
@pytest.mark.parametrize("python", every_interpreter())
def test_a_finalizer_that_fails_is(python) -> None:
    crash = analyze(python_crash("collected.py", "del", python=python).core)
    own = wording.own_at(crash.thread)
    assert own is not None and own.function == "__del__"
    assert "garbage" not in wording.sentence(crash)
