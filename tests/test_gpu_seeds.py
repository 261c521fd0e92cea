"""The CUDA failures of three documents, end to end on an H200 with `crashkit run --cuda` (fixtures/gpu/runs/seeds.py): what it said then,
and what today's rules make of those reports."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import Crash, PythonFrame
from crashkit.report import gpu_wording
from crashkit.report.json import decode
from crashkit.report.text import summary

RUNS = Path(__file__).parents[1] / "fixtures" / "gpu" / "runs"
CASES = [
    ("000", "nll_loss_forward_reduce_cuda_kernel_2d", "torch: nll_loss (cross_entropy)", "cuda-device-assert"),
    ("001", "nll_loss_forward_reduce_cuda_kernel_2d", "torch: nll_loss (cross_entropy)", "cuda-device-assert"),
    ("004", "reduce_kernel", "torch: sum", "cuda-illegal-access"),
]


def recorded(name: str) -> Crash:
    return decode(gzip.decompress((RUNS / "reports" / f"seed-{name}.json.gz").read_bytes()))


def faulty_line(seed: str) -> int:
    rows = (RUNS / "seeds.py").read_text().split("\n")
    (line,) = [number for number, row in enumerate(rows, 1) if row.endswith(f"# {seed}")]
    return line


@pytest.mark.parametrize(("seed", "kernel", "known_as", "finding"), CASES)
def test_with_blocking_launches_the_faulty_line_is_named(seed: str, kernel: str, known_as: str, finding: str) -> None:
    crash = diagnose(replace(recorded(f"{seed}-blocking"), findings=()), load_catalog())
    exception = crash.gpu[0].exceptions[0]
    assert gpu_wording.kernel_name(exception.kernel).rpartition("::")[2] == kernel
    assert exception.known_as == known_as
    assert (crash.findings[0].id, crash.findings[0].confidence) == (finding, "certain")
    side = gpu_wording.launch(crash)
    assert side is not None
    assert side.label == "launched"
    assert isinstance(side.frame, PythonFrame)
    assert side.frame.line == faulty_line(seed)
    screen = "\n".join(list(summary(crash, Path("report.html"), color=False, width=100))[:24])
    assert all(text in screen for text in (kernel, f"seeds.py:{faulty_line(seed)}", (side.frame.source or "?")[:50]))


@pytest.mark.parametrize(("seed", "kernel", "known_as", "finding"), CASES)
def test_without_them_the_line_is_where_it_was_noticed(seed: str, kernel: str, known_as: str, finding: str) -> None:
    """At the faulty line or behind it; the report says that this is not certain, and how to be."""
    crash = diagnose(replace(recorded(seed), findings=()), load_catalog())
    assert crash.findings[0].id == finding
    side = gpu_wording.launch(crash)
    assert side is not None
    assert side.label == "noticed"
    assert side.frame is not None
    assert (side.frame.line or 0) >= faulty_line(seed)
    assert "CUDA_LAUNCH_BLOCKING=1" in side.text


@pytest.mark.parametrize("name", [f"{seed}{mode}" for seed, *_ in CASES for mode in ("", "-blocking")])
def test_what_was_printed_then(name: str) -> None:
    """The screen of the run itself: the process's status was kept, and the answer came at once."""
    screen = (RUNS / "screens" / f"seed-{name}.txt").read_text()
    assert screen.startswith("status 134, ")
    kernel = next(kernel for seed, kernel, *_ in CASES if name.startswith(seed))
    assert kernel in screen
    assert "seeds.py:" in screen
