"""A rank that ends before the others, without an error, as one with fewer batches does: they lose their peer, and it says nothing.

The lines are those of torchrun (torch 2.13) with three ranks and gloo, of which rank 1 returned from its loop; shortened.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.pipeline import analyze
from crashkit.report.job_wording import headline
from tests.job.folders import crash_folder, looked_at

LOST = """[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/srv/job/uneven.py", line 14, in train_epoch
[rank{rank}]:     loss.backward()
[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] {said}
"""
CLOSED = "Connection closed by peer [127.0.0.1]:30937. This is typically caused by a remote worker crashing."
LATE = "Timed out waiting 15000ms for recv operation to complete"
HEAD = "18673 torch/distributed/elastic/multiprocessing/api.py"
FAILED = f"E1122 08:41:24.139000 {HEAD}:1002] failed (exitcode: 1) local_rank: 0 (pid: 18684) of binary: /opt/venv/bin/python\n"
STOPS = f"W1122 08:41:24.039000 {HEAD}:1028] Sending process 18685 closing signal SIGTERM\n"
BOX = """============================================================
uneven.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-22_08:41:24
  host      : localhost
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 18686)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_08:41:24
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 18684)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


@pytest.mark.parametrize(
    ("said", "stops", "is_told"),
    [(CLOSED, "", True), (CLOSED, STOPS, False), (LATE, "", False)],
    ids=["it ended", "the launcher stopped it", "the others timed out"],
)
def test_the_rank_that_ended_before(said: str, stops: str, is_told: bool, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("".join(LOST.format(rank=rank, said=said) for rank in (0, 2)) + stops + FAILED + BOX)
    job = analyze(tmp_path / "job.log").job
    assert job is not None and job.root_cause is not None
    told = job.root_cause.rank == 1 and job.root_cause.what == "rank 1 ended before the others, without an error"
    assert told == is_told
    if is_told:
        assert job.world_size == 3 and job.root_cause.confidence == "likely"
        assert headline(job) == ("rank 1", "probably ended before the others, without an error")
        assert {one.rank: one.role for one in job.processes} == {0: "lost-peer", 1: "root-cause", 2: "lost-peer"}


def test_one_that_was_looked_at_on_its_way_out(tmp_path: Path) -> None:
    """`crashkit run` takes what lives when the first rank fails; the launcher tells nothing of that process's end."""
    said = "".join(LOST.format(rank=rank, said=CLOSED) for rank in (0, 2)) + FAILED + BOX
    folder = crash_folder(tmp_path / "crash", 0, 18684, said, exit_status=1, is_command=False, others=["rank1-18685"])
    looked_at(folder, "rank1-18685", 18685, environment={"RANK": "1", "LOCAL_RANK": "1"})
    job = analyze([folder]).job
    assert job is not None and job.root_cause is not None
    assert (job.root_cause.rank, job.root_cause.pid) == (1, 18685)
    assert job.root_cause.what == "rank 1 ended before the others, without an error"
