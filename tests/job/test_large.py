"""Of 1,024 ranks the right one is named first, in under 10 s and 1 GB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.job import large

RANKS = 1024
SECONDS, BYTES = 10.0, 1 << 30

ANALYZE = """
import json, resource, sys, time
from crashkit.pipeline import analyze
from crashkit.report.html import render
from crashkit.report.json import encode
from crashkit.report.text import summary
began = time.process_time()
crash = analyze(sys.argv[1])
page, document = render(crash), encode(crash)
seconds = time.process_time() - began
job = crash.job
print(json.dumps({"seconds": seconds, "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, "rank": job.root_cause.rank,
    "what": job.root_cause.what, "processes": len(job.processes), "page": len(page), "document": len(document),
    "rects": page.count("<rect"), "first": next(summary(crash, None, color=False, width=80))}))
"""


def measured(path: Path) -> dict[str, Any]:
    """What a process of its own finds, and what it took."""
    done = subprocess.run([sys.executable, "-c", ANALYZE, str(path)], capture_output=True, text=True, check=True, timeout=120)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def told(path: Path) -> dict[str, Any]:
    answer = measured(path)
    assert answer["seconds"] < SECONDS and answer["bytes"] < BYTES, answer
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("culprit", [0, 517, RANKS - 1])
def test_one_log(culprit: int, tmp_path: Path) -> None:
    large.one_log(tmp_path / "job.log", RANKS, culprit)
    answer = told(tmp_path / "job.log")
    assert (answer["rank"], answer["what"], answer["processes"]) == (culprit, "ValueError: bad sample in batch 5", RANKS)
    assert answer["first"].startswith(f"rank {culprit}  failed first: ValueError")
    # Neighbours of the same fate are one row.
    assert answer["rects"] <= 6 and answer["page"] < 1 << 20


@pytest.mark.slow
def test_flight_recorders(tmp_path: Path) -> None:
    large.dumps(tmp_path / "dumps", RANKS, 700, 60)
    answer = told(tmp_path / "dumps")
    assert (answer["rank"], answer["processes"]) == (700, RANKS)
    assert "never reached all_reduce #60" in answer["what"]
    assert answer["rects"] <= 6 and answer["document"] < 2 << 20
