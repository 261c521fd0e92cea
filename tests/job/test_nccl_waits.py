"""Two ranks on two H200 that `crashkit attach --tree` looked at: rank 1 opens a FIFO that nobody writes to, and rank 0 waits for it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.arch.x86_64 import X86_64
from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import Crash
from crashkit.report.json import decode
from crashkit.stacks.waits import with_waits

JOBS = Path(__file__).parents[2] / "fixtures" / "jobs" / "nccl"


def looked_at(rank: int) -> Crash:
    """The threads as they were recorded, their waits told once more."""
    crash = decode(gzip.decompress((JOBS / f"attach-fifo-{rank}.json.gz").read_bytes()))
    architecture = X86_64()
    code = next(iter(architecture.system_call_codes))
    return with_waits(replace(crash, waits=()), architecture, lambda _, size: code[:size], None)


@pytest.mark.parametrize("rank", [0, 1])
def test_threads_of_nccl_itself_wait_for_nobody(rank: int) -> None:
    """They are there from the first communicator on, in every healthy rank."""
    crash = looked_at(rank)
    own = {thread.tid for thread in crash.threads if any("ncclProxy" in (frame.function or "") for frame in thread.frames)}
    assert len(own) == 2
    assert {wait.kind for wait in crash.waits if wait.thread in own} == {"poll"}
    assert "hang-collective" not in {finding.id for finding in diagnose(crash, load_catalog()).findings}
