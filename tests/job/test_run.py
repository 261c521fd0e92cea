"""`crashkit run torchrun ...`: a real job leaves one incident, whose report names what the script was told to do."""

from __future__ import annotations

import json
import sys
from typing import Optional

import pytest

from crashkit.report.json import decode
from tests.collect.conftest import Crashkit
from tests.collect.conftest import crashkit as crashkit
from tests.job.test_first import SCRIPT
from tests.job.test_real_runs import TRAIN

pytestmark = [pytest.mark.slow, pytest.mark.torch]


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "options", "variables", "what", "line"),
    [
        ("missed", [], {}, "rank 1 never reached all_reduce (train_step train.py:59); it was in load_batch", "time.sleep"),
        ("raise", [], {"RECORD": "1"}, "ValueError: bad sample in batch 5", "raise ValueError"),
        ("raise", ["--redirects", "3", "--log-dir", "logs"], {}, "ValueError: bad sample in batch 5", "raise ValueError"),
        ("segfault", [], {}, "SIGSEGV", "ctypes.string_at(0)"),
        ("kill", [], {}, "SIGKILL", None),
    ],
    ids=["missed", "raise", "redirected", "segfault", "kill"],
)
def test_one_incident(kind: str, options: list[str], variables: dict[str, str], what: str, line: Optional[str], crashkit: Crashkit) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    crashkit.environment.update(OMP_NUM_THREADS="1", TIMEOUT="4", SLEEP="60", **variables)
    launcher = (sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", 3, *options, TRAIN, kind)
    done = crashkit("run", "--", *launcher)
    assert done.returncode == 1, done.stderr
    (crash,) = crashkit.crashes()
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("crashkit: "))
    assert said.startswith("crashkit: torchrun, 3 ranks: Rank 1 ") and str(crash["folder"]) in said
    report = decode((crash["folder"] / "report.json").read_bytes())
    assert report.job is not None and report.job.root_cause is not None
    cause = report.job.root_cause
    assert cause.rank == 1 and what in (cause.what or "")
    assert report.job.world_size == 3 and {one.rank for one in report.job.processes} == {0, 1, 2}
    assert line is None or (cause.where is not None and line in SCRIPT[(cause.where.line or 0) - 1])
    manifests = [json.loads((crash["folder"] / "others" / name / "manifest.json").read_text()) for name in crash["others"]]
    stopped = [one["live"]["stopped"] for one in manifests if "live" in one]
    print(kind, "stopped", stopped)
