"""Threads that share a map of handles without a lock, on a real GPU (fixtures/gpu/runs/shared_handles.py), and what only looks like it."""

from __future__ import annotations

import gzip
from pathlib import Path

from msgspec.structs import replace

from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import Crash, Finding
from crashkit.report.json import decode

RUNS = Path(__file__).parents[2] / "fixtures" / "gpu" / "runs"


def of_report(name: str) -> Crash:
    crash = decode(gzip.decompress((RUNS / "reports" / f"handles-{name}.json.gz").read_bytes()))
    return diagnose(replace(crash, findings=()), load_catalog())


def found(crash: Crash) -> list[tuple[str, str]]:
    return [(finding.id, finding.confidence) for finding in crash.findings]


def shared(crash: Crash) -> Finding:
    return next(finding for finding in crash.findings if finding.id == "cuda-concurrent-launch")


def test_without_a_lock_it_is_the_first_answer() -> None:
    """It crashed by itself inside cuLaunchKernel, and faulthandler crashed again while it printed the stacks."""
    crash = of_report("unlocked")
    assert found(crash)[0] == ("cuda-concurrent-launch", "likely")
    launching = [one for one in shared(crash).evidence if one.text == "cuLaunchKernel"]
    assert [one.thread for one in launching] == [crash.crashed_thread]


def test_the_python_lines_of_all_five_threads_are_named() -> None:
    crash = of_report("unlocked")
    summary = shared(crash).summary or ""
    recognizers = [thread for thread in crash.threads if (thread.name or "").startswith("recognizer-")]
    assert len(recognizers) == 5
    rows = (RUNS / "shared_handles.py").read_text().split("\n")
    (line,) = [number for number, row in enumerate(rows, 1) if row.endswith("# recognize")]
    for thread in recognizers:
        assert f"thread {thread.tid} ({thread.name}) at /srv/runs/on-a-gpu/shared_handles.py:{line} in recognize" in summary


def test_the_same_crash_of_one_thread_is_not_claimed() -> None:
    """It launches with a handle that it freed itself; four others wait for something."""
    crash = of_report("alone")
    assert "cuda-concurrent-launch" not in dict(found(crash))
    assert any(getattr(frame, "function", None) == "cuLaunchKernel" for frame in next(t for t in crash.threads if t.crashed).frames)


def test_a_crash_elsewhere_is_not_claimed() -> None:
    """Five threads launch, as they may; a sixth one reads a null pointer."""
    crash = of_report("elsewhere")
    assert found(crash) == [("null-deref", "certain")]


def test_threads_between_two_calls_prove_nothing() -> None:
    """Without the two that are in the model's forward, those at the line of the call alone are no reason to claim it."""
    crash = of_report("unlocked")
    in_forward = {one.thread for one in shared(crash).evidence if (one.text or "").startswith("about to launch")}
    rest = replace(crash, threads=tuple(thread for thread in crash.threads if thread.tid not in in_forward), findings=())
    assert "likely" not in [confidence for name, confidence in found(diagnose(rest, load_catalog())) if name == "cuda-concurrent-launch"]
