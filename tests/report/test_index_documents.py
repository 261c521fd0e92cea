"""Each format of the index, whole, of the same three crashes: its readers know its keys by name."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest

from crashkit import __version__
from crashkit.model import (
    Crash,
    Finding,
    Fingerprint,
    Gpu,
    GpuException,
    LaunchedFrom,
    NativeFrame,
    Process,
    PythonFrame,
    PythonRuntime,
    Signal,
    SoftError,
    Thread,
)
from crashkit.report.index import annotations, code_quality, html, junit, markdown, sarif, wording
from crashkit.report.index.document import Entry, Gone, Group, Index, Near, Past, Place
from crashkit.report.index.entry import entry

OWN = Place(file="/ci/app/io.py", path="app/io.py", line=7, function="decode", source="raw.unpack(x)", own=True)
LIBRARY = Place(file="/site-packages/numpy/core.py", function=None, line=3)
FIRST = Entry(
    number=1,
    report="crashes/0001/report.html",
    time="2026-11-21T22:00:00Z",
    evidence=("core.1", "a/b/log.txt"),
    test="tests/test_io.py::test_decode[x]",
    signal="SIGSEGV",
    what="Segmentation fault in decode",
    cause="Null pointer",
    finding="null-deref",
    confidence="likely",
    fix="Check the pointer.",
    pid=7,
    executable="/usr/bin/python3",
    python="3.11.7",
    native="memcpy",
    stack=(LIBRARY, OWN),
    fingerprint="abc",
    fingerprint_version=2,
)
SECOND = Entry(number=2, evidence=("core.2",), signal="SIGSEGV", what="Segmentation fault again", stack=(OWN,), test="tests/test_io.py::b")
THIRD = Entry(number=3, evidence=("x",), what="x could not be analyzed", failed="not a core")
INDEX = Index(
    time="2026-11-21T23:00:00Z",
    files=4,
    entries=(FIRST, SECOND, THIRD),
    groups=(
        Group(key="2:abc", crashes=(1, 2), before=1, near=(Near(group="failed:3", differs=("signal", "frame: a, not b", "c", "d")),)),
        Group(key="failed:3", crashes=(3,), before=0),
    ),
    gone=(Gone(key="z", what="Abort in run", before=2),),
    soft_errors=(SoftError(stage="find", message="core.9 cannot be read", hint="as root"),),
)


def test_sarif() -> None:
    frames = [
        {
            "location": {
                "logicalLocations": [{"fullyQualifiedName": "(no name)", "kind": "function"}],
                "message": {"text": "(no name) in numpy/core.py:3"},
            }
        },
        {
            "location": {
                "physicalLocation": {
                    "artifactLocation": {"uri": "app/io.py", "uriBaseId": "%SRCROOT%"},
                    "region": {"startLine": 7, "snippet": {"text": "raw.unpack(x)"}},
                },
                "logicalLocations": [{"fullyQualifiedName": "decode", "kind": "function"}],
            }
        },
    ]
    expected = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "crashkit", "version": __version__, "rules": [
                    _rule("null-deref", "Null pointer", "Check the pointer."),
                    _rule("crash", "The process ended: crash", "Open the report of the crash: index.html."),
                ]}},
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "toolExecutionNotifications": [{"level": "warning", "message": {"text": "core.9 cannot be read"}}],
                    }
                ],
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "The root of the repository."}}},
                "results": [
                    {
                        "ruleId": "null-deref",
                        "ruleIndex": 0,
                        "level": "error",
                        "message": {
                            "text": "Segmentation fault in decode Likely: Null pointer. "
                            "While running tests/test_io.py::test_decode[x], tests/test_io.py::b. 2 times in this run."
                        },
                        "partialFingerprints": {"crashkit/v2": "abc", "primaryLocationLineHash": "abc"},
                        "occurrenceCount": 2,
                        "locations": [frames[1]["location"]],
                        "stacks": [{"message": {"text": "The crashed thread, innermost first"}, "frames": frames}],
                        "baselineState": "unchanged",
                        "properties": {
                            "signal": "SIGSEGV",
                            "tests": ["tests/test_io.py::test_decode[x]", "tests/test_io.py::b"],
                            "reports": ["crashes/0001/report.html"],
                            "confidence": "likely",
                        },
                    },
                    {
                        "ruleId": "crash",
                        "ruleIndex": 1,
                        "level": "error",
                        "message": {"text": "x could not be analyzed"},
                        "partialFingerprints": {"crashkit/v0": "failed:3", "primaryLocationLineHash": "failed:3"},
                        "occurrenceCount": 1,
                        "locations": [
                            {
                                "physicalLocation": {
                                    "artifactLocation": {"uri": "no-file-of-this-repository", "uriBaseId": "%SRCROOT%"},
                                    "region": {"startLine": 1},
                                },
                                "logicalLocations": [{"fullyQualifiedName": "(no name)", "kind": "function"}],
                            }
                        ],
                        "baselineState": "new",
                        "properties": {},
                    },
                ],
            }
        ],
    }  # fmt: skip
    assert json.loads(sarif.render(INDEX)) == expected


def _rule(name: str, title: str, fix: str) -> dict[str, Any]:
    return {
        "id": name,
        "shortDescription": {"text": title},
        "fullDescription": {"text": title},
        "help": {"text": fix},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["crash"]},
    }


@pytest.mark.parametrize(
    ("test", "uri"),
    [
        ("tests/test_io.py::test_a", "tests/test_io.py"),
        ("tests/notes.txt::test_a", "no-file-of-this-repository"),
        ("/tests/test_io.py::test_a", "no-file-of-this-repository"),
        ("../test_io.py::test_a", "no-file-of-this-repository"),
    ],
)
def test_a_crash_without_a_line_stands_at_its_test(test: str, uri: str) -> None:
    index = Index(entries=(Entry(number=1, test=test, native="memcpy"),), groups=(Group(key="a", crashes=(1,)),))
    (result,) = json.loads(sarif.render(index))["runs"][0]["results"]
    (location,) = result["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == uri
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "memcpy" and "baselineState" not in result


def test_code_quality() -> None:
    """GitLab's documentation names these fields as required."""
    (issue,) = json.loads(code_quality.render(INDEX))
    assert issue == {
        "description": "Segmentation fault in decode Null pointer",
        "check_name": "null-deref",
        "fingerprint": "2:abc",
        "severity": "blocker",
        "location": {"path": "app/io.py", "lines": {"begin": 7}},
    }


def test_code_quality_of_a_crash_of_which_little_is_known() -> None:
    """The first line of the file, where none is known."""
    entry = Entry(number=1, stack=(Place(file="/a.py", path="a.py"),))
    (issue,) = json.loads(code_quality.render(Index(entries=(entry,), groups=(Group(key="a", crashes=(1,)),))))
    assert (issue["check_name"], issue["location"]) == ("crash", {"path": "a.py", "lines": {"begin": 1}})


def test_junit() -> None:
    (suite,) = ElementTree.fromstring(junit.render(INDEX))
    assert suite.attrib == {
        "package": "crashkit", "id": "0", "name": "crashkit", "timestamp": "2026-11-21T23:00:00", "hostname": "localhost", "time": "0",
        "tests": "3", "failures": "0", "errors": "3",
    }  # fmt: skip
    assert [child.tag for child in suite] == ["properties", "testcase", "testcase", "testcase", "system-out", "system-err"]
    first, second, third = suite.iter("testcase")
    assert first.attrib == {"classname": "tests.test_io", "name": "test_decode[x]", "time": "0"}
    assert third.attrib == {"classname": "crashkit.crash", "name": "x could not be analyzed #3", "time": "0"}
    assert [case[0].attrib for case in (first, second, third)] == [
        {"type": "SIGSEGV", "message": "Segmentation fault in decode"},
        {"type": "SIGSEGV", "message": "Segmentation fault again"},
        {"type": "crash", "message": "x could not be analyzed"},
    ]
    assert (first[0].text or "").splitlines() == [
        "Likely: Null pointer",
        "What to do: Check the pointer.",
        "  (no name)  numpy/core.py:3",
        "  decode  app/io.py:7",
        "Report: crashes/0001/report.html",
        "Evidence: core.1, a/b/log.txt",
    ]
    assert third[0].text == "not a core\nEvidence: x"
    assert ElementTree.fromstring(junit.render(Index()))[0].get("timestamp") == "1970-01-01T00:00:00"


def test_annotations() -> None:
    assert annotations.lines(INDEX) == [
        "::error file=app/io.py,line=7,title=SIGSEGV (2 times)%3A Null pointer::Segmentation fault in decode "
        "While running tests/test_io.py::test_decode[x], tests/test_io.py::b.",
        "::error title=Crash%3A x could not be analyzed::x could not be analyzed",
    ]
    nowhere = Entry(number=1, stack=(Place(file="/a.py", path="a.py"),))
    assert annotations.lines(Index(entries=(nowhere,), groups=(Group(key="a", crashes=(1,)),))) == [
        "::error file=a.py,title=Crash%3A (no name) (a.py)::Crash"
    ]


def test_markdown() -> None:
    assert markdown.render(INDEX).decode().splitlines() == [
        "## 3 crashes in 2 groups, 1 of them new",
        "",
        "| crashes | signal | where | cause | tests |",
        "|---:|---|---|---|---|",
        "| 2 (1 before) | SIGSEGV | decode (app/io.py:7) | Null pointer | "
        "tests/test\\_io.py::test\\_decode\\[x\\], tests/test\\_io.py::b |",
        "| 1 (new) |  |  |  |  |",
        "",
        "<details><summary>Segmentation fault in decode</summary>",
        "",
        "**Likely: Null pointer** (null-deref)",
        "",
        "What to do:",
        "",
        "Check the pointer.",
        "",
        "```",
        "(no name)  numpy/core.py:3",
        "decode  app/io.py:7",
        "```",
        "",
        "- Almost the same as “x could not be analyzed” (signal; frame: a, not b; c)",
        "- Evidence: core.1, a/b/log.txt, core.2",
        "- Fingerprint: abc",
        "",
        "</details>",
        "",
        "<details><summary>x could not be analyzed</summary>",
        "",
        "not a core",
        "",
        "- Evidence: x",
        "",
        "</details>",
        "",
        "No longer seen: Abort in run",
        "",
        "Left out:",
        "",
        "- core.9 cannot be read",
    ]


def test_only_as_many_problems_as_are_read() -> None:
    errors = tuple(SoftError(stage="find", message=f"no {number}") for number in range(11))
    rows = markdown.render(Index(soft_errors=errors)).decode().splitlines()
    assert rows[-2:] == ["- no 9", "- and 1 more"] and "more" not in markdown.render(Index(soft_errors=errors[:10])).decode()


def test_html() -> None:
    """Bars of the trend stand on the ground, one beside the other, and grow with the number."""
    group = Group(key="2:abc", crashes=(1, 2), past=Past(count=5, first_seen="2026-11-01T00:00:00Z", trend=(0, 1, 4), days=30))
    page = html.render(Index(entries=INDEX.entries[:2], groups=(group,))).decode()
    assert "Crashes in the last 30 days: 0, 1, 4" in page and 'viewBox="0 0 18 16"' in page
    bars = [f'<rect x="{x}" y="{16 - height}" width="4" height="{height}"' for x, height in ((0, 1), (6, 4), (12, 15))]
    assert "<span>python3</span>" in page
    assert page.count("<rect") == 3 and all(bar in page for bar in bars) and f'{bars[0]} class="none"/>' in page
    strange = Index(entries=(Entry(number=1, what="\udc80"),), groups=(Group(key="a", crashes=(1,)),))
    assert html.render(strange).decode().count("<article") == 1


# The facts of an entry, and their words


FRAMES = (
    NativeFrame(function="memcpy", module="/lib/libc.so.6"),
    PythonFrame(function="string_at", file="/usr/lib/python3.11/ctypes/__init__.py", line=519),
    PythonFrame(function="row", file="/srv/app.py", line=9, source="  ctypes.string_at(1)"),
)


def test_an_entry() -> None:
    crash = Crash(
        id="id-7",
        time="2026-11-21T22:00:00Z",
        process=Process(pid=7, executable="/usr/bin/python3.11"),
        python=PythonRuntime(version="3.11.7"),
        signal=Signal(number=11, name="SIGSEGV", detail="a null pointer was read"),
        threads=(Thread(tid=7, crashed=True, frames=FRAMES),),
        findings=(Finding(id="null-deref", title="Null pointer", confidence="likely", fix=("Look\nat it",)),),
        fingerprint=Fingerprint(version=2, hash="h", frames=tuple(f"frame {number}" for number in range(13))),
        soft_errors=(SoftError(stage="x", message="y"),),
    )
    assert entry(crash, 3, evidence=["core"], report="r", test="t", in_repository=lambda file, own: file[5:] if own else None) == Entry(
        number=3,
        report="r",
        id="id-7",
        time="2026-11-21T22:00:00Z",
        evidence=("core",),
        test="t",
        signal="SIGSEGV",
        what=entry(crash, 1).what,
        cause="Null pointer",
        finding="null-deref",
        confidence="likely",
        fix="Look",
        pid=7,
        executable="/usr/bin/python3.11",
        python="3.11.7",
        native="memcpy",
        stack=(
            Place(file="/usr/lib/python3.11/ctypes/__init__.py", line=519, function="string_at"),
            Place(file="/srv/app.py", line=9, function="row", source="ctypes.string_at(1)", own=True, path="app.py"),
        ),
        fingerprint="h",
        fingerprint_version=2,
        frames=tuple(f"frame {number}" for number in range(12)),
        missing=1,
    )
    assert entry(crash, 1).what.startswith("Segmentation fault")


def test_an_entry_of_which_nothing_is_known() -> None:
    assert entry(Crash(), 1) == Entry(number=1, what=entry(Crash(), 1).what)


def test_what_an_entry_calls_a_signal() -> None:
    """Of a GPU its exception, of a process that exited its status."""
    failed = Gpu(path="d", exceptions=(GpuException(name="WARP_ILLEGAL_ADDRESS"),))
    aborted = Signal(number=6, name="SIGABRT")
    assert entry(Crash(gpu=(failed,), signal=aborted), 1).signal == "WARP_ILLEGAL_ADDRESS"
    assert entry(Crash(gpu=(Gpu(path="d"),), signal=aborted), 1).signal == "SIGABRT"
    assert entry(Crash(process=Process(pid=1, exit_status=1)), 1).signal == "exit 1"
    assert entry(Crash(process=Process(pid=1, exit_status=0)), 1).signal == "exit 0"


def test_an_entry_of_a_gpu_stands_at_the_line_that_launched() -> None:
    failed = Gpu(path="d", exceptions=(GpuException(name="X"),), launched_from=LaunchedFrom(thread=8, frame=0))
    launching = Thread(tid=8, frames=(PythonFrame(function="step", file="/srv/train.py", line=3),))
    made = entry(Crash(gpu=(failed,), threads=(Thread(tid=7, crashed=True, frames=FRAMES), launching)), 1)
    assert [place.function for place in made.stack] == ["step"]


def test_texts_of_an_entry_are_cut() -> None:
    def native(length: int) -> str:
        frames = (NativeFrame(function="f" * length, module="/srv/a.so"),)
        return entry(Crash(threads=(Thread(tid=7, crashed=True, frames=frames),)), 1).native or ""

    assert native(400) == "f" * 400
    assert len(native(401)) <= 400 and native(401).endswith("…")


def test_only_the_first_frames_are_kept() -> None:
    frames = tuple(PythonFrame(function=f"f{number}", file="/srv/a.py", line=number) for number in range(30))
    assert len(entry(Crash(threads=(Thread(tid=7, crashed=True, frames=frames),)), 1).stack) == 24


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (Group(key="a", crashes=(1,)), ""),
        (Group(key="a", crashes=(1,), before=0), "new"),
        (Group(key="a", crashes=(1, 2), before=2), "as before"),
        (Group(key="a", crashes=(1, 2), before=1), "1 before"),
        (Group(key="a", crashes=(1,), before=2000), "2,000 before"),
        (Group(key="a", crashes=(1,), past=Past(count=0)), "new"),
        (Group(key="a", crashes=(1,), past=Past(count=1)), "1 before"),
        (Group(key="a", crashes=(1,), past=Past(count=1234, first_seen="2026-11-02T03:04:05Z")), "1,234 before, first 2026-11-02"),
        (Group(key="a", crashes=(1,), before=3, past=Past(count=1, first_seen="2026-11-02T03:04:05Z")), "3 before"),
    ],
)
def test_how_often_it_occurred_before(group: Group, words: str) -> None:
    assert wording.trend(group) == words


@pytest.mark.parametrize(
    ("stack", "native", "words"),
    [
        ((), None, ""),
        ((), "memcpy", "memcpy"),
        ((Place(file="/a/b/c.py", line=3, function="f"),), "memcpy", "f (/a/b/c.py:3)"),
        ((Place(file="/a/b/c.py", function="f"),), None, "f (/a/b/c.py)"),
        ((Place(file="/a/b/c.py"),), None, "(no name) (/a/b/c.py)"),
        ((Place(file="", function="f"),), None, "f"),
        ((Place(file=""),), None, ""),
        ((Place(file="/x.py", function="library"), Place(file="/own.py", function="mine", own=True)), None, "mine (/own.py)"),
        ((Place(file="/own.py", own=True), Place(file="/ci/r.py", path="r.py", function="ours")), None, "ours (r.py)"),
    ],
)
def test_where_a_crash_was(stack: tuple[Place, ...], native: str | None, words: str) -> None:
    assert wording.at(Entry(number=1, stack=stack, native=native)) == words


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], ""),
        (["a", None, "a", ""], "a"),
        (["a", "b", "c", "d"], "a, b, c, d"),
        (["a", "b", "c", "d", "e", "a"], "a, b, c, d and 1 more"),
    ],
)
def test_several_values(values: list[str | None], words: str) -> None:
    assert wording.several(values) == words
