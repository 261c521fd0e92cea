"""Messages that look like a known failure's and are of another program: nothing is claimed above possible, or something else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.text.log import crash_of_log, read_log

LLVM = "PLEASE submit a bug report to https://github.com/llvm/llvm-project/issues/ and include the crash backtrace.\n"
SYMBOL = "python: symbol lookup error: /usr/lib/{library}: undefined symbol: {symbol}\n"
TIMEOUT = "Failed: Timeout (>60.0s) from pytest-timeout.\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/test_x.py", line 3, in test_y\n    wait()\n'
CASES = (
    (LLVM + "Stack dump:\n0.\tProgram arguments: /usr/bin/clang -c x.c\n", "triton-compile-crash", None),
    ("LLVM ERROR: out of memory\n" + LLVM, "triton-compile-crash", None),
    (LLVM + " #3 mlir::PassManager::run(mlir::Operation*)\n", "triton-compile-crash", "likely"),
    (SYMBOL.format(library="libboost_python-py27.so.1.65.1", symbol="PyProperty_Type"), "abi-undefined-symbol", "likely"),
    (SYMBOL.format(library="libcurl.so.4", symbol="nghttp2_option_set"), "abi-undefined-symbol", "likely"),
    (SYMBOL.format(library="fused.so", symbol="_ZN3c104impl23ExcludeDispatchKeyGuardC1Ev"), "abi-undefined-symbol", "certain"),
    ("It would print this:\n\n" + TIMEOUT, "timeout-pytest", "possible"),
    ("E           " + TIMEOUT, "timeout-pytest", "certain"),
    (TRACEBACK + TIMEOUT, "timeout-pytest", "certain"),  # as --tb=native prints it
)


CANCELLED = "slurmstepd: error: *** STEP 55.0 ON n1 CANCELLED AT 2026-11-21T14:00:00 ***\n"
FAILED = "srun: error: n1: task 0: Exited with exit code 1\n"
ASSERTED = "Assertion failed: ptr != NULL && ptr->ok\n"
SUITE = "========= 1 failed, 10 passed in 3.20s =========\n"
CASES += (
    # srun cancels its step because of a task: in its present words, in those of older versions, and without them.
    (FAILED + "srun: Terminating StepId=55.0\n" + CANCELLED, "slurm-job-cancelled", None),
    ("srun: Terminating StepId=55.0\n" + CANCELLED, "slurm-job-cancelled", None),
    ("srun: Terminating job step 55.0\n" + CANCELLED, "slurm-job-cancelled", None),
    ("srun: launch/slurm: _step_signal: Terminating StepId=55.0\n" + CANCELLED, "slurm-job-cancelled", None),
    (FAILED + CANCELLED, "slurm-job-cancelled", None),
    # What a task does of being cancelled is no reason.
    (CANCELLED + FAILED, "slurm-job-cancelled", "likely"),
    (CANCELLED.replace(" ***\n", " DUE TO JOB REQUEUE ***\n"), "slurm-job-cancelled", "certain"),
    (ASSERTED, "c-assertion-failed", "possible"),
    (ASSERTED + SUITE, "c-assertion-failed", None),
    (ASSERTED + "[gw0] node down: Not properly terminated\n" + SUITE, "c-assertion-failed", "possible"),
)


@pytest.mark.parametrize(("text", "id", "confidence"), CASES)
def test_how_sure(text: str, id: str, confidence: str | None, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    findings = diagnose(crash_of_log(log, read_log(log)), load_catalog()).findings
    assert next((finding.confidence for finding in findings if finding.id == id), None) == confidence
