"""What is found becomes jobs, and jobs become an index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.batch import job as messages
from crashkit.batch.job import Job, Node, Task
from crashkit.batch.run import Plan, analyzed, plan
from crashkit.pipeline import Options, analyze
from crashkit.report.index import document
from tests.crashes import a_debuggable_interpreter, needs_gdb, python_crash

TOKEN = "ghp_" + "a8F3kQ9zX2mN7bV4cL1pR6tY0wE5sD8gH3jK"
DUMP = 'Fatal Python error: {}\n\nCurrent thread 0x{:016x} (most recent call first):\n  File "/srv/{}.py", line {} in {}\n\n'


def made(folder: Path) -> Plan:
    scratch = folder.with_name(f"{folder.name}-scratch")
    scratch.mkdir()
    return plan([(folder, folder.name)], scratch)


@pytest.mark.slow
def test_each_crash_of_a_log_is_told_alone(tmp_path: Path) -> None:
    """Of dumps by their threads, and of lines of a shell by where they stand."""
    dumps = DUMP.format("Segmentation fault", 0x7F1000000740, "one", 3, "first") + DUMP.format(
        "Aborted", 0x7F2000000740, "two", 4, "second"
    )
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "a.log").write_text(dumps)
    work = made(folder)
    index = analyzed(work, Task(options=Options(), out=tmp_path / "out"), 1)
    told = sorted((entry.signal, entry.stack[0].function, entry.evidence) for entry in index.entries)
    assert told == [("SIGABRT", "second", ("run/a.log",)), ("SIGSEGV", "first", ("run/a.log",))]


def test_secrets_in_names_are_masked(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    dump = DUMP.format("Segmentation fault", 0x7F1000000740, "test_login", 3, "test_login")
    (folder / f"token={TOKEN}.log").write_text(f"{dump}worker 'gw0' crashed while running 'test_login.py::test_login[{TOKEN}]'\n")
    os.mkfifo(folder / TOKEN)
    work = made(folder)
    assert len(work.jobs) == len(work.soft_errors) == 1
    document_ = document.encode(analyzed(work, Task(options=Options(), out=tmp_path / "out"), 1))
    assert TOKEN.encode() not in document_ and b"test_login.py::test_login" in document_
    report = next((tmp_path / "out").rglob("report.json")).read_text()
    assert TOKEN not in report


@pytest.mark.slow
def test_names_that_are_not_unicode(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    name = os.fsdecode(b"\xff\xfe crash.log")
    (folder / name).write_text(DUMP.format("Aborted", 0x7F1000000740, "a", 3, "f"))
    index = analyzed(made(folder), Task(options=Options(), out=tmp_path / "out"), 1)
    assert [entry.failed for entry in index.entries] == [None]
    assert b"run/" in document.encode(index)


@pytest.mark.parametrize("path", [Path("/a b"), Path(os.fsdecode(b"/\xff"))])
def test_messages_keep_paths(path: Path) -> None:
    job = Job(number=3, paths=(path,), shown=("x",), nodes=(Node("a", "b"),), threads=(1 << 47,))
    assert messages.decode_job(messages.encode(job)) == job
    task = Task(options=Options(sysroot=path, path_maps=(("/a", path),), extra_dirs=(path,)), out=path, repository=path)
    assert messages.decode_task(messages.encode(task)) == task


def test_programs_beside_the_evidence_are_used(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "program").write_bytes(Path("/bin/true").read_bytes())
    work = made(folder)
    assert work.programs is not None and [path.name for path in work.programs.rglob("program")] == ["program"]


@needs_gdb
@pytest.mark.slow
def test_what_gdb_keeps_changes_no_report(tmp_path: Path) -> None:
    """The first core of a program makes the index, the second one uses it."""
    crashed = python_crash("threads.py", python=a_debuggable_interpreter())
    (tmp_path / "indexes").mkdir()
    plain, *kept = (
        analyze(crashed.core, options=Options(indexes=indexes)) for indexes in (None, tmp_path / "indexes", tmp_path / "indexes")
    )
    assert [path.suffix for path in (tmp_path / "indexes").iterdir()].count(".gdb-index") >= 1
    assert all(replace(one, seconds={}) == replace(plain, seconds={}) for one in kept)


def test_nothing_is_kept_of_foreign_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may have the build-id of a file of this machine."""
    asked: list[Task] = []
    monkeypatch.setattr("crashkit.batch.run.pooled", lambda jobs, task, workers: asked.append(task) or ())
    folder = tmp_path / "run"
    folder.mkdir()
    analyzed(made(folder), Task(options=Options(), out=tmp_path / "out"), 1)
    (folder / "program").write_bytes(Path("/bin/true").read_bytes())
    folder.with_name("scratch2").mkdir()
    work = plan([(folder, "run")], folder.with_name("scratch2"))
    analyzed(work, Task(options=Options(), out=tmp_path / "out"), 1)
    analyzed(work._replace(programs=None), Task(options=Options(sysroot=tmp_path), out=tmp_path / "out"), 1)
    assert [task.options.indexes is not None for task in asked] == [True, False, False]
