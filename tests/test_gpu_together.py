"""Kernels whose blocks wait for each other, and several kernels at once (fixtures/gpu/together)."""

from __future__ import annotations

import gzip
import re
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import Crash, Gpu, GpuKernel, LaunchedFrom, PythonFrame
from crashkit.report.gpu_wording import standing
from crashkit.report.html import render
from crashkit.report.json import decode
from crashkit.report.text import summary
from crashkit.stacks.launch import launched_from

from .gpu_cores import described

TOGETHER = Path(__file__).parent.parent / "fixtures" / "gpu" / "together"
CORES = sorted(path.name.removesuffix(".nvcudmp.gz") for path in (TOGETHER / "cores").iterdir())
KERNELS = (TOGETHER / "together.cu").read_text().splitlines()
FAILED = [name for name in CORES if not re.search("misses|leaves|devices", name)]
LINES = [name for name in FAILED if name.startswith("coop") and "plain" not in name]


@cache
def gpu(name: str) -> Gpu:
    return described(gzip.decompress((TOGETHER / "cores" / f"{name}.nvcudmp.gz").read_bytes()), f"{name}.nvcudmp")


def told(name: str) -> str:
    return (TOGETHER / "told" / f"{name}.txt").read_text()


def facts(name: str) -> dict[str, str]:
    return dict(re.findall(r"'(\w+)': '?([^',}]+)'?", " ".join(re.findall(r"^FACT (.*)$", told(name), re.MULTILINE))))


def both(name: str) -> Crash:
    """The GPU core with the process's own core, as `crashkit run --cuda` joins them."""
    crash = decode(gzip.decompress((TOGETHER / "sides" / f"{name}.json.gz").read_bytes()))
    assert crash.process is not None
    dump = replace(gpu(name), launched_from=launched_from(gpu(name), crash.threads, crash.process.environment))
    return diagnose(replace(crash, gpu=(dump,)), load_catalog())


def launch(name: str) -> tuple[LaunchedFrom, str]:
    """Who launched it, and the program's line."""
    crash = both(name)
    found = crash.gpu[0].launched_from
    assert found is not None and found.frame is not None
    frame = next(thread for thread in crash.threads if thread.tid == found.thread).frames[found.frame]
    assert isinstance(frame, PythonFrame) and frame.line is not None
    return found, frame.source or ""


def screen(crash: Crash) -> str:
    return "\n".join(list(summary(crash, None, color=False, width=120))[:24])


def triple(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


@pytest.mark.parametrize("name", FAILED)
def test_what_failed_is_what_cuda_gdb_says(name: str) -> None:
    first, text = gpu(name).exceptions[0], told(name)
    focus = re.search(r"block \(([\d,]+)\), thread \(([\d,]+)\), device (\d+), sm", text)
    assert focus is not None and first.device == int(focus[3])
    if (pc := re.search(r"triggered at PC (0x[0-9a-f]+)", text)) is not None:
        assert (first.pc, first.exact_pc) == (int(pc[1], 16), True)
    # It looks at the first multiprocessor, crashkit at the first block.
    assert (first.block_index[::-1], first.thread_index[::-1]) <= (triple(focus[1])[::-1], triple(focus[2])[::-1])
    said = re.search(r"^\*\s+0 +- .* \([\d,]+\) +\(([\d,]+)\) +(\w+)\(", text, re.MULTILINE)
    assert said is not None and (first.kernel, first.block) == (said[2], triple(said[1]))


@pytest.mark.parametrize("name", LINES)
def test_a_cooperative_kernel_that_fails_behind_its_barrier(name: str) -> None:
    first = gpu(name).exceptions[0]
    assert first.line is not None and f"// {name.partition('-')[0]}" in KERNELS[first.line - 1]


@pytest.mark.parametrize("name", [name for name in CORES if facts(name).get("grid") and not name.startswith("coop_clusters")])
def test_the_grid_of_a_cooperative_kernel(name: str) -> None:
    """The driver records one block, and so says cuda-gdb; the blocks that are there tell more."""
    kernel = gpu(name).kernels[0]
    assert (kernel.grid[0], kernel.block[0]) == (int(facts(name)["grid"]), int(facts(name)["block"]))
    assert kernel.cooperative == name.startswith("coop")
    assert all(one.grid == kernel.grid for one in gpu(name).exceptions)


@pytest.mark.parametrize(
    ("name", "warps"),
    [
        ("coop_misses", ["9 warps wait at a barrier of the grid # the others", "3 warps of block (1,0,0) run # block 1"]),
        ("coop_leaves", ["9 warps wait at a barrier of the grid # coop_leaves", "1 block of 4 has ended and will not reach it: (1,0,0)"]),
        (
            "cluster_misses",
            ["3 warps of block (0,0,0) wait at a barrier of their cluster # the other", "3 warps of block (1,0,0) run # bl"],
        ),
    ],
)
def test_who_misses_a_barrier_across_blocks(name: str, warps: list[str]) -> None:
    kernel = gpu(name).kernels[0]
    assert len(standing(kernel)) == 2
    for said, wanted in zip(standing(kernel), warps, strict=True):
        words, _, marked = wanted.partition(" # ")
        assert said.startswith(words)
        line = re.search(r"together\.cu:(\d+)$", said)
        assert not marked or (line is not None and marked in KERNELS[int(line[1]) - 1])
    found = diagnose(Crash(gpu=(gpu(name),)), load_catalog()).findings[0]
    assert (found.id, found.confidence) == ("cuda-kernel-hang", "likely")
    assert ("cluster.sync()" if name.startswith("cluster") else "grid.sync()") in found.fix[0]
    assert "__syncthreads" not in " ".join(found.fix)


def test_headers_that_nvrtc_reads() -> None:
    """CuPy's: the lines are the program's own there, too."""
    said = standing(gpu("cupy_misses").kernels[0])
    assert [re.sub(r"[0-9a-f]+…[0-9a-f]+", "x", one) for one in said] == [
        "9 warps wait at a barrier of the grid in misses, x.cubin.cu:8",
        "3 warps of block (1,0,0) run in misses, x.cubin.cu:5",
    ]


def test_where_they_stand_is_what_cuda_gdb_says() -> None:
    """Of every block: those whose threads it shows in the loop of their own are those that run."""
    text = told("coop_misses")
    running = {triple(match[1]) for match in re.finditer(r"^\W+\(([\d,]+)\).* 96 0x\w+ +\S+/together.cu +54 *$", text, re.MULTILINE)}
    assert running == {(1, 0, 0)}
    letters = {block.index: set(block.warps) for block in gpu("coop_misses").kernels[0].resident}
    assert {index for index, found in letters.items() if "r" in found} == running and len(letters) == 4


@pytest.mark.parametrize(("name", "fix"), [("coop_misses-plain", "grid.sync()"), ("cluster_misses-plain", "cluster.sync()")])
def test_without_lines(name: str, fix: str) -> None:
    """The barrier of a cluster is an instruction; that of a grid is code like any other, but the kernel is known to be cooperative."""
    found = diagnose(Crash(gpu=(gpu(name),)), load_catalog()).findings[0]
    assert (found.id, found.confidence) == ("cuda-kernel-hang", "likely") and fix in " ".join(found.fix)


STREAMS = ["two_streams", "two_streams-blocking", "cupy_streams", "cupy_threads-blocking"]


@pytest.mark.parametrize("name", STREAMS)
def test_of_two_streams_the_kernel_that_failed_is_blamed(name: str) -> None:
    found = gpu(name)
    assert {one.kernel for one in found.exceptions} == {"bad_one"}
    other = next(kernel for kernel in found.kernels if kernel.name == "long_one")
    assert (other.blocks, other.warps) == (3, 6) and {letter for block in other.resident for letter in block.warps} <= {"r", "w"}
    said = re.findall(r"^\W*\d +- .* (\w+)\([^)]*\) *$", told(name), re.MULTILINE)
    assert sorted(said) == sorted(kernel.name or "" for kernel in found.kernels)
    assert "beside    kernel long_one was running (6 warps)\n" in screen(both(name))
    assert "<dt>Beside</dt><dd>kernel long_one was running (6 warps)</dd>" in render(both(name))


@pytest.mark.parametrize("name", ["two_streams-blocking", "cupy_threads-blocking"])
def test_of_two_threads_in_a_launch_the_one_that_names_the_kernel(name: str) -> None:
    """One by the function of nvcc's that launches the kernel, one by the Python line; the other thread launches the other kernel."""
    found, line = launch(name)
    assert (found.thread, found.exact) == (int(facts(name)["bad_one"]), True)
    assert line.endswith(": the bad one")


def test_a_thread_in_a_launch_that_names_no_kernel_leaves_it_open() -> None:
    """It may have launched the same kernel by another name."""
    crash, name = both("two_streams-blocking"), facts("two_streams-blocking")
    other = next(thread for thread in crash.threads if thread.tid == int(name["long_one"]))
    frames = tuple(frame for frame in other.frames if "long_one" not in (getattr(frame, "function", None) or ""))
    threads = tuple(replace(other, frames=frames) if thread == other else thread for thread in crash.threads)
    found = launched_from(crash.gpu[0], threads, {"CUDA_LAUNCH_BLOCKING": "1"})
    assert found is not None and found.thread == int(name["bad_one"])
    assert (found.exact, found.candidates) == (False, (int(name["long_one"]),))


def test_a_line_that_only_takes_a_kernel_by_its_name_launches_nothing() -> None:
    """`long_one, bad_one, first, second, (one, other) = cupy_kernels()`"""
    crash, name = both("cupy_threads-blocking"), facts("cupy_threads-blocking")
    without = tuple(thread for thread in crash.threads if thread.tid != int(name["bad_one"]))
    found = launched_from(crash.gpu[0], without, {})
    assert found is not None and (found.thread, found.line, found.source) == (int(name["long_one"]), None, None)


def test_of_two_threads_that_wait_either_may_have_launched_it() -> None:
    found, _ = launch("two_streams")
    assert not found.exact
    assert {found.thread, *found.candidates} == {int(facts("two_streams")[one]) for one in ("long_one", "bad_one")}
    assert "one of them launched it, here or earlier" in re.sub(r"\s+", " ", screen(both("two_streams")))


def test_one_thread_with_two_streams() -> None:
    found, line = launch("cupy_streams")
    assert line.endswith("# cupy_streams: notices") and (found.source or "").endswith("# cupy_streams: the bad one")


def test_a_hang_on_one_of_two_devices() -> None:
    found = {kernel.name: kernel for kernel in gpu("two_devices").kernels}
    said = dict(re.findall(r"^\W*\d +- +(\d) .* (\w+)\(\) *$", told("two_devices"), re.MULTILINE))
    assert {str(kernel.device): name for name, kernel in found.items()} == said == {"0": "long_one", "1": "coop_misses"}
    shown = screen(both("two_devices"))
    assert "wait at a barrier of the grid" in shown and "beside    kernel long_one was running (6 warps) on device 0" in shown


@pytest.mark.parametrize("name", CORES)
def test_every_core_is_whole(name: str) -> None:
    assert gpu(name).truncated is False and gpu(name).kernels


def test_blocks_that_ended_are_only_told_where_others_wait_for_them() -> None:
    """An ordinary kernel's blocks come and go."""
    kernel = GpuKernel(grid=(4, 1, 1), blocks=1, warps=1, places=gpu("cluster_misses").kernels[0].places)
    assert not [said for said in standing(kernel) if "ended" in said]
