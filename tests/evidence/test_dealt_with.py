"""Lines that a program prints of what it has dealt with, of checks and tests, of mentions: none of them tells what ended a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.errors import EvidenceError
from crashkit.pipeline import analyze

LINES = [
    "QXcbConnection: XCB error: 3 (BadWindow), sequence: 774, resource id: 123\nX Error: BadWindow (invalid Window parameter) 3",
    "Dec 10 10:11:12 host gsd-color[1234]: X connection to :0 broken (explicit kill or server shutdown).",
    "wine: X Error of failed request:  BadDrawable (ignored)",
    "INFO docs: systemd-oomd killed some process(es) means pressure",
    "Runtime.OutOfMemory handler installed",
    "CUDA test failure 214 of 1000",
    "CUDA error: 220 warnings",
    "    CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,",
    "kernel: NVRM: Xid (PCI:0000:01:00): 144, NVLINK: SAW_MVB Non-fatal Link-04",
    "-- FORTIFY: enabled",
    "gcc: FORTIFY: source level 2 is set by default",
    "configure: checking for libfoo... error while loading shared libraries: libfoo.so.1: "
    "cannot open shared object file: No such file or directory",
    "test gpu::error::tests::ErrorDeviceLost ... ok",
    "error[E0004]: non-exhaustive patterns: `vk::Result::ErrorDeviceLost` not covered",
    "[Warning] Present1 failed with DXGI_ERROR_DEVICE_HUNG, device was successfully reset",
    "amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=12, emitted seq=14\n"
    "amdgpu 0000:03:00.0: amdgpu: ring reset succeeded",
    "Job 17-ERROR **: timeout",
    "PHASE-ERROR **: retrying",
    "Error: attempt to compare nil with number elements",
    "cypress/e2e/login:31: assertion element visible failed: Timed out retrying",
    "Fatal error. Please try again later.",
    "[W] CUDA error 2: out of memory; freeing cache and retrying",
    "vkAllocateMemory: VK_ERROR_OUT_OF_DEVICE_MEMORY, retrying on host memory",
    "test_pure_virtual_function_called passed: Pure virtual function called",
    "supervisor: Non-OK-status: http_get status: NOT_FOUND: object missing, using default",
    "qemu: invalid pthread_t 0x7f passed to pthread_join, ignoring",
    "fdsan: attempted to close file descriptor 12, expected to be unowned, actually owned by FILE* 0x1 (warn-once mode)",
    "nginx.service: Reload operation timed out. Stopping.",
    "WARNING: CUDA driver is a stub library, using CPU",
    "*** An error occurred in MPI_Allreduce\n*** MPI_ERR_PROC_FAILED: Process Failure\n"
    "*** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,",
]


@pytest.mark.parametrize("text", LINES, ids=lambda text: text[:50])
def test_at_most_possible(text: str, tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    log.write_text(text + "\n")
    try:
        found = analyze(log).findings
    except EvidenceError:
        return
    assert {finding.confidence for finding in found} <= {"possible"}, [(finding.id, finding.confidence) for finding in found]


def test_an_aborts_cause_is_not_hidden_by_a_helpers_display(tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    log.write_text("terminate called without an active exception\nAborted (core dumped)\nzenity: cannot open display: \n")
    assert analyze(log).findings[0].id == "cxx-terminate-no-exception"
