"""Assertions of torch's kernels: what they check and a fix that is about it, from the log's text or from the kernel that a GPU core names.

The lines are what an H200 printed with torch 2.11 (paths shortened), but for those of older versions, which are from torch's sources.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import Crash, Finding, Source
from crashkit.pipeline import analyze

from . import synthetic

CUDA = "/pytorch/aten/src/ATen/native/cuda"
LABELS, INDEX, UNIT, FINITE = "labels.min()", "index.min()", "(x <= 1)", "isfinite"
SCATTERED = 'idx_dim >= 0 && idx_dim < index_size && "scatter gather kernel index out of bounds"'
GATHERED = 'ind >=0 && ind < ind_dim_size && "vectorized gather kernel index out of bounds"'
LINES = (
    (f"{CUDA}/Loss.cu:245: nll_loss_forward_reduce_cuda_kernel_2d:", "t >= 0 && t < n_classes", LABELS),
    (f"{CUDA}/MultiMarginLoss.cu:39: multi:", 'target_k >= 0 && target_k < dim && "target index is out of bounds"', LABELS),
    (f"{CUDA}/ScatterGatherKernel.cu:163: operator():", SCATTERED, INDEX),
    (f"{CUDA}/IndexKernelUtils.cu:16: vectorized_gather_kernel:", GATHERED, INDEX),
    (f"{CUDA}/IndexKernel.cu:92: operator():", '-sizes[i] <= index && index < sizes[i] && "index out of bounds"', INDEX),
    (f"{CUDA}/Indexing.cu:1255: indexSelectSmallIndex:", "srcIndex < srcSelectDimSize", INDEX),
    ("/tmp/cache/dd/cdd77tev474b.py:34: unknown:", "index out of bounds: 0 <= tmp4 < 50", INDEX),
    (f"{CUDA}/Loss.cu:90: operator():", "input_val >= zero && input_val <= one", UNIT),
    (f"{CUDA}/TensorCompare.cu:109: _assert_async_cuda_kernel:", "probability tensor contains either `inf`, `nan` or element < 0", FINITE),
    (f"{CUDA}/MultinomialKernel.cu:112: binarySearchForMultinomial:", "cumdist[size - 1] > static_cast<scalar_t>(0)", FINITE),
    (f"{CUDA}/DistributionTemplates.h:600: operator():", "0 <= p4 && p4 <= 1", "(p >= 0)"),
)
FIXES = (LABELS, INDEX, UNIT, FINITE, "(p >= 0)")


def found(crash: Crash) -> Finding:
    return next(finding for finding in diagnose(crash, load_catalog()).findings if finding.id == "cuda-device-assert")


def of_line(where: str, assertion: str, folder: Path) -> Finding:
    text = f"{where} block: [1,0,0], thread: [5,0,0] Assertion `{assertion}` failed.\n"
    return found(Crash(source=Source(kind="log", path="log"), log=synthetic.lines(text, folder)))


@pytest.mark.parametrize(("where", "assertion", "fix"), LINES, ids=[assertion[:24] for _, assertion, _ in LINES])
def test_the_text_tells_what_was_checked(where: str, assertion: str, fix: str, tmp_path: Path) -> None:
    finding = of_line(where, assertion, tmp_path)
    assert f"asserted `{assertion}`" in finding.summary
    assert "It checks that" in finding.summary
    assert fix in finding.fix[0]
    others = [other for other in FIXES if other != fix and any(other in text for text in finding.fix)]
    assert others == []  # what is not about this assertion is no fix


def test_an_assertion_that_nobody_knows_gets_no_fix_of_another_one(tmp_path: Path) -> None:
    finding = of_line("/srv/app/kernels.cu:12: mine:", "left < right", tmp_path)
    assert "Kernel mine asserted `left < right`" in finding.summary
    assert "It checks" not in finding.summary
    assert [other for other in FIXES if any(other in text for text in finding.fix)] == []


@pytest.mark.parametrize("name", ["operator()", "unknown"])
def test_a_kernel_without_a_name_of_its_own(name: str, tmp_path: Path) -> None:
    assert of_line(f"/srv/kernels.cu:12: {name}:", "left < right", tmp_path).summary.startswith("A kernel asserted `left < right`")


@pytest.mark.parametrize(
    ("dump", "kernel", "fix"), [("torch_cross_entropy", "nll_loss", LABELS), ("torch_index", "index_elementwise_kernel", INDEX)]
)
def test_a_dump_alone_names_its_kernel(dump: str, kernel: str, fix: str) -> None:
    core = Path(__file__).parents[2] / "fixtures" / "gpu" / "dumps" / "cores" / f"{dump}.nvcudmp.gz"
    finding = next(finding for finding in analyze([core]).findings if finding.id == "cuda-device-assert")
    assert kernel in finding.summary
    assert "It checks that" in finding.summary
    assert fix in finding.fix[0]


def test_a_dump_names_the_kernel_that_the_log_does_not(tmp_path: Path) -> None:
    core = Path(__file__).parents[2] / "fixtures" / "gpu" / "dumps" / "cores" / "torch_index.nvcudmp.gz"
    log = tmp_path / "stderr.log"
    log.write_text(f"{CUDA}/IndexKernel.cu:92: operator(): block: [0,0,0], thread: [2,0,0] Assertion `index < sizes[i]` failed.\n")
    finding = next(finding for finding in analyze([core, log]).findings if finding.id == "cuda-device-assert")
    assert "Kernel index_elementwise_kernel asserted `index < sizes[i]" in finding.summary


def test_the_line_of_an_assertion_is_the_logs(tmp_path: Path) -> None:
    """A GPU core showed the first line of a kernel of torch.compile, the log the one that asserts."""
    core = Path(__file__).parents[2] / "fixtures" / "gpu" / "dumps" / "cores" / "compiled_assert.nvcudmp.gz"
    (alone,) = analyze([core]).gpu[0].exceptions
    assert alone.file is not None
    assert alone.line is not None
    said = "{}:{}: unknown: block: [0,0,0], thread: [{},0,0] Assertion `index out of bounds: 0 <= tmp4 < 16` failed.\n"
    log = tmp_path / "stderr.log"
    log.write_text("".join(said.format(alone.file, alone.line + 3, thread) for thread in (3, 7)))
    (told,) = analyze([core, log]).gpu[0].exceptions
    assert told.line == alone.line + 3
    log.write_text("".join(said.format(alone.file, alone.line + thread, thread) for thread in (3, 7)))  # which of them is not known
    assert analyze([core, log]).gpu[0].exceptions[0].line == alone.line
    log.write_text(said.format("/elsewhere/other.py", alone.line + 3, 3))
    assert analyze([core, log]).gpu[0].exceptions[0].line == alone.line
