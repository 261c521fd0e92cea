"""Crash folders of several processes are one job, whose report is that of the one which failed first."""

from __future__ import annotations

from pathlib import Path

from crashkit.pipeline import analyze
from tests.job.folders import crash_folder, launcher, looked_at

DUMP = """Fatal Python error: Segmentation fault

Current thread 0x00007f0000000001 (most recent call first):
  File "/srv/job/train.py", line {line} in {function}
"""


def test_folders_of_two_ranks(tmp_path: Path) -> None:
    """The launcher stopped rank 0; rank 1 failed by itself. Both left a folder."""
    for rank, number, function in ((0, 15, "wait"), (1, 11, "fail")):
        dump = DUMP.format(line=10 + rank, function=function)
        crash_folder(tmp_path / f"crash-{rank}", rank, 100 + rank, dump, kind="faulthandler", signal=number)
    (tmp_path / "job.log").write_text(launcher(stopped=100, failed=101))
    crash = analyze([tmp_path])
    assert crash.job is not None and crash.job.root_cause is not None
    assert (crash.job.root_cause.rank, crash.job.root_cause.pid) == (1, 101)
    assert crash.signal is not None and crash.signal.name == "SIGSEGV"
    assert {one.rank: one.role for one in crash.job.processes} == {0: "stopped", 1: "root-cause"}


RESTARTED = f"""[rank1]: Traceback (most recent call last):
[rank1]:   File "/srv/job/train.py", line 6, in load_shard
[rank1]:     raise FileNotFoundError("/data/shard-3.bin")
[rank1]: FileNotFoundError: /data/shard-3.bin
{launcher(stopped=100, failed=101, status=1)}[rank0]: Traceback (most recent call last):
[rank0]:   File "/srv/job/train.py", line 9, in forward
[rank0]:     raise ValueError("shape mismatch")
[rank0]: ValueError: shape mismatch
"""


def test_what_a_later_attempt_said_is_its_own(tmp_path: Path) -> None:
    """The log was kept before the launcher told the end of that attempt; a launcher that was looked at is no process of the job."""
    again = {"TORCHELASTIC_RESTART_COUNT": "1"}
    folder = crash_folder(tmp_path / "crash", 0, 200, RESTARTED, environment=again, exit_status=1, is_command=False, others=["99"])
    looked_at(folder, "99", 99)
    job = analyze([folder]).job
    assert job is not None and job.root_cause is not None
    assert (job.root_cause.rank, job.root_cause.attempt, job.root_cause.what) == (0, 1, "ValueError: shape mismatch")
    assert [cause.what for cause in job.also] == ["FileNotFoundError: /data/shard-3.bin"]
    assert 99 not in {one.pid for one in job.processes}
