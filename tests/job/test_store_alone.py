"""`srun crashkit run python train.py`, and only the store is left: each rank that failed has a folder, and a rank that was stopped none."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.pipeline import analyze
from tests.collect.conftest import Crashkit
from tests.collect.conftest import crashkit as crashkit
from tests.collect.test_incident import wait_for
from tests.job.test_real_runs import TRAIN

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.long]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _step(crashkit: Crashkit, kind: str, tasks: int) -> None:
    """The tasks of one step as srun starts them; once all others have failed, it ends the one that sleeps."""
    crashkit.environment.update(OMP_NUM_THREADS="1", TIMEOUT="4", SLEEP="600", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(_free_port()))
    crashkit.environment.update(WORLD_SIZE=str(tasks), SLURM_STEP_NUM_TASKS=str(tasks), SLURM_JOB_ID="7")
    runs: list[subprocess.Popen[str]] = []
    for rank in range(tasks):
        crashkit.environment.update(RANK=str(rank), SLURM_PROCID=str(rank), LOCAL_RANK=str(rank))
        command = ("run", "--no-analyze", "--", sys.executable, "-W", "ignore", TRAIN, kind)
        runs.append(crashkit.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    wait_for(lambda: sum(run.poll() is not None for run in runs) >= tasks - 1)
    for run in runs:
        run.send_signal(signal.SIGTERM)
        run.wait(60)


def test_who_was_stopped_did_not_come(crashkit: Crashkit, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    _step(crashkit, "missed", 3)
    assert {one["environment"]["RANK"] for one in crashkit.crashes()} == {"0", "2"}
    job = analyze(crashkit.home).job
    assert job is not None and job.root_cause is not None and job.world_size == 3
    cause = job.root_cause
    assert (cause.rank, cause.confidence) == (1, "likely")
    assert (cause.what or "").startswith("rank 1 never reached all_reduce (train_step train.py:")
    # Of two hosts with three ranks each, it would be that of one: nobody knows whether the others came.
    other = tmp_path / "one host"
    shutil.copytree(crashkit.home, other)
    for path in other.glob("*/manifest.json"):
        manifest = json.loads(path.read_text())
        manifest["environment"].update(WORLD_SIZE="6", SLURM_STEP_NUM_TASKS="6")
        path.write_text(json.dumps(manifest))
    job = analyze(other).job
    assert job is not None and (job.root_cause is None or job.root_cause.confidence == "possible")
    assert not any("never reached" in (one.what or "") for one in [job.root_cause, *job.also] if one is not None)
