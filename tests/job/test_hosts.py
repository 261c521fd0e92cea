"""Crash folders of several hosts in one store, as of `srun crashkit run`: their pids may be equal, and their clocks differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crashkit.crashfolder.manifest import SCHEMA
from crashkit.model import JobProcess
from crashkit.pipeline import Options, analyze

DUMP = 'Fatal Python error: {what}\n\nCurrent thread 0x00007f0{rank} (most recent call first):\n  File "/srv/a.py", line {rank} in step\n'


def processes(store: Path, hosts: tuple[str, str]) -> dict[int | None, JobProcess]:
    for rank, (host, signal, what) in enumerate(zip(hosts, (6, 11), ("Aborted", "Segmentation fault"), strict=True)):
        folder = store / f"20261122T16412{rank}-7-python3"
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(DUMP.format(what=what, rank=rank))
        manifest = {
            "schema": SCHEMA,
            "id": folder.name,
            "pid": 7,
            "host": host,
            "seen": 1795365684.0 + rank,
            "is_command": True,
            "signal": signal,
            "environment": {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "2"},
            "files": [{"name": "stderr.log", "kind": "log"}],
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))
    job = analyze(store, options=Options(gdb=None)).job
    assert job is not None
    return {process.rank: process for process in job.processes}


@pytest.mark.parametrize(
    ("hosts", "named", "times"),
    [(("node0", "node1"), ("node0", "node1"), (None, None)), (("node0", "node0"), (None, None), (1795365684.0, 1795365685.0))],
    ids=["two", "one"],
)
def test_times_of_several_hosts_are_not_compared(
    hosts: tuple[str, str], named: tuple[str | None, str | None], times: tuple[float | None, float | None], tmp_path: Path
) -> None:
    found = processes(tmp_path, hosts)
    assert (found[0].signal, found[1].signal) == ("SIGABRT", "SIGSEGV") and found[0].pid == found[1].pid == 7
    assert (found[0].host, found[1].host) == named
    assert (found[0].at, found[1].at) == times
