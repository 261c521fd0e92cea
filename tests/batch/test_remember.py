"""`crashkit ci --index`: every crash of the run is in the history, and the index says what was known of it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from crashkit.batch.job import Job, Recording, Task
from crashkit.batch.one import failed
from crashkit.crashfolder.bundle import SCHEMA as BUNDLE_SCHEMA
from crashkit.crashfolder.bundle import BundleManifest, Member, write_bundle
from crashkit.crashfolder.manifest import SCHEMA
from crashkit.history.place import run_of
from crashkit.pipeline import Options
from crashkit.report.index.document import Index, decode

pytest.importorskip("sqlalchemy", reason="needs SQLAlchemy (pip install sqlalchemy alembic)")

ROOT = Path(__file__).parent.parent.parent
DUMP = 'Fatal Python error: {}\n\nCurrent thread 0x{:016x} (most recent call first):\n  File "/srv/app.py", line 3 in {}\n\n'
GITHUB = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "o/r", "GITHUB_JOB": "tests"}


def ci(folder: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """In a folder, whose history it writes, outside of any CI but the one that is named."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment = {**kept, "PYTHONPATH": str(ROOT), "CRASHKIT_HOME": str(folder / "home"), "CRASHKIT_INDEX": "history.sqlite", **variables}
    command = [sys.executable, "-m", "crashkit", "ci", "--jobs", "1", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=folder)


def groups(folder: Path) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "crashkit", "groups", "--json", "--index", "history.sqlite"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def index_of(folder: Path) -> Index:
    return decode((folder / "out" / "index.json").read_bytes())


def crashed(folder: Path, *functions: str, name: str = "a.log") -> None:
    (folder / "run").mkdir(exist_ok=True)
    base = 0x7F1000000740 + (len(list((folder / "run").iterdir())) << 20)
    dumps = (DUMP.format("Segmentation fault", base + number * 4096, function) for number, function in enumerate(functions))
    (folder / "run" / name).write_text("".join(dumps))


def attempt(run: int, number: int = 1) -> dict[str, str]:
    return {**GITHUB, "GITHUB_RUN_ID": str(run), "GITHUB_RUN_ATTEMPT": str(number)}


@pytest.mark.slow
def test_what_was_never_seen_is_new(tmp_path: Path) -> None:
    """A run's own crashes are no past of it, also if a job of it is tried again, or its artefacts are analyzed once more."""
    crashed(tmp_path, "first", "second")
    for number in (1, 1, 2):
        first = ci(tmp_path, "run", "--out", "out", "--fail-on", "new", **attempt(17, number))
        assert first.returncode == 1 and "crashes found that are not in the history" in first.stderr, first.stderr
        assert all(group.new for group in index_of(tmp_path).groups)
    crashed(tmp_path, "first", "third")
    later = ci(tmp_path, "run", "--out", "out", "--fail-on", "new", **attempt(170))
    assert later.returncode == 1 and "not in the history: 1" in later.stderr
    new, known = index_of(tmp_path).groups
    assert (new.new, known.new) == (True, False) and index_of(tmp_path).members(known)[0].stack[0].function == "first"
    # Twice: the second attempt ran on its own.
    assert known.past is not None and known.past.count == 2 and sum(known.past.trend) == 3 and known.past.first_seen
    assert "1 of them new" in later.stdout and "(2 before, first 20" in later.stdout


@pytest.mark.slow
def test_all_crashes_of_a_run_are_recorded(tmp_path: Path) -> None:
    crashed(tmp_path, "first", "second")
    crashed(tmp_path, "first", name="b.log")
    assert ci(tmp_path, "run", "--out", "out", **attempt(5)).returncode == 0
    assert [group["count"] for group in groups(tmp_path)] == [2, 1]
    command = [sys.executable, "-m", "crashkit", "groups", "--json", "--index", "history.sqlite", str(groups(tmp_path)[0]["key"])]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    places = [one["place"] for one in json.loads(shown.stdout)]
    assert all(re.fullmatch(r"https://github\.com/o/r/actions/runs/5/attempts/1#tests/000\d run/[ab]\.log", place) for place in places)


@pytest.mark.slow
def test_a_crash_that_cannot_be_analyzed_is_recorded(tmp_path: Path) -> None:
    """Here a bundle whose upload was cut off. A later one of which as little is known is not new."""
    (tmp_path / "run").mkdir()
    with tarfile.open(tmp_path / "run" / "a.tar", "w") as bundle:
        manifest = b'{"schema": "crashkit.bundle/1"}'
        info = tarfile.TarInfo("bundle.json")
        info.size = len(manifest)
        bundle.addfile(info, io.BytesIO(manifest))
    shown = ci(tmp_path, "run", "--out", "out", "--fail-on", "new", **attempt(1))
    assert shown.returncode == 1 and "run/a.tar contains no evidence" in shown.stdout, shown.stdout + shown.stderr
    assert [(group["count"], str(group["key"])[:2]) for group in groups(tmp_path)] == [(1, "0-")]
    assert ci(tmp_path, "run", "--out", "out", "--fail-on", "new", **attempt(2)).returncode == 0
    assert [group["count"] for group in groups(tmp_path)] == [2]


@pytest.mark.slow
def test_a_run_without_crashes_needs_no_history(tmp_path: Path) -> None:
    """The first one, too, which finds none."""
    (tmp_path / "run").mkdir()
    done = ci(tmp_path, "run", "--out", "out", "--fail-on", "new")
    assert done.returncode == 0 and "history" not in done.stderr and not (tmp_path / "history.sqlite").exists()


@pytest.mark.slow
def test_the_page_draws_trends(tmp_path: Path) -> None:
    crashed(tmp_path, "first")
    ci(tmp_path, "run", "--out", "out")
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count('<svg class="spark"') == 1 and page.count("<rect ") == 12 and page.count('<rect class="none"') == 0
    assert "compared with the history" in page
    ci(tmp_path, "run", "--out", "out", CRASHKIT_INDEX="none")
    assert "<svg class=" not in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.slow
def test_a_history_that_is_away_costs_no_report(tmp_path: Path) -> None:
    """It is said, the crashes wait, and nothing is called new that may be known."""
    crashed(tmp_path, "first")
    (tmp_path / "history.sqlite").write_text("this is no database, and must not become one")
    done = ci(tmp_path, "run", "--out", "out")
    assert done.returncode == 0 and "the crashes are not in the history yet" in done.stderr
    assert [group.past for group in index_of(tmp_path).groups] == [None]
    assert ci(tmp_path, "run", "--out", "out", "--fail-on", "new").returncode == 1
    (tmp_path / "history.sqlite").unlink()
    # Not under the name of the other: neither has an id, and the same place is the same crash.
    crashed(tmp_path, "other", name="b.log")
    (tmp_path / "run" / "a.log").unlink()
    assert ci(tmp_path, "run", "--out", "out").returncode == 0
    assert len(groups(tmp_path)) == 2


@pytest.mark.slow
def test_a_baseline_counts_more_than_the_history(tmp_path: Path) -> None:
    crashed(tmp_path, "first")
    ci(tmp_path, "run", "--out", "out", **attempt(1))
    (tmp_path / "none.json").write_text('{"schema": "crashkit.index/1"}')
    done = ci(tmp_path, "run", "--out", "out", "--baseline", "none.json", "--fail-on", "new", **attempt(2))
    assert done.returncode == 1
    (group,) = index_of(tmp_path).groups
    assert group.new and group.past is not None and group.past.count == 1


@pytest.mark.parametrize(
    ("variables", "address", "place"),
    [
        (attempt(7), "https://github.com/o/r/actions/runs/7", "https://github.com/o/r/actions/runs/7/attempts/1#tests"),
        ({"CI_PIPELINE_URL": "https://gitlab/p/1", "CI_JOB_ID": "9"}, "https://gitlab/p/1", "https://gitlab/p/1#9"),
        ({"BUILD_URL": "https://jenkins/job/a/3/"}, "https://jenkins/job/a/3", "https://jenkins/job/a/3#"),
        ({"CI_PIPELINE_URL": "https://gitlab/p/1"}, "https://gitlab/p/1", "https://gitlab/p/1#"),
    ],
)
def test_the_run_of_a_ci_job(variables: dict[str, str], address: str, place: str) -> None:
    assert run_of(variables) == (address, place)
    # All its places lie in it, which `crashkit.history.query.past` relies on.
    assert place.startswith((f"{address}/", f"{address}#"))


def test_outside_of_ci_there_is_no_run() -> None:
    assert run_of({"GITHUB_RUN_ID": "7", "CI_PIPELINE_URL": ""}) is None


def test_a_bundle_of_a_recorded_crash_is_the_same_one(tmp_path: Path) -> None:
    """Its number in the history is in the manifest of the crash folder, which is in the bundle."""
    manifest = {"schema": SCHEMA, "record": "5" * 32, "signal_name": "SIGSEGV"}
    member = Member("evidence/manifest.json", "manifest", json.dumps(manifest).encode(), 0.0, masked=True)
    write_bundle(tmp_path / "a.tar.zst", [member], BundleManifest(schema=BUNDLE_SCHEMA, crashkit="0", id="a", warning=""))
    job = Job(number=1, paths=(tmp_path / "a.tar.zst",), shown=("a.tar.zst",))
    done = failed(job, Task(options=Options(), out=tmp_path, recording=Recording(place="", host="h")), "why")
    assert done.recorded is not None and done.recorded.key == "5" * 32
