"""The summaries of many crashes, with strings that try to leave their place in each format."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from crashkit.errors import EvidenceError
from crashkit.model import Crash, Finding, Fingerprint, NativeFrame, Process, PythonFrame, Signal, SoftError, Thread
from crashkit.report.index import annotations, code_quality, document, html, junit, markdown, sarif, wording
from crashkit.report.index.document import Entry, Gone, Group, Index, Near, Place
from crashkit.report.index.entry import entry

NASTY = "</script><img src=x onerror=alert(1)>\n::error::x\x1b[31m\u202e|`*_ \ud800 %0A ]]> & \x00"
PLACE = Place(file="/srv/app/ü x.py", path="app/ü x.py", line=3, function=NASTY, source=NASTY, own=True)
HOSTILE = Entry(
    number=1,
    report="crashes/0001/report.html",
    evidence=(NASTY,),
    test=f"tests/a.py::{NASTY.replace('::', '')}",
    signal="SIGSEGV",
    what=NASTY,
    cause=NASTY,
    finding="null-deref",
    confidence="certain",
    fix=NASTY,
    executable=NASTY,
    python=NASTY,
    stack=(PLACE, Place(file=NASTY, function=None, line=-1)),
    fingerprint="a",
    fingerprint_version=2,
)
INDEX = Index(
    time="2026-11-21T22:00:00Z",
    files=7,
    entries=(HOSTILE, Entry(number=2, evidence=("b",), what="b could not be analyzed", failed=NASTY)),
    groups=(
        Group(key="2:a", crashes=(1,), before=0, near=(Near(group="failed:2", differs=(NASTY,)), Near(group="gone", differs=("x",)))),
        Group(key="failed:2", crashes=(2,), before=1),
    ),
    gone=(Gone(key="x", what=NASTY, before=2),),
    soft_errors=(SoftError(stage="find", message=NASTY, hint=NASTY),),
)
EMPTY = Index(files=3)


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.attributes: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.attributes += [name for name, _ in attributes]


@pytest.mark.parametrize("index", [INDEX, EMPTY])
def test_html(index: Index) -> None:
    text = html.render(index).decode()
    tags = Tags(text)
    assert "img" not in tags.found and not [name for name in tags.attributes if name.startswith("on")]
    assert tags.found.count("script") == 1 and "\x1b" not in text and "\u202e" not in text


def test_html_links_groups_that_are_almost_equal() -> None:
    text = html.render(INDEX).decode()
    assert '<a href="#group1">' in text and 'href="crashes/0001/report.html"' in text and text.count("no report") == 1


@pytest.mark.parametrize("index", [INDEX, EMPTY])
def test_markdown(index: Index) -> None:
    text = markdown.render(index).decode()
    outside = re.sub(r"(?ms)^(`{3,})\n.*?^\1$", "", text)
    assert "<img" not in outside.replace("\\<", "") and "\x1b" not in text
    assert not [line for line in text.splitlines() if line.startswith("::")]
    rows = [line for line in outside.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 6 for row in rows)


def test_markdown_fits_into_a_comment() -> None:
    many = tuple(Entry(number=number, what=f"crash {number} " + "x" * 300, fingerprint=str(number)) for number in range(1, 2001))
    text = markdown.render(Index(entries=many, groups=tuple(Group(key=str(one.number), crashes=(one.number,)) for one in many))).decode()
    assert len(text) < 65_000 and text.startswith("## 2,000 crashes, all different") and re.search(r"more groups in index\.html\.", text)


def test_sarif() -> None:
    (run,) = json.loads(sarif.render(INDEX))["runs"]
    first, second = run["results"]
    assert first["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "app/%C3%BC%20x.py"
    assert "\x1b" not in json.dumps(run, ensure_ascii=False) and (first["baselineState"], second["baselineState"]) == ("new", "unchanged")
    assert "physicalLocation" not in first["stacks"][0]["frames"][1]["location"]
    assert json.loads(sarif.render(EMPTY))["runs"][0]["results"] == []


def test_junit() -> None:
    suite = ElementTree.fromstring(junit.render(INDEX)).find("testsuite")
    assert suite is not None and [case.get("classname") for case in suite.iter("testcase")] == ["tests.a", "crashkit.crash"]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("tests/test_io.py::TestMore::test_abort[a::b]", ("tests.test_io.TestMore", "test_abort[a::b]")),
        ("test_a.py::test_b", ("test_a", "test_b")),
        (None, ("crashkit.SIGSEGV", "crash #1")),
    ],
)
def test_names_of_test_cases(test: str | None, expected: tuple[str, str]) -> None:
    """As pytest's own JUnit file has them."""
    assert junit.names(Entry(number=1, test=test, signal="SIGSEGV", what="crash")) == expected


def test_annotations() -> None:
    """Each is one line, and nothing in it begins another command."""
    first, second = annotations.lines(INDEX)
    assert first.startswith("::error file=app/ü x.py,line=3,title=SIGSEGV%3A ") and "%250A" in first
    assert second.startswith("::error title=Crash") and not re.search(r"[\n\r\x1b]", first + second)
    assert first.split("::")[2].count(",line") == 0 and re.fullmatch(r"::error [^\n]*?::.*", first)


def test_code_quality() -> None:
    """Only what has a place in the repository: GitLab refuses others."""
    assert [issue["location"]["path"] for issue in json.loads(code_quality.render(INDEX))] == ["app/ü x.py"]


def test_json() -> None:
    plain = document.decode(document.encode(Index(entries=(Entry(number=1, stack=(PLACE.__class__(file="a"),)),))))
    assert plain.entries[0].stack[0].file == "a"
    for text in (b"", b"[]", b'{"schema": "crashkit.report/1"}', b'{"entries": 3}', b"\xff"):
        with pytest.raises(EvidenceError):
            document.decode(text)


@pytest.mark.parametrize(
    ("crashes", "groups", "before", "words"),
    [
        (0, 0, None, "No crashes in 9 files"),
        (1, 1, None, "1 crash"),
        (1, 1, 0, "1 crash, new"),
        (1, 1, 4, "1 crash, not new"),
        (3, 1, None, "3 crashes in 1 group"),
        (3, 3, None, "3 crashes, all different"),
        (3, 2, 0, "3 crashes in 2 groups, 2 of them new"),
        (3, 2, 1, "3 crashes in 2 groups, none of them new"),
    ],
)
def test_counts(crashes: int, groups: int, before: int | None, words: str) -> None:
    entries = tuple(Entry(number=number) for number in range(crashes))
    made = tuple(Group(key=str(number), crashes=(number,), before=before) for number in range(groups))
    assert wording.counts(Index(files=9, entries=entries, groups=made)) == words


def test_an_entry_says_what_the_report_says() -> None:
    frames = (
        NativeFrame(function="memcpy", module="/lib/libc.so.6"),
        PythonFrame(function="string_at", file="/usr/lib/python3.11/ctypes/__init__.py", line=519),
        PythonFrame(function="row", file="/srv/app.py", line=9, source="  ctypes.string_at(1)"),
    )
    crash = Crash(
        id="x",
        process=Process(pid=7, executable="/usr/bin/python3.11"),
        signal=Signal(number=11, name="SIGSEGV"),
        threads=(Thread(tid=7, crashed=True, frames=frames),),
        findings=(Finding(id="null-deref", title="Null pointer", confidence="likely", fix=("Look\nat it",)),),
        fingerprint=Fingerprint(version=2, hash="h", frames=("a", "b")),
    )
    made = entry(crash, 3, evidence=("core",), report="r", test="t", in_repository=lambda file, own: file[5:] if own else None)
    assert (made.number, made.signal, made.cause, made.fix, made.native) == (3, "SIGSEGV", "Null pointer", "Look", "memcpy")
    assert made.own == Place(file="/srv/app.py", line=9, function="row", source="ctypes.string_at(1)", own=True, path="app.py")
