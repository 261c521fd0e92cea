"""GPU cores of numba's kernels, of bulk copies and of kernels that never end, with the process's own core (fixtures/gpu/joined)."""

from __future__ import annotations

import gzip
import re
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import Crash, Gpu
from crashkit.report.gpu_wording import standing
from crashkit.report.json import decode
from crashkit.report.text import summary
from crashkit.stacks.launch import launched_from

from .gpu_cores import described

JOINED = Path(__file__).parent.parent / "fixtures" / "gpu" / "joined"
CORES = sorted(path.name.removesuffix(".nvcudmp.gz") for path in (JOINED / "cores").iterdir())
SOURCES = {"bulk": "bulk.cu", "numba": "numba_kernels.py"}


@cache
def gpu(name: str) -> Gpu:
    return described(gzip.decompress((JOINED / "cores" / f"{name}.nvcudmp.gz").read_bytes()), f"{name}.nvcudmp")


def alone(name: str) -> Crash:
    return diagnose(Crash(gpu=(gpu(name),)), load_catalog())


def both(name: str) -> Crash:
    """The GPU core with the core of the living process, as `crashkit analyze core x.nvcudmp` joins them."""
    crash = decode(gzip.decompress((JOINED / "sides" / f"{name}.json.gz").read_bytes()))
    dump = replace(gpu(name), launched_from=launched_from(gpu(name), crash.threads, {}))
    return diagnose(replace(crash, gpu=(dump,)), load_catalog())


def screen(crash: Crash) -> str:
    """The first screen: 24 lines."""
    return "\n".join(list(summary(crash, None, color=False, width=100))[:24])


def source(name: str, line: int | None) -> str:
    return (JOINED / SOURCES[re.split("[-_]", name)[0]]).read_text().splitlines()[(line or 0) - 1]


@pytest.mark.parametrize(
    ("name", "kernel", "marked", "access"),
    [
        ("bulk_load_beyond", "bulk_load", "// loads", "a bulk copy (TMA) from global memory at 0x000080346be00000"),
        ("bulk_store_misaligned", "bulk_store", "// bulk_store", "a bulk copy (TMA) into global memory at 0x00007f59cbe00008: 16 bytes"),
        ("numba-beyond-lines", "scatter", "# beyond", "wrote 4 bytes of global memory"),
        # numba gives what it inlines the line of the call.
        ("numba-inlined-lines", "gather", "# calls", "read 4 bytes of global memory"),
    ],
)
def test_an_access_that_failed(name: str, kernel: str, marked: str, access: str) -> None:
    crash = alone(name)
    shown = screen(crash)
    assert f" in kernel {kernel} (" in shown and f"access    {access}" in shown
    assert marked in source(name, gpu(name).exceptions[0].line)
    expected = "cuda-misaligned-address" if "misaligned" in name else "cuda-illegal-access"
    assert [(finding.id, finding.confidence) for finding in crash.findings] == [(expected, "certain")]


def test_a_kernel_of_numbas_without_lines() -> None:
    assert "kernel    scatter\n            +0x240, no line table" in screen(alone("numba-beyond-plain"))


@pytest.mark.parametrize(
    ("name", "kernel", "warps", "finding"),
    [
        # Triton's atomic operation of a block has a barrier in each turn of the loop: nothing is wrong with that.
        ("hang-spins", "wait_for_flag", ["13 warps wait at a barrier", "3 warps run"], "possible"),
        ("hang-locks", "two_locks", ["6 warps wait at a barrier", "2 warps run"], "possible"),
        ("hang-numba", "spinning", ["4 warps run"], "possible"),
        ("hang-bulk", "bulk_waits", ["1 warp waits for threads of their warp", "1 warp waits at an mbarrier"], "likely"),
    ],
)
def test_a_kernel_that_does_not_end(name: str, kernel: str, warps: list[str], finding: str) -> None:
    crash = alone(name)
    shown = screen(crash)
    assert f"kernel {kernel} was still running (" in shown
    assert [said.partition(" in ")[0] for said in standing(gpu(name).kernels[0])] == warps
    assert all(f" {said} in {kernel}, " in shown.replace("__main__::", "") for said in warps)
    assert [(one.id, one.confidence) for one in crash.findings] == [("cuda-kernel-hang", finding)]
    fix = " ".join(crash.findings[0].fix)
    assert "__syncthreads" not in fix and ("mbarrier" in fix) == (name == "hang-bulk")


def test_both_sides_of_a_hang() -> None:
    """The kernel that runs, the line that waits for it, and of a backward pass the line of the forward pass."""
    crash = both("hang-spins")
    assert crash.findings[0].id == "hang-gpu" and crash.findings[0].confidence == "likely"
    assert "meanwhile spins  " in screen(crash) and "torch.cuda.synchronize()  # spins" in screen(crash)
    shown = screen(both("hang-backward"))
    assert "kernel wait_for_flag was still running" in shown
    assert "gradient.sum().item(), None  # backward" in shown and "y = Waits.apply(x, flag)  # forward" in shown


@pytest.mark.parametrize("name", CORES)
def test_every_core_is_whole(name: str) -> None:
    assert gpu(name).truncated is False and (gpu(name).exceptions or gpu(name).kernels)
