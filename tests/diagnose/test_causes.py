"""Each real crash is known by its own signature, first, on several interpreters. What core and log tell alone: test_confusion.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.pipeline import analyze

from ..crashes import CRASHERS, NO_NAMESPACES, NO_TORCH, Interpreter, an_interpreter, python_crash, some_interpreters, these_versions
from .causes import CAUSES, Cause, analyzed, evidence, first, library, log_of, made

PAIRS = [
    pytest.param(cause, *one.values, id=f"{cause.signature}-{one.id}", marks=one.marks)
    for cause in CAUSES
    for one in (these_versions if cause.old else some_interpreters)(*cause.pythons)
    if one.values[0] is None or one.values[0].version < cause.before
]


@pytest.mark.slow
@pytest.mark.parametrize(("cause", "python"), PAIRS)
def test_core_and_log(cause: Cause, python: Interpreter) -> None:
    folder = made(cause, python, faulthandler=python.version[:2] != (3, 9))
    crash = analyzed(evidence(folder))
    assert first(crash) == cause.signature, [(finding.id, finding.confidence) for finding in crash.findings]
    assert not [error for error in crash.soft_errors if error.stage == "diagnose"]


@pytest.mark.slow
@pytest.mark.parametrize("signature", ["deadlock-gil-static-init", "deadlock-gil-native-lock"])
def test_a_hang_that_a_watchdog_in_the_process_ended(signature: str) -> None:
    """Its thread was still in raise() when the core was written, and counts as the one that died."""
    cause = next(cause for cause in CAUSES if cause.signature == signature)
    arguments = (cause.kind or signature, str(library("causes")))
    folder = python_crash(cause.script, *arguments, python=an_interpreter(), environment={"CRASHKIT_TEST_RAISES": "1"})
    assert first(analyzed(evidence(folder))) == signature


@pytest.mark.slow
def test_finding_in_the_users_words() -> None:
    """Evidence points at frames that exist; the user's own line is named."""
    cause = next(cause for cause in CAUSES if cause.signature == "gil-not-held")
    crash = analyzed(evidence(made(cause, an_interpreter())))
    finding = crash.findings[0]
    assert finding.confidence == "certain"
    assert finding.evidence
    assert "ctypes.PyDLL(" in finding.fix[0] and any("PyGILState_Ensure" in fix for fix in finding.fix)
    threads = {thread.tid: thread for thread in crash.threads}
    for item in finding.evidence:
        assert item.frame is None or item.frame < len(threads[item.thread].frames)


EXTENSIONS = {
    "abi-undefined-symbol": (
        "_ZN3c105ErrorC2ENS_14SourceLocationESs",
        'extern "C" void _ZN3c105ErrorC2ENS_14SourceLocationESs(); void f() { _ZN3c105ErrorC2ENS_14SourceLocationESs(); }',
        (),
    ),
    "static-tls-exhausted": (
        "",
        '__thread char big[1 << 20] __attribute__((tls_model("initial-exec"))); extern "C" char *f() { return big; }',
        (),
    ),
    "asan-runtime-order": ("", "int f(int *p) { return *p; }", ("-fsanitize=address",)),
}


@pytest.mark.parametrize("signature", EXTENSIONS)
def test_extension_that_does_not_load(signature: str, tmp_path: Path) -> None:
    _, source, options = EXTENSIONS[signature]
    path = library(signature, *options, source=source)
    log = log_of(tmp_path, sys.executable, str(CRASHERS / "causes.py"), signature, str(path), LD_PRELOAD="")
    assert first(analyze(log)) == signature, log.read_text()


def test_killed_by_sigterm(tmp_path: Path) -> None:
    script = f"{sys.executable} {CRASHERS / 'causes.py'} killed-by-sigterm; exit $?"
    status = subprocess.run(["bash", "-c", script], check=False, timeout=60, capture_output=True).returncode
    log = tmp_path / "ci.log"
    log.write_text(f"Error: Process completed with exit code {status}.\n")
    assert first(analyze(log)) == "killed-by-sigterm"


def test_killed_by_sigkill_without_evidence(tmp_path: Path) -> None:
    log = log_of(tmp_path, "bash", "-c", "bash -c 'kill -9 $$'; true")
    crash = analyze(log)
    assert first(crash) == "killed-by-signal-9-unknown"
    assert crash.findings[0].confidence == "possible"


TORCH = {
    "cxx-uncaught-c10-error": {},
    "dataloader-worker-killed-segv": {},
    "dataloader-worker-killed-sigkill": {},
}


@pytest.mark.torch
@pytest.mark.parametrize("signature", TORCH)
def test_torch(signature: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=NO_TORCH)
    log = log_of(tmp_path, sys.executable, str(CRASHERS / "causes.py"), signature, PYTHONFAULTHANDLER="1")
    assert first(analyze(log)) == signature, log.read_text()


@pytest.mark.torch
def test_full_shared_memory(tmp_path: Path) -> None:
    """In a mount namespace of its own, with a /dev/shm of one megabyte."""
    pytest.importorskip("torch", reason=NO_TORCH)
    command = f"mount -t tmpfs -o size=1m tmpfs /dev/shm && exec {sys.executable} {CRASHERS / 'causes.py'} dataloader-shm-exhausted"
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip(NO_NAMESPACES)
    log = log_of(tmp_path, unshare, "-rm", "sh", "-c", command)
    assert first(analyze(log)) == "dataloader-shm-exhausted", log.read_text()


@pytest.mark.torch
def test_openmp_in_a_forked_child(tmp_path: Path) -> None:
    """The parent ends itself once its child stood still and was stopped with a core."""
    pytest.importorskip("torch", reason=NO_TORCH)
    from ..crashes import crash

    if os.cpu_count() == 1:
        pytest.skip("one processor: OpenMP starts no team")
    folder = crash([sys.executable, CRASHERS / "causes.py", "fork-openmp-hang"], tmp_path)
    found = analyze(folder.core)
    assert first(found) == "fork-openmp-hang", [(finding.id, finding.confidence) for finding in found.findings]
