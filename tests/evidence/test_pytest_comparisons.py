"""Values that a test compared are none of what happened, though they may be the words of a crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from crashkit.evidence.text.log import LogEvidence, read_log

TEST = """
import pytest

SHOWN = "SIGSEGV  Segmentation fault\\n"

class Shown(str):
    def __repr__(self):
        return "Segmentation fault (core dumped)"

def test_it():
    assert "\\x1b" in SHOWN.replace("x", "Fatal Python error: Aborted")

def test_text():
    assert not Shown("x").strip() == "x"

def test_raised():
    {raised}
"""


def printed(raised: str, folder: Path) -> LogEvidence:
    (folder / "test_shown.py").write_text(TEST.replace("{raised}", raised))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:crashkit", "-q", "test_shown.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert "SIGSEGV  Segmentation fault" in done.stdout and "where" in done.stdout
    (folder / "pytest.log").write_text(done.stdout)
    return read_log(folder / "pytest.log")


def test_compared_values_are_no_crash(tmp_path: Path) -> None:
    found = printed("pass", tmp_path)
    assert found.signal is None and {line.kind for line in found.lines} == {"mentioned"}


def test_what_a_test_raised_counts(tmp_path: Path) -> None:
    found = printed('raise RuntimeError("CUDA error: device-side assert triggered")', tmp_path)
    assert "device-assert" in {line.kind for line in found.lines}
