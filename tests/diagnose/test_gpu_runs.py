"""What real runs on a GPU left (fixtures/gpu): logs, gdb's text and stacks of cores."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Crash
from crashkit.report.json import decode

GPU = Path(__file__).parent.parent.parent / "fixtures" / "gpu"

LOGS = {
    "assert-cross-entropy-plain": "cuda-device-assert",
    "assert-cross-entropy-blocking": "cuda-device-assert",
    "assert-labels-from-one-plain": "cuda-device-assert",
    "assert-labels-from-one-blocking": "cuda-device-assert",
    "assert-embedding-plain": "cuda-device-assert",
    "assert-embedding-blocking": "cuda-device-assert",
    "assert-in-thread": "cuda-device-assert",
    "gpu-core-assert": "cuda-device-assert",
    "gpu-core-cross-entropy": "cuda-device-assert",
    "illegal-address-torch-plain": "cuda-illegal-access",
    "illegal-address-torch-blocking": "cuda-illegal-access",
    "illegal-address-driver": "cuda-illegal-access",
    "sanitizer-illegal": "cuda-illegal-access",
    "misaligned-address-torch-plain": "cuda-misaligned-address",
    "misaligned-address-torch-blocking": "cuda-misaligned-address",
    "misaligned-address-driver": "cuda-misaligned-address",
    "gpu-core-misaligned": "cuda-misaligned-address",
    "sanitizer-misaligned": "cuda-misaligned-address",
    "launch-failure-torch": "cuda-launch-failure",
    "no-context-on-thread": "cuda-no-context-on-thread",
    "csan": "csan-data-race",
    "fork-reinit": "cuda-after-fork",
    "fork-dataloader": "cuda-after-fork",
    "fork-driver": "cuda-after-fork",
    "fork-inherited-tensor": "cuda-after-fork",
    "oom": "cuda-oom",
    "concurrent-5-gdb": "cuda-concurrent-launch",
    # One launching thread, or stacks that do not show whether a GPU is in play: silence is right.
    "concurrent-1-gdb": None,
    "single-launcher-faulthandler": None,
    "concurrent-faulthandler": None,
    "concurrent-two-faulthandler": None,
    # The driver calls abort() once it has written the GPU core, which is not here.
    "gpu-core-trap": "self-abort",
}


def of_log(name: str) -> Crash:
    path = GPU / "logs" / f"{name}.log"
    return diagnose(crash_of_log(path, read_log(path)), load_catalog())


def of_report(name: str) -> Crash:
    return diagnose(decode((GPU / "reports" / f"{name}.json").read_bytes()), load_catalog())


def test_every_log_is_expected() -> None:
    assert {path.stem for path in (GPU / "logs").glob("*.log")} == set(LOGS)


@pytest.mark.parametrize("name", LOGS)
def test_log(name: str) -> None:
    found = [finding.id for finding in of_log(name).findings]
    assert found[:1] == ([LOGS[name]] if LOGS[name] else []), found


def test_assert_names_kernel_assertion_and_where_it_was_reported() -> None:
    plain = of_log("assert-cross-entropy-plain").findings[0]
    assert plain.confidence == "certain"
    assert plain.summary is not None
    assert "t >= 0 && t < n_classes" in plain.summary
    assert "nll_loss_forward" in plain.summary
    assert "thread [3,0,0]" in plain.summary
    assert "reported it at /srv/app/device_assert.py:13" in plain.summary


def test_csan_names_both_accesses() -> None:
    summary = of_log("csan").findings[0].summary or ""
    assert "aten::mul.out" in summary
    assert "/srv/app/stream_race.py:8 in <module>" in summary
    assert "/srv/app/stream_race.py:5 in <module>" in summary


def test_concurrent_launches_of_a_core() -> None:
    """The story of seed 003: where each thread came from, the lock around the user's own call, the upgrade."""
    finding = of_report("concurrent-5").findings[0]
    assert (finding.id, finding.confidence) == ("cuda-concurrent-launch", "possible")
    assert finding.summary is not None
    assert finding.summary.count("/srv/app/concurrent_launches.py:33 in recognize") == 5
    assert "with gpu_lock:" in finding.fix[0]
    assert any(text.startswith("pip install --upgrade torch") for text in finding.fix)
    assert len({item.thread for item in finding.evidence if item.thread is not None}) == 5


def test_concurrent_launches_below_a_dump_that_crashed() -> None:
    found = [finding.id for finding in of_report("concurrent-5-faulthandler").findings]
    assert found == ["cuda-concurrent-launch", "faulthandler-secondary-crash"]


def test_one_launching_thread_is_not_concurrent() -> None:
    assert "cuda-concurrent-launch" not in [finding.id for finding in of_report("concurrent-1").findings]
    crash = of_report("concurrent-5")
    alone = tuple(thread for thread in crash.threads if thread.crashed or not any(thread.pythons()))
    assert len(alone) > 10, "the driver's and OpenBLAS's own threads"
    findings = diagnose(msgspec.structs.replace(crash, threads=alone), load_catalog()).findings
    assert "cuda-concurrent-launch" not in [finding.id for finding in findings]
