"""Continuous integration tries up to three tests again that failed, and says which (.ci/tests)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent / ".ci" / "tests"
PROGRAM = """
import pathlib
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("name", {by_chance})
def test_by_chance(name):
    there = pathlib.Path(name)
    if not there.exists():
        there.touch()
        raise AssertionError

def test_of_a_fault():
    assert {right}
"""
PYTEST = f'#!/bin/sh\nexec "{sys.executable}" -m pytest "$@"\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by_chance", "right", "again", "status"),
    [(3, True, True, 0), (0, True, True, 0), (4, True, True, 1), (2, False, True, 1), (1, True, False, 1)],
)
def test_what_fails_once(by_chance: int, right: bool, again: bool, status: int, tmp_path: Path) -> None:
    names = [f"chance-{number}" for number in range(by_chance)]
    (tmp_path / "test_program.py").write_text(PROGRAM.format(by_chance=names, right=right))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pytest").write_text(PYTEST)
    (tmp_path / "bin" / "pytest").chmod(0o755)
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CRASHKIT_"))}
    if again:
        environment["CRASHKIT_TEST_AGAIN"] = str(tmp_path / "again")
    run = subprocess.run(
        [TESTS, "bin/pytest", "-n", "2", "--dist", "worksteal"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert run.returncode == status, run.stdout
    listed = (tmp_path / "again").read_text().splitlines() if (tmp_path / "again").exists() else []
    assert sorted(line.rpartition("[")[2] for line in listed) == ([f"{name}]" for name in names] if status == 0 else [])
