"""The commands that write and show the history, as users run them, on real crashes."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from crashkit.collect import keep
from crashkit.crashfolder.manifest import SCHEMA, Manifest
from crashkit.crashfolder.store import Store
from crashkit.history import index, release
from crashkit.history.record import record
from crashkit.history.spool import waiting_anywhere
from crashkit.report import safe
from tests.collect.conftest import SEGFAULT, Crashkit, crashkit  # noqa: F401 (a fixture)
from tests.history.conftest import entry, needs_git
from tests.postgres import Server
from tests.test_drawing import CONTROL, HOSTILE, on_terminal, piped

PASSWORD = "hunter2-Zk3Qx9"
DUMP = """Fatal Python error: Segmentation fault

Current thread 0x00007f0000000001 (most recent call first):
  File "/srv/app.py", line 10 in infer
"""


def groups(runner: Crashkit, *arguments: object) -> list[dict[str, Any]]:
    done = runner("groups", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture
def runner(tmp_path: Path) -> Crashkit:
    """The command line without real crashes."""
    made = Crashkit(tmp_path)
    made.home.mkdir(mode=0o700)
    (made.cwd / "dump.log").write_text(DUMP)
    return made


@pytest.mark.slow
def test_crashes_of_runs_are_recorded_in_groups(crashkit: Crashkit) -> None:  # noqa: F811
    crashkit.environment.update(DATABASE_PASSWORD=PASSWORD, CRASHKIT_RELEASE="v1")
    code = f"import ctypes, os\ndef f(password): ctypes.string_at(0)\nf({PASSWORD!r})"
    for _ in range(2):
        assert "died of SIGSEGV" in crashkit.python(code, options=()).stderr
    crashkit.environment.update(CRASHKIT_RELEASE="v2")
    crashkit.python("import os\ndef g(): os.abort()\ng()", options=())
    segfaults, aborts = groups(crashkit)
    assert (segfaults["count"], segfaults["where"], segfaults["first_release"]) == (2, "f (<string>:2)", "v1")
    assert (aborts["count"], aborts["signal"], aborts["first_release"]) == (1, "SIGABRT", "v2")
    assert [group["signal"] for group in groups(crashkit, "--since", "v2")] == ["SIGABRT"]
    occurrences = groups(crashkit, segfaults["key"][:6])
    assert [crash["id"] for crash in occurrences] == [crash["id"] for crash in reversed(crashkit.crashes()[:2])]
    assert PASSWORD.encode() not in (crashkit.home / "history.sqlite").read_bytes()
    assert (crashkit.home / "history.sqlite").stat().st_mode & 0o777 == 0o600

    rows = crashkit("list").stdout.splitlines()
    assert [row.split()[1] for row in rows] == ["N", "1", "2"] and "f (<string>:2)" in rows[2] and "pointer dereference" in rows[2]
    assert len(crashkit("list", "--all").stdout.splitlines()) == 4
    assert [row.split()[0] for row in crashkit("list", "--group", segfaults["key"]).stdout.splitlines()[1:]] == [
        crash["id"] for crash in occurrences
    ]
    for columns, shown in ((80, {"WHERE", "CAUSE"}), (300, {"WHERE", "CAUSE", "SIZE", "CORE", "REPORT", "COMMAND"})):
        head = on_terminal(
            crashkit.argv("list"), crashkit.cwd, {**crashkit.environment, "NO_COLOR": "1", "COLUMNS": ""}, columns
        ).splitlines()[0]
        assert set(head.split()) - {"ID", "N", "AGE", "SIGNAL"} == shown
    crashkit("rm", "--all")
    assert len(groups(crashkit)) == 2, "the history outlives the store"


@pytest.mark.slow
def test_a_crash_that_is_analyzed_later_is_the_same_one(crashkit: Crashkit, tmp_path: Path) -> None:  # noqa: F811
    """Recorded when it happens, completed by `analyze` and by `ci`, wherever its folder is then; the release is that of the crash."""
    crashkit.environment.update(CRASHKIT_RELEASE="v1")
    code = "import ctypes\ndef f(): ctypes.string_at(0)\nf()"
    for _ in range(2):
        crashkit.python(code)
    crashkit.python("import os\nos.abort()")
    crashkit.environment.update(CRASHKIT_RELEASE="")
    assert "2 more will be recorded" not in crashkit("doctor").stdout and "3 more will be recorded" in crashkit("doctor").stdout
    assert [(group["count"], group["signal"], group["key"][:2]) for group in groups(crashkit)] == [
        (2, "SIGSEGV", "0-"),
        (1, "SIGABRT", "0-"),
    ]
    first = crashkit.home / crashkit.crashes()[0]["id"]
    assert crashkit("analyze", first, "--out", first, "--no-gdb").returncode == 0
    found = {(group["key"][:2], group["signal"]): group for group in groups(crashkit)}
    assert {key: group["count"] for key, group in found.items()} == {("2-", "SIGSEGV"): 1, ("0-", "SIGSEGV"): 1, ("0-", "SIGABRT"): 1}
    assert found["2-", "SIGSEGV"]["first_release"] == "v1" and found["2-", "SIGSEGV"]["where"] == "f (<string>:2)"
    elsewhere = tmp_path / "artefacts"
    shutil.copytree(crashkit.home, elsewhere)
    ci = crashkit("ci", elsewhere, "--out", tmp_path / "out", "--no-gdb", "--index", crashkit.home / "history.sqlite")
    assert ci.returncode == 0, ci.stderr
    assert [(group["count"], group["key"][:2], group["first_release"]) for group in groups(crashkit)] == [(2, "2-", "v1"), (1, "2-", "v1")]


@pytest.mark.slow
def test_a_shared_history_gets_what_is_not_analyzed_at_once(crashkit: Crashkit, tmp_path: Path) -> None:  # noqa: F811
    """The machine of a CI job is gone before anybody asks its store."""
    crashkit.python(SEGFAULT, options=("--no-analyze", "--index", tmp_path / "team.sqlite"))
    assert waiting_anywhere(crashkit.home) == 0
    crashkit.environment["CRASHKIT_HOME"] = str(tmp_path / "another")
    assert [group["count"] for group in groups(crashkit, "--index", tmp_path / "team.sqlite")] == [1]


@needs_git
@pytest.mark.slow
def test_a_crash_whose_analysis_fails_is_recorded_too(runner: Crashkit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep, "analyse", lambda *_: False)
    store = Store(runner.home)
    work = store.begin("crash")
    for words in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=b@c", "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *words], cwd=runner.cwd, check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=runner.cwd, capture_output=True, text=True, check=True).stdout.strip()
    for name in (*release.VARIABLES, "CRASHKIT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    manifest: Manifest = {"schema": SCHEMA, "time": "2026-01-01T00:00:00Z", "pid": 7, "signal_name": "SIGSEGV", "cwd": str(runner.cwd)}
    manifest["analysis"] = "pending"
    keep.publish(work, manifest, store, 1767225600.0)
    assert not keep.analyse_once(work, manifest) and manifest["analysis"] == "failed"
    assert waiting_anywhere(store.path) == 1
    (group,) = groups(runner)
    assert group["key"].startswith("0-") and (group["signal"], group["first_seen"]) == ("SIGSEGV", 1767225600.0)
    assert group["first_release"] == commit
    assert waiting_anywhere(store.path) == 0


@pytest.mark.slow
def test_a_run_may_do_without(crashkit: Crashkit) -> None:  # noqa: F811
    crashkit.python(SEGFAULT, options=("--index", "none"))
    assert len(crashkit.crashes()) == 1 and not list(crashkit.home.glob("history*"))
    assert "there is no history" in crashkit("groups").stderr
    crashkit.environment["CRASHKIT_INDEX"] = "none"
    assert "no history is kept" in crashkit("groups").stderr and not (crashkit.cwd / "none").exists()
    assert "no history of crashes is kept" in crashkit("doctor").stdout


@pytest.mark.slow
def test_analyze_records_where_it_is_told_to(runner: Crashkit, tmp_path: Path) -> None:
    index = tmp_path / "team.sqlite"
    assert runner("analyze", "dump.log", "--no-gdb").returncode == 0
    assert not list(runner.home.iterdir()), "an analysis by hand is nobody's history"
    for _ in range(2):
        assert runner("analyze", "dump.log", "--no-gdb", "--index", index).stderr.count("history") == 0
    (group,) = groups(runner, "--index", index)
    assert (group["count"], group["where"]) == (1, "infer (app.py:10)"), "analyzed again, it is the same crash"


@pytest.mark.slow
def test_an_index_that_is_away_costs_no_report(runner: Crashkit, tmp_path: Path) -> None:
    index = tmp_path / "folder"
    index.mkdir()
    runner.environment["CRASHKIT_INDEX"] = str(index)
    done = runner("analyze", "dump.log", "--no-gdb", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["fingerprint"]
    assert "not in the history yet" in done.stderr and len(done.stderr.splitlines()) == 2
    assert "1 crash waits" in runner("doctor").stdout
    index.rmdir()
    done = runner("groups")
    assert "1 crash that had waited" in done.stderr and "infer" in done.stdout
    assert "crash waits" not in runner("doctor").stdout


SENSELESS = [("run", "--index", "mysql://h/d", "--", "true"), ("groups", "--index", "x://y"), ("groups", "a", "--since", "1d")]
WITHOUT = [("run", "--", "/bin/true"), ("list",), ("doctor",), ("--help",), ("groups", "--help"), ("show", "x")]


@pytest.mark.parametrize("arguments", SENSELESS)
def test_what_makes_no_sense_is_usage(runner: Crashkit, arguments: tuple[str, ...]) -> None:
    assert runner(*arguments).returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("arguments", WITHOUT)
def test_what_needs_no_database_imports_none(runner: Crashkit, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "crashkit", *arguments]
    done = subprocess.run(command, cwd=runner.cwd, env=runner.environment, capture_output=True, text=True, timeout=60)
    assert "crashkit.cli" in done.stderr and not re.search(r"\b(?:sqlalchemy|alembic|psycopg)\b", done.stderr)


@needs_git
@pytest.mark.slow
def test_new_since(runner: Crashkit) -> None:
    """An age, a date, a tag or a commit of the working copy, a release; a commit that begins like an age is one."""
    now = time.time()
    old, new = entry(1, 1, seen=now - 9 * 86400, release="1.0"), entry(2, 2, seen=now - 86400, release="2.0")
    record(str(runner.home / "history.sqlite"), [old, new], runner.home)
    when = {"GIT_COMMITTER_DATE": f"{int(now - 5 * 86400)} +0200", "GIT_AUTHOR_DATE": f"{int(now - 20 * 86400)} +0000"}
    who = ["-c", "user.name=a", "-c", "user.email=b@c"]
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "x"], [*who, "tag", "-a", "v7", "-m", "y"]):
        subprocess.run(["git", *words], cwd=runner.cwd, env={**runner.environment, **when}, check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=runner.cwd, capture_output=True, text=True, check=True).stdout.strip()
    date = time.strftime("%Y-%m-%d", time.localtime(now - 3 * 86400))
    for since in ("3d", date, "v7", commit, commit[:8], "2.0"):
        assert [group["key"] for group in groups(runner, "--since", since)] == [new.group], since
    assert len(groups(runner, "--since", "1.0")) == 2 and groups(runner, "--since", "1h") == []
    refused = runner("groups", "--since", "1234567d")
    assert refused.returncode == 1 and "is not an age, a date, a commit of this working copy" in refused.stderr


@pytest.mark.slow
def test_crashes_can_be_forgotten(runner: Crashkit) -> None:
    entries = [entry(number, number % 2, recorded=time.time() - number * 86400) for number in range(4)]
    record(str(runner.home / "history.sqlite"), entries, runner.home)
    assert "removed 2 crashes" in runner("groups", "--forget", "36h").stderr
    with sqlite3.connect(runner.home / "history.sqlite") as file:
        assert file.execute("SELECT count(*) FROM crashes").fetchone() == (2,)
    assert [group["count"] for group in groups(runner)] == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_rows_fit(runner: Crashkit, columns: int) -> None:
    hostile = dict.fromkeys(("where", "cause", "signal", "release", "host"), HOSTILE)
    record(str(runner.home / "history.sqlite"), [entry(1, 1, **hostile), *(entry(number, 2) for number in range(2, 9))], runner.home)
    for arguments in ([], [f"2-{1:016x}"]):
        command = [sys.executable, "-m", "crashkit", "groups", *arguments]
        environment = {**runner.environment, "TERM": "dumb", "COLUMNS": str(columns)}
        shown = on_terminal(command, runner.cwd, environment, columns)
        assert shown.strip() and not CONTROL.search(shown)
        assert [row for row in shown.splitlines() if safe.cells(row.rstrip()) > columns] == []
        assert r"a\x1b[31m\nb\u202e [bold]x[/] [link=http://x]y[/link] :smile: 中文字 {} %s" in piped(command, runner.cwd, environment)


@pytest.mark.slow
def test_a_team_shares_a_server(runner: Crashkit, server: Server) -> None:
    """Two hosts' stores, one index; its tables are changed on request."""
    runner.environment["CRASHKIT_INDEX"] = address = server.emptied()
    with index._engine(index._url(address), True).connect() as connection, connection.begin():
        index.migrate(connection, "0001")
    assert "an older version of crashkit" in runner("analyze", "dump.log", "--no-gdb").stderr
    refused = runner("groups")
    assert refused.returncode == 1 and "crashkit groups --upgrade" in refused.stderr
    done = runner("groups", "--upgrade")
    assert done.returncode == 0 and "infer" in done.stdout and "1 crash that had waited" in done.stderr
    record(address, [entry(1, host="another")], runner.home.parent / "other")
    assert sorted(group["count"] for group in groups(runner)) == [1, 1]


def test_the_environment_of_a_crash_does_not_tell_the_password_of_the_index(runner: Crashkit) -> None:
    from crashkit.model import Crash, Process
    from crashkit.secrets.crash import masked

    crash = masked(Crash(process=Process(environment={"CRASHKIT_INDEX": f"postgresql://me:{PASSWORD}@db/crashes"})))
    assert crash.process is not None and PASSWORD not in crash.process.environment["CRASHKIT_INDEX"]
