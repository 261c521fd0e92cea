"""A process that waits for a kernel that does not end: reports of an H200 (fixtures/gpu/hangs), and what looks like one and is none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import Crash, Gpu, GpuKernel, Source
from crashkit.report.json import decode
from tests.diagnose.synthetic import crash
from tests.gpu_cores import gpu, side

HANGS = Path(__file__).parents[2] / "fixtures" / "gpu" / "hangs"
DRIVER = "?? [libcuda.so.580.1] > ?? [libcuda.so.580.1] > "
SYNCHRONISES = DRIVER + "cuStreamSynchronize [libcuda.so.580.1] > cudaStreamSynchronize [libcudart.so.13] > py /srv/train.py:40 step"
LAUNCHES = DRIVER + "cuLaunchKernel [libcuda.so.580.1] > cudaLaunchKernel [libcudart.so.13] > py /srv/train.py:39 step"
ASKS_ONCE = DRIVER + "cuStreamQuery [libcuda.so.580.1] > py /srv/train.py:40 step"
COPIES = DRIVER + "cuMemcpyDtoH_v2 [libcuda.so.580.1] > py /srv/train.py:40 step"
THROUGH_THE_CLOCK = "clock_gettime > clock_gettime [libc.so.6] > " + SYNCHRONISES
CALLBACK = "malloc [libc.so.6] > py /srv/train.py:7 hook > ?? [libcudart.so.13] > cudaStreamSynchronize [libcudart.so.13] > main"
WATCHDOG = "pthread_cond_timedwait > c10d::ProcessGroupNCCL::ncclCommWatchdog() [libtorch_cuda.so] > start_thread"
RUNNING = Gpu(path="x.nvcudmp", kernels=(GpuKernel(name="spin", mangled="_Z4spinPVi", warps=1),))
COLLECTIVE = Gpu(path="x.nvcudmp", kernels=(GpuKernel(name="ncclDevKernel_AllReduce", mangled="_Z23ncclDevKernel_AllReduce", warps=8),))


def found(crash: Crash) -> list[tuple[str, str]]:
    return [(finding.id, finding.confidence) for finding in diagnose(crash, load_catalog()).findings]


def hang(crash: Crash) -> str | None:
    return dict(found(crash)).get("hang-gpu")


def recorded(name: str) -> Crash:
    return decode(gzip.decompress((HANGS / f"{name}.json.gz").read_bytes()))


def sent(frames: str, signal: str = "SIGQUIT", others: tuple[str, ...] = ()) -> Crash:
    """Somebody ended the process."""
    made = crash(frames=frames, others=list(others), signal=signal)
    assert made.signal is not None
    return replace(made, signal=replace(made.signal, code=0, reason="sent"))


@pytest.mark.parametrize("name", ["synchronize", "item", "event", "backward", "masked_backward", "thread", "cupy"])
def test_real_hangs(name: str) -> None:
    seen = recorded(name)
    first = diagnose(seen, load_catalog()).findings[0]
    assert (first.id, first.confidence) == ("hang-gpu", "likely")
    assert seen.source is not None and (seen.source.looked_at or "")[1:] in (first.summary or "")


@pytest.mark.parametrize("name", ["seen-once", "healthy-train", "healthy-train-computes", "healthy-heavy"])
def test_one_look_tells_nothing(name: str) -> None:
    """A healthy training looks the same."""
    assert hang(recorded(name)) is None


def test_with_a_dump_of_the_gpu() -> None:
    """Which kernel it is, the dump knows: of a live process, of a core, whatever ended it."""
    for process in (recorded("item"), crash(frames=SYNCHRONISES), crash(frames=COPIES)):
        seen = diagnose(replace(process, gpu=(RUNNING,)), load_catalog()).findings
        one = next(finding for finding in seen if finding.id == "hang-gpu")
        assert one.confidence == "likely" and "Kernel spin was still running." in (one.summary or "")


def test_a_barrier_is_told_as_one() -> None:
    both = replace(side("torch_hang"), gpu=(gpu("torch_hang"),))
    assert found(both)[0] == ("cuda-kernel-hang", "likely")


@pytest.mark.parametrize("frames", [SYNCHRONISES, COPIES, THROUGH_THE_CLOCK])
@pytest.mark.parametrize("signal", ["SIGQUIT", "SIGABRT"])
def test_ended_by_somebody(frames: str, signal: str) -> None:
    assert hang(sent(frames, signal)) == "possible"


LOOK_ALIKES = {
    "looked at once": replace(crash(frames=SYNCHRONISES), source=Source(path="/proc/1", kind="live")),
    "a core of a process that runs": crash(frames=SYNCHRONISES),
    "launches": sent(LAUNCHES),
    "launches, and its kernel runs": replace(crash(frames=LAUNCHES), gpu=(RUNNING,)),
    "asks once": sent(ASKS_ONCE),
    "runs Python below it": sent(CALLBACK),
    "a rank that waits for others": sent(SYNCHRONISES, others=(WATCHDOG,)),
    "a collective of which the dump tells": replace(crash(frames=SYNCHRONISES), gpu=(COLLECTIVE,)),
    "a crash meanwhile": crash(frames="memcpy [libc.so.6] > main", others=[SYNCHRONISES], signal="SIGSEGV"),
    "another hang": replace(recorded("item"), source=Source(path="/proc/1", kind="live", looked_at="no output and no progress for 60 s")),
}


@pytest.mark.parametrize("kind", LOOK_ALIKES)
def test_not_claimed(kind: str) -> None:
    assert hang(LOOK_ALIKES[kind]) is None


def test_a_rank_that_was_watched_is_not_claimed() -> None:
    """Its kernel may be a collective's, which waits for another rank."""
    alone = recorded("item")
    rank = replace(alone, threads=(*alone.threads, *crash(frames=WATCHDOG).threads))
    assert hang(rank) is None
