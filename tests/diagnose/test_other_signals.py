"""Signals that end a process and are no fault: limits that it reached, timers and requests that nothing handled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from crashkit.errors import EvidenceError
from crashkit.pipeline import analyze
from crashkit.report import text

from ..crashes import CRASHERS, an_interpreter, python_crash

SIGNATURES = {
    "XCPU": "cpu-time-limit",
    "XFSZ": "file-size-limit",
    "ALRM": "signal-without-handler",
    "VTALRM": "signal-without-handler",
    "PROF": "signal-without-handler",
    "USR1": "signal-without-handler",
    "USR2": "signal-without-handler",
    "IO": "signal-without-handler",
    "PWR": "signal-without-handler",
    "SYS": "seccomp-denied",
    "QUIT": None,
    "HUP": None,
}
"""What is said of a signal's name alone."""


@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("script", ["sh -c 'ulimit -c 0; kill -{name} $$'; true", "make -f {makefile}"], ids=["bash", "make"])
def test_what_the_shell_at_hand_says(script: str, name: str, tmp_path: Path) -> None:
    program, makefile = tmp_path / "run.sh", tmp_path / "Makefile"
    makefile.write_text(f"run:\n\t@exec sh -c 'ulimit -c 0; kill -{name} $$$$'\n")
    program.write_text(script.format(name=name, makefile=makefile) + "\n")
    if script.startswith("make") and shutil.which("make") is None:
        pytest.skip("make is not installed")
    log = tmp_path / "stderr.log"
    log.write_bytes(subprocess.run(["bash", str(program)], check=False, timeout=60, stderr=subprocess.PIPE).stderr)
    crash = analyze(log)
    assert crash.signal is not None and crash.signal.name == f"SIG{name}", log.read_text()
    assert next((finding.id for finding in crash.findings), None) == SIGNATURES[name], log.read_text()


@pytest.mark.parametrize(
    "said",
    [
        "Gurobi: CPU time limit exceeded",
        "scip> CPU time limit exceeded, 3 solutions found",
        "ERROR: file size limit exceeded: upload is larger than 25 MB",
        "Set the alarm clock to 7:30",
        "profiling timer expired callbacks: 3",
        "17 Hangup",
        "[1]  Quit the game",
    ],
)
def test_words_of_others(said: str, tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    log.write_text("".join(f"{number} ordinary line\n" for number in range(40)) + said + "\n")
    with pytest.raises(EvidenceError, match="no crash evidence"):
        analyze(log)


@pytest.mark.parametrize("status", [138, 152, 153, 155])
def test_a_status_alone_proves_no_signal(status: int, tmp_path: Path) -> None:
    log = tmp_path / "ci.log"
    log.write_text(f"The command '/bin/sh -c make' returned a non-zero code: {status}\n")
    assert {finding.confidence for finding in analyze(log).findings} == {"possible"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "signature", "confidence", "line"),
    [
        ("file-size", "file-size-limit", "certain", "write_checkpoint (limits.py:19)"),
        ("cpu-time", "cpu-time-limit", "certain", "simulate (limits.py:"),
        ("itself", "file-size-limit", "possible", "itself (limits.py:34)"),
    ],
)
def test_a_limit_that_the_kernel_enforces(kind: str, signature: str, confidence: str, line: str) -> None:
    """It names the process itself as the sender of SIGXFSZ."""
    crash = analyze(python_crash(CRASHERS / "limits.py", kind, python=an_interpreter()).core)
    assert crash.signal is not None
    assert (signature, confidence) in [(finding.id, finding.confidence) for finding in crash.findings]
    assert {finding.id for finding in crash.findings} == {signature, *(["self-signal"] if kind == "itself" else [])}
    assert crash.signal.reason == ("raised" if kind == "itself" else None), crash.signal
    assert line in "\n".join(map(str, text.summary(crash, None, color=False, width=160)))
