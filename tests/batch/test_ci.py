"""`crashkit ci` on the artefacts of runs that failed for real."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from crashkit.batch.find import WRITTEN
from crashkit.batch.remote import local
from crashkit.errors import CrashkitError
from crashkit.report.index.document import Index, decode
from tests.batch.artefacts import Run, failed_run, pytest_crash
from tests.crashes import needs_gdb, python_crash
from tests.report.schemas import check_junit, check_sarif
from tests.test_drawing import on_terminal

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
DUMP = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f0000000001 (most recent call first):
  File "/srv/a.py", line 3 in f
"""


def ci(*arguments: str | Path, github: bool = False, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("GITHUB_ACTIONS", "COLUMNS")}
    environment["PYTHONPATH"] = str(ROOT)
    if github:
        environment["GITHUB_ACTIONS"] = "true"
    command = [sys.executable, "-m", "crashkit", "ci", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=folder)


def index_of(out: Path) -> Index:
    return decode((out / "index.json").read_bytes())


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, Path, subprocess.CompletedProcess[str]]:
    """The run, its repository, what was made of it, and what was printed."""
    folder = tmp_path_factory.mktemp("failed")
    tested = pytest_crash(folder)
    run = failed_run(folder, tested)
    shown = ci(run.path, "--out", folder / "out", "--repo", folder / "repository", github=True)
    assert shown.returncode == 0, shown.stderr
    return run, folder / "repository", folder / "out", shown


@needs_gdb
class TestFolderOfAFailedRun:
    def test_three_crashes_in_two_groups(self, done) -> None:
        index = index_of(done[2])
        assert [entry.failed for entry in index.entries] == [None] * 3
        assert [[entry.signal for entry in index.members(group)] for group in index.groups] == [["SIGSEGV"] * 2, ["SIGABRT"]]
        assert len({entry.python for entry in index.members(index.groups[0])}) == 2

    def test_each_log_is_with_its_core(self, done) -> None:
        run, _, out, _ = done
        assert {frozenset(entry.evidence) for entry in index_of(out).entries} == {
            frozenset(run.first),
            frozenset(run.second),
            frozenset(run.third),
        }

    def test_the_test_is_named(self, done) -> None:
        *_, out, _ = done
        (entry,) = [entry for entry in index_of(out).entries if entry.signal == "SIGABRT"]
        assert entry.test == "tests/test_parser.py::TestParser::test_parses"
        own = entry.own
        assert own is not None and (own.function, own.path, own.line) == ("parse", "tests/test_parser.py", 5)

    def test_what_was_left_out_is_told(self, done) -> None:
        run, _, out, shown = done
        said = [error.message for error in index_of(out).soft_errors]
        expected = ["pipe is a FIFO", "latest is a broken link to gone", "unreadable cannot be read", "job-1/core is empty"]
        assert all(any(f"{run.path}/{text}" in message for message in said) for text in expected), said
        assert all(f"crashkit: {message}" in shown.stderr for message in said)

    def test_reports_know_nothing_of_scratch_folders(self, done) -> None:
        run, _, out, _ = done
        for report in out.glob("crashes/*/report.json"):
            assert "crashkit-scratch-" not in report.read_text()
        archived = next(entry for entry in index_of(out).entries if "!" in entry.evidence[0])
        report = json.loads((out / (archived.report or "")).with_name("report.json").read_text())
        assert report["source"]["path"] == f"{run.path}/artifacts!upload/logs.zip!job-2/dump"

    def test_only_the_user_can_read_them(self, done) -> None:
        files = [path for path in done[2].rglob("*") if path.is_file()]
        assert len(files) == 6 + 2 * 3 and all(path.stat().st_mode & 0o077 == 0 for path in files)

    def test_annotations(self, done) -> None:
        lines = [line for line in done[3].stdout.splitlines() if line.startswith("::")]
        assert len(lines) == 2 and lines[1].startswith("::error file=tests/test_parser.py,line=5,title=SIGABRT")

    def test_code_quality(self, done) -> None:
        (issue,) = json.loads((done[2] / "gl-code-quality-report.json").read_text())
        assert issue["location"] == {"path": "tests/test_parser.py", "lines": {"begin": 5}}
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}

    def test_sarif(self, done) -> None:
        document = json.loads((done[2] / "crashes.sarif").read_text())
        (run,) = document["runs"]
        twice, once = run["results"]
        assert document["version"] == "2.1.0" and twice["occurrenceCount"] == 2
        nowhere, own = twice["locations"][0]["physicalLocation"], once["locations"][0]["physicalLocation"]
        assert nowhere["artifactLocation"]["uri"] == "no-file-of-this-repository" and nowhere["region"] == {"startLine": 1}
        assert own["artifactLocation"] == {"uri": "tests/test_parser.py", "uriBaseId": "%SRCROOT%"}
        assert all(run["tool"]["driver"]["rules"][one["ruleIndex"]]["id"] == one["ruleId"] for one in run["results"])
        assert [*once["partialFingerprints"]] == ["crashkit/v2", "primaryLocationLineHash"]

    def test_sarif_is_valid(self, done) -> None:
        check_sarif((done[2] / "crashes.sarif").read_bytes())

    def test_junit(self, done) -> None:
        suite = ElementTree.parse(done[2] / "junit.xml").getroot().find("testsuite")
        assert suite is not None and suite.get("errors") == suite.get("tests") == "3"
        assert [child.tag for child in suite] == ["properties", *["testcase"] * 3, "system-out", "system-err"]
        assert all(case.get("name") and case.get("classname") and case.find("error") is not None for case in suite.iter("testcase"))

    def test_junit_is_valid(self, done) -> None:
        check_junit((done[2] / "junit.xml").read_bytes())

    def test_summary(self, done) -> None:
        text = (done[2] / "summary.md").read_text()
        assert text.startswith("## 3 crashes in 2 groups\n\n| crashes |") and text.count("<details>") == text.count("</details>") == 2
        assert "(tests/test\\_parser.py:5)" in text

    def test_again_with_itself_as_baseline(self, done, tmp_path: Path) -> None:
        """Nothing is new; without one of the groups in the baseline, that one is; what is gone is said."""
        run, _, out, _ = done
        core, before = run.path / "models/blob", out / "index.json"
        same = ci(core, "--out", tmp_path, "--baseline", before, "--fail-on", "new", "--no-gdb")
        assert same.returncode == 0, same.stderr
        index = index_of(tmp_path)
        assert [group.new for group in index.groups] == [False] and len(index.gone) == 1
        missing = tmp_path / "other.json"
        missing.write_text('{"schema": "crashkit.index/1"}')
        new = ci(core, "--out", tmp_path, "--baseline", missing, "--fail-on", "new", "--no-gdb")
        assert new.returncode == 1 and "crashes found that are not in the baseline: 1" in new.stderr
        assert "1 crash, new" in new.stdout


def test_fail_on_crash(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f0000000001 (most recent call first):\n"
    )
    assert ci(tmp_path, "--out", tmp_path / "out", "--fail-on", "crash").returncode == 1
    assert ci(tmp_path, "--out", tmp_path / "out").returncode == 0
    # What was written is not found again, and all else in its folder is.
    assert len(index_of(tmp_path / "out").entries) == 1
    assert ci(tmp_path, "--out", tmp_path).returncode == ci(tmp_path, "--out", tmp_path).returncode == 0
    assert len(index_of(tmp_path).entries) == 1 and {path.name for path in tmp_path.iterdir()} == {"a.log", "out", *WRITTEN}


@pytest.mark.parametrize("columns", [30, 100])
def test_on_a_terminal(columns: int, tmp_path: Path) -> None:
    """Progress is drawn, and gone at the end; what stays fits, but for paths, which are copied."""
    (tmp_path / "a.log").write_text(DUMP)
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    for name in ("GITHUB_ACTIONS", "COLUMNS"):
        environment.pop(name, None)
    shown = on_terminal([sys.executable, "-m", "crashkit", "ci", "a.log", "--out", "out"], tmp_path, environment, columns)
    assert "\x1b[?25l" in shown and shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    rest = re.sub(r"\x1b\[[0-9;]*m", "", shown[shown.rindex("\x1b[2K") + 4 :])
    assert rest.startswith("1 crash\n1 x SIGSEGV  f (/srv/a.py:3)") and "\x1b" not in rest
    assert [row for row in rest.splitlines() if len(row.rstrip()) > columns and "/report" not in row] == []


def test_elsewhere_progress_is_lines(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(DUMP)
    shown = ci("a.log", "--out", "out", folder=tmp_path)
    assert shown.stderr == "looking for crashes …\nanalyzing 1 crash …\n" and "\x1b" not in shown.stdout
    assert (quiet := ci("a.log", "--out", "out", "-q", folder=tmp_path)).stdout == quiet.stderr == ""


def test_nothing(tmp_path: Path) -> None:
    (tmp_path / "build.log").write_text("all is well\n")
    shown = ci(tmp_path, "--out", tmp_path / "out", "--fail-on", "crash")
    assert shown.returncode == 0 and shown.stdout.startswith("No crashes in 1 file\n")
    assert json.loads((tmp_path / "out/crashes.sarif").read_text())["runs"][0]["results"] == []


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["{}/nowhere", "--out", "{}/out"], 1, "nothing to analyze: .*/nowhere does not exist"),
        (["{}", "--out", "{}/out", "--fail-on", "new"], 2, "--fail-on new needs --baseline"),
        (["{}", "--out", "{}/out", "--baseline", "{}/none.json"], 1, "cannot read the baseline"),
        (["{}", "--out", "{}/file"], 1, "cannot write to"),
        (["{}", "--out", "{}/out", "--path-map", "/srv={}/none"], 2, "'.*/none' does not exist"),
        (["{}", "--out", "{}/out", "--sysroot", "{}/none"], 2, "'.*/none' does not exist"),
        (["{}", "--out", "{}/out", "--search", "{}/none"], 2, "'.*/none' does not exist"),
    ],
)
def test_one_line_for_what_is_wrong(arguments: list[str], status: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shown = ci(*(argument.format(tmp_path) for argument in arguments))
    assert shown.returncode == status and re.search(words, shown.stderr), shown.stderr


def test_urls(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    crashed = python_crash("threads.py")
    shown = ci(f"file://{crashed.path}", "--out", tmp_path / "out", "--no-gdb")
    assert shown.returncode == 0, shown.stderr
    (entry,) = index_of(tmp_path / "out").entries
    assert {name.removeprefix(f"file://{crashed.path}") for name in entry.evidence} >= {"/core", "/stderr.txt"}


@pytest.mark.parametrize(
    ("url", "files"),
    [
        ("file://{}", {"run-1/a.log", "run-1/deep/b.log", "run-2/a.log", "run-2/c.zip"}),
        ("file://{}/run-1/a.log", None),
        ("file://{}/run-*", {"run-1/a.log", "run-1/deep/b.log", "run-2/a.log", "run-2/c.zip"}),
        ("file://{}/run-*/*.log", {"run-1/a.log", "run-2/a.log"}),
        ("file://{}/**/*.log", {"run-1/a.log", "run-1/deep/b.log", "run-2/a.log"}),
        ("zip://::file://{}/run-2/c.zip", {"x/a.log", "x/b.log", "y.log"}),
        ("zip://x/*.log::file://{}/run-2/c.zip", {"a.log", "b.log"}),
        ("zip://y.log::file://{}/run-2/c.zip", None),
        ("memory://bucket/run-7", {"a.log"}),
        ("memory://bucket/*/*.log", {"run-7/a.log"}),
    ],
)
def test_what_a_url_stands_for(url: str, files: set[str] | None, tmp_path: Path) -> None:
    """A folder, one file, or a pattern: each file under the path that tells it from the others."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    there = tmp_path / "artefacts"
    for name in ("run-1/a.log", "run-1/deep/b.log", "run-2/a.log"):
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_text(DUMP)
    with zipfile.ZipFile(there / "run-2" / "c.zip", "w") as archive:
        for name in ("x/a.log", "x/b.log", "y.log"):
            archive.writestr(name, DUMP)
    with fsspec.open("memory://bucket/run-7/a.log", "w") as file:
        file.write(DUMP)
    (tmp_path / "scratch").mkdir()
    ((path, shown),) = local([url.format(there)], tmp_path / "scratch")
    assert shown == url.format(there)
    if files is None:
        assert path.read_text() == DUMP
    else:
        assert {str(one.relative_to(path)) for one in path.rglob("*") if one.is_file()} == files


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense://x", "nonsense://x cannot be read"),
        ("file:///nowhere/x", "file:///nowhere/x does not exist"),
        ("file:///nowhere/*", "file:///nowhere/\\* does not exist"),
        ("memory://none", "memory://none does not exist"),
    ],
)
def test_a_url_that_cannot_be_read(url: str, words: str, tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    with pytest.raises(CrashkitError, match=words):
        local([url], tmp_path)
