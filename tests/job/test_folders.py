"""Crash folders of several processes are one job, whose report is that of the one which failed first."""

from __future__ import annotations

from pathlib import Path

from crashkit.crashfolder.manifest import SCHEMA, Manifest, write_manifest
from crashkit.pipeline import analyze

DUMP = """Fatal Python error: Segmentation fault

Current thread 0x00007f0000000001 (most recent call first):
  File "/srv/job/train.py", line {line} in {function}
"""


def _folder(store: Path, rank: int, signal: int, function: str) -> None:
    folder = store / f"crash-{rank}"
    folder.mkdir(parents=True)
    (folder / "stderr.log").write_text(DUMP.format(line=10 + rank, function=function))
    manifest: Manifest = {
        "schema": SCHEMA,
        "pid": 100 + rank,
        "signal": signal,
        "environment": {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        "files": [{"name": "stderr.log", "kind": "faulthandler"}],
    }
    write_manifest(folder, manifest)


def test_folders_of_two_ranks(tmp_path: Path) -> None:
    """The launcher stopped rank 0; rank 1 failed by itself. Both left a folder."""
    _folder(tmp_path, 0, 15, "wait")
    _folder(tmp_path, 1, 11, "fail")
    (tmp_path / "job.log").write_text(
        "W1121 21:52:33.468000 99 torch/distributed/elastic/multiprocessing/api.py:1012] Sending process 100 closing signal SIGTERM\n"
        "E1121 21:52:33.633000 99 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: -11) local_rank: 1 (pid: 101) "
        "of binary: /usr/bin/python3\n"
    )
    crash = analyze([tmp_path])
    assert crash.job is not None and crash.job.root_cause is not None
    assert (crash.job.root_cause.rank, crash.job.root_cause.pid) == (1, 101)
    assert crash.signal is not None and crash.signal.name == "SIGSEGV"
    assert {one.rank: one.role for one in crash.job.processes} == {0: "stopped", 1: "root-cause"}


LAUNCHED = "torch/distributed/elastic/multiprocessing/api.py"
RESTARTED = f"""[rank1]: Traceback (most recent call last):
[rank1]:   File "/srv/job/train.py", line 6, in load_shard
[rank1]:     raise FileNotFoundError("/data/shard-3.bin")
[rank1]: FileNotFoundError: /data/shard-3.bin
W1122 08:42:01.100000 99 {LAUNCHED}:1012] Sending process 100 closing signal SIGTERM
E1122 08:42:01.300000 99 {LAUNCHED}:986] failed (exitcode: 1) local_rank: 1 (pid: 101) of binary: /usr/bin/python3
[rank0]: Traceback (most recent call last):
[rank0]:   File "/srv/job/train.py", line 9, in forward
[rank0]:     raise ValueError("shape mismatch")
[rank0]: ValueError: shape mismatch
"""


def test_what_a_later_attempt_said_is_its_own(tmp_path: Path) -> None:
    """The log was kept before the launcher told the end of that attempt; a launcher that was looked at is no process of the job."""
    folder = tmp_path / "crash"
    launcher = folder / "others" / "99"
    launcher.mkdir(parents=True)
    (folder / "stderr.log").write_text(RESTARTED)
    manifest: Manifest = {
        "schema": SCHEMA,
        "pid": 200,
        "exit_status": 1,
        "is_command": False,
        "environment": {"RANK": "0", "LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "1"},
        "files": [{"name": "stderr.log", "kind": "log"}],
        "others": ["99"],
    }
    write_manifest(folder, manifest)
    write_manifest(launcher, {"schema": SCHEMA, "pid": 99, "alive": "it lived when process 200 ended with status 1"})
    job = analyze([folder]).job
    assert job is not None and job.root_cause is not None
    assert (job.root_cause.rank, job.root_cause.attempt, job.root_cause.what) == (0, 1, "ValueError: shape mismatch")
    assert [cause.what for cause in job.also] == ["FileNotFoundError: /data/shard-3.bin"]
    assert 99 not in {one.pid for one in job.processes}
