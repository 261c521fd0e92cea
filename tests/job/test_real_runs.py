"""torchrun with gloo on this machine: what the script was told to do is what the report says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional

import pytest

from crashkit.pipeline import analyze
from tests.job.test_first import SCRIPT

pytestmark = [pytest.mark.slow, pytest.mark.torch]
TRAIN = Path(__file__).parents[2] / "fixtures/jobs/train.py"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")

    def run(kind: str, ranks: int, options: Sequence[str] = (), **variables: str) -> Path:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            str(ranks),
            *options,
            str(TRAIN),
            kind,
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "100", "TIMEOUT": "4", "SLEEP": "60", **variables}
        # A core of several ranks would be one file, and takes its time.
        with (tmp_path / "job.log").open("wb") as log:
            started = subprocess.Popen(
                ["/bin/sh", "-c", 'ulimit -c 0; exec "$@"', "sh", *command],
                cwd=tmp_path,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                assert started.wait(180) != 0
            finally:
                if started.poll() is None:
                    os.killpg(started.pid, signal.SIGKILL)
                    started.wait()
        return tmp_path

    return run


# Recorded logs of the same kinds are always read: test_first.py.
if_asked = pytest.mark.skipif("CRASHKIT_ALL_JOBS" not in os.environ, reason="takes a minute: set CRASHKIT_ALL_JOBS=1")


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "ranks", "options", "variables", "rank", "what", "line"),
    [
        ("segfault", 2, [], {}, 1, "SIGSEGV", "ctypes.string_at(0)"),
        pytest.param("raise", 8, [], {"CULPRIT": "6"}, 6, "ValueError: bad sample in batch 5", "raise ValueError", marks=if_asked),
        (
            "raise",
            3,
            ["--log-dir", "logs", "--redirects", "3"],
            {"CULPRIT": "0"},
            0,
            "ValueError: bad sample in batch 5",
            "raise ValueError",
        ),
        ("kill", 3, [], {"CULPRIT": "2"}, 2, "SIGKILL", None),
        pytest.param("missed", 3, [], {"CULPRIT": "0", "DUMPS": "fr_"}, 0, "never reached all_reduce #6", None, marks=if_asked),
        ("missed", 2, [], {"STACKS": "1"}, 1, "it was in load_batch", "time.sleep"),
        pytest.param("uneven", 3, [], {"DUMPS": "fr_"}, 1, "rank 1 called barrier", "dist.barrier()", marks=if_asked),
    ],
    ids=["segfault", "raise-8", "tree", "kill", "missed-recorded", "missed-stood", "uneven"],
)
def test_a_real_job(
    kind: str,
    ranks: int,
    options: list[str],
    variables: dict[str, str],
    rank: int,
    what: str,
    line: Optional[str],
    run: Callable[..., Path],
) -> None:
    crash = analyze(run(kind, ranks, options, **variables))
    assert crash.job is not None and crash.job.root_cause is not None
    cause = crash.job.root_cause
    assert cause.rank == rank and what in (cause.what or "")
    assert crash.job.world_size == ranks
    assert line is None or (cause.where is not None and line in SCRIPT[(cause.where.line or 0) - 1])
