"""The tests that were running, as xdist, pytest and JUnit files name them."""

from __future__ import annotations

import pytest

from crashkit.batch.artefact import NodeId
from crashkit.batch.nodes import may_name, of_crash, of_junit, of_lines
from crashkit.model import Crash, PythonFrame, Thread

# pytest 9.2 with pytest-xdist 3.8; the last one as the short summary is cut.
XDIST = """\
[gw1] node down: Not properly terminated
worker 'gw1' crashed while running 'tests/test_io.py::test_reads[16]'
worker 'gw0' crashed while running 'tests/test_io.py::TestMore::test_abort'
FAILED tests/test_io.py::test_reads[16] - worker 'gw1' crashed while running ...
"""
# pytest-xdist 1.34.
OLD = "worker gw3 crashed while running tests/test_a.py::test_b\n"
VERBOSE = "tests/test_parser.py::TestParser::test_parses Fatal Python error: Aborted\n"

JUNIT = """\
<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest" errors="1" tests="3">
<testcase classname="tests.test_io" name="test_fine" time="0.001" />
<testcase classname="tests.test_io" name="test_wrong"><failure message="assert 1 == 2">E assert 1 == 2</failure></testcase>
<testcase classname="tests.test_io.TestMore" name="test_abort"><error message="worker 'gw3' crashed while running
&apos;tests/test_io.py::TestMore::test_abort&apos;">Fatal Python error: Aborted</error></testcase>
<testcase classname="a.test_c" file="sub/a/test_c.py" name="test_d[1]"><failure message="exit -11">Segmentation fault</failure></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (XDIST, ["tests/test_io.py::test_reads[16]", "tests/test_io.py::TestMore::test_abort"]),
        (OLD, ["tests/test_a.py::test_b"]),
        (VERBOSE, ["tests/test_parser.py::TestParser::test_parses"]),
        ("tests/test_parser.py .Fatal Python error: Aborted\n", []),
    ],
)
def test_lines(text: str, names: list[str]) -> None:
    assert [node.name for node in of_lines(text.splitlines(), "log")] == names
    told = [line for line in text.encode().splitlines() if may_name(line)]
    assert [node.name for node in of_lines([line.decode() for line in told], "log")] == names


def test_worker() -> None:
    assert [node.worker for node in of_lines(XDIST.splitlines(), "log")] == ["gw1", "gw0"]


def test_junit() -> None:
    found, said = of_junit(JUNIT.encode(), "junit.xml")
    assert [node.name for node in found] == ["tests/test_io.py::TestMore::test_abort", "sub/a/test_c.py::test_d[1]"]
    assert "Fatal Python error: Aborted" in said and "assert 1 == 2" not in said


@pytest.mark.parametrize("document", ["<testsuite", '<!DOCTYPE a [<!ENTITY b "c">]><testsuite/>', "no xml"])
def test_no_junit(document: str) -> None:
    with pytest.raises(ValueError):
        of_junit(document.encode(), "junit.xml")


def crash(*frames: PythonFrame) -> Crash:
    return Crash(threads=(Thread(tid=1, crashed=True, frames=frames),))


def nodes(*names: str) -> list[NodeId]:
    return [NodeId(name, "log") for name in names]


HELPER = PythonFrame(function="helper", file="/w/tests/test_io.py", line=4)
PYTEST = PythonFrame(function="pytest_pyfunc_call", file="/v/_pytest/python.py", line=187)
BOTH = nodes("tests/test_io.py::test_reads[16]", "tests/test_io.py::test_reads[32]", "tests/test_io.py::test_abort")


def reads(**values: str) -> PythonFrame:
    return PythonFrame(function="test_reads", file="/w/tests/test_io.py", line=8, locals=values)


@pytest.mark.parametrize(
    ("found", "known", "expected"),
    [
        (
            crash(HELPER, reads(), PYTEST),
            nodes("tests/test_io.py::test_reads", "tests/test_io.py::test_abort"),
            "tests/test_io.py::test_reads",
        ),
        # Two parameters: only the value tells which.
        (crash(HELPER, reads(), PYTEST), BOTH, "tests/test_io.py::test_reads"),
        (crash(HELPER, reads(size="32"), PYTEST), BOTH, "tests/test_io.py::test_reads[32]"),
        # Another file's test of that name.
        (crash(HELPER, reads()), nodes("tests/test_more.py::test_reads"), None),
        # No text names it: the stack does.
        (crash(HELPER, reads(), PYTEST), [], "test_io.py::test_reads"),
        (crash(HELPER), BOTH, None),
        (Crash(), BOTH, None),
    ],
)
def test_of_crash(found: Crash, known: list[NodeId], expected: str | None) -> None:
    assert of_crash(found, known) == expected
