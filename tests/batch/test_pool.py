"""The pool's processes: one that dies loses no crash, one that hangs is ended, and nothing piles up."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.batch.job import Job, Recording, Task
from crashkit.batch.one import failed
from crashkit.batch.pool import pooled
from crashkit.crashfolder.manifest import SCHEMA, Manifest, write_manifest
from crashkit.pipeline import Options

LOG = 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x{:016x} (most recent call first):\n  File "/a.py", line {} in f\n'


def jobs(folder: Path, count: int) -> list[Job]:
    made = []
    for number in range(1, count + 1):
        path = folder / f"{number}.log"
        path.write_text(LOG.format(0x7F0000000000 + number * 4096, number))
        made.append(Job(number=number, paths=(path,), shown=(f"shown/{number}.log",)))
    return made


def task(folder: Path, **options: float) -> Task:
    return Task(options=Options(**options), out=folder / "out")  # type: ignore[arg-type]


@pytest.mark.slow
def test_every_crash_has_a_result(tmp_path: Path) -> None:
    results = {done.number: done.entry for done in pooled(jobs(tmp_path, 20), task(tmp_path), 3)}
    assert sorted(results) == list(range(1, 21)) and not any(entry.failed for entry in results.values())
    assert all((tmp_path / "out" / (entry.report or "")).exists() for entry in results.values())
    assert [place.line for place in results[7].stack] == [7] and results[7].evidence == ("shown/7.log",)


@pytest.mark.slow
def test_a_killed_worker_loses_no_crash(tmp_path: Path) -> None:
    """Each worker is killed as it begins its first job: another one does it."""
    killed: set[int] = set()

    def begun(job: Job, pid: int) -> None:
        if job.number in (1, 4) and job.number not in killed:
            killed.add(job.number)
            os.kill(pid, signal.SIGKILL)

    results = {done.number: done.entry for done in pooled(jobs(tmp_path, 6), task(tmp_path), 2, begun)}
    assert killed == {1, 4} and sorted(results) == [1, 2, 3, 4, 5, 6]
    assert not any(entry.failed for entry in results.values())


@pytest.mark.slow
def test_a_crash_that_kills_each_worker_is_told_and_stops_nobody(tmp_path: Path) -> None:
    begins: list[int] = []

    def begun(job: Job, pid: int) -> None:
        if job.number == 2:
            begins.append(pid)
            os.kill(pid, signal.SIGKILL)

    four = [replace(job, signal="SIGSEGV", executable="/srv/app") for job in jobs(tmp_path, 4)]
    recorded = replace(task(tmp_path), recording=Recording(place="https://ci/1#", host="h", release="v1"))
    done = list(pooled(four, recorded, 2, begun))
    results = {one.number: one.entry for one in done}
    assert len(begins) == len(set(begins)) == 2
    known = next(one.recorded for one in done if one.number == 2)
    assert known is not None and (known.signal, known.program, known.release, known.group[:2]) == ("SIGSEGV", "app", "v1", "0-")
    assert {number: bool(entry.failed) for number, entry in results.items()} == {1: False, 2: True, 3: False, 4: False}
    assert "the analysis itself died (signal 9)" in (results[2].failed or "") and results[2].evidence == ("shown/2.log",)


def test_a_crash_folder_that_cannot_be_analyzed_keeps_its_name(tmp_path: Path) -> None:
    """In the history: it is the crash that `crashkit run` recorded."""
    manifest: Manifest = {"schema": SCHEMA, "id": "x", "signal_name": "SIGBUS", "name": "serve", "record": "0123456789abcdef" * 2}
    write_manifest(tmp_path, manifest)
    job = Job(number=1, paths=(tmp_path,), shown=("x",))
    known = failed(job, replace(task(tmp_path), recording=Recording(place="ci", host="h")), "why").recorded
    assert known is not None and (known.key, known.signal, known.program) == ("0123456789abcdef" * 2, "SIGBUS", "serve")
    write_manifest(tmp_path, {**manifest, "record": "../" * 10 + "ab"})
    forged = failed(job, replace(task(tmp_path), recording=Recording(place="ci", host="h")), "why").recorded
    assert forged is not None and re.fullmatch("[0-9a-f]{32}", forged.key)
    assert failed(job, task(tmp_path), "why").recorded is None, "no history is asked for"


@pytest.mark.slow
def test_one_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crashkit.batch.pool._SLACK", 0.5)

    def begun(job: Job, pid: int) -> None:
        if job.number == 1:
            os.kill(pid, signal.SIGSTOP)

    results = {done.number: done.entry for done in pooled(jobs(tmp_path, 1), task(tmp_path, deadline=0.5), 1, begun)}
    assert "took more than 1 s" in (results[1].failed or "")


@pytest.mark.slow
def test_evidence_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    good, bad = jobs(tmp_path, 2)
    bad.paths[0].write_text("nothing")
    results = {done.number: done.entry for done in pooled([good, bad], task(tmp_path), 1)}
    assert not results[1].failed and "shown/2.log contains no crash evidence" in (results[2].failed or "")


@pytest.mark.slow
def test_ending_it_early_leaves_no_process(tmp_path: Path) -> None:
    """As Ctrl-C does."""
    pids: list[int] = []
    running = pooled(jobs(tmp_path, 6), task(tmp_path), 2, lambda job, pid: pids.append(pid))
    next(running)
    running.close()  # type: ignore[attr-defined]
    for pid in set(pids):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
