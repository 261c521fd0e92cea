"""A command that the supervisor runs again because it was asked to: one supervisor, a crash for each run, each with its own stderr."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.collect.conftest import DEADLINE
from tests.testrun.conftest import Pytest

DRIVER = """
import os, signal, sys
from pathlib import Path
from crashkit.collect.run import Request, run

seen = []
def again(status, stderr):
    kept = Path("kept").read_text().split("\\n")[:-1]
    assert all((Path(folder) / "manifest.json").exists() for folder in kept), "the crash is kept before we are asked"
    own = [line for line in stderr.decode().splitlines() if not line.startswith("crashkit: ")]  # where it is a file
    seen.append((os.waitstatus_to_exitcode(status), own, len(kept)))
    return len(seen) < 3

command = (
    "import os, sys; number = len(os.listdir('runs')); open(f'runs/{number}', 'w'); "
    "print(f'run {number}', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)"
)
status = run(Request(command=(sys.executable, "-c", command), analyze=False, again=again, kept=Path("kept").absolute()))
print(status, seen)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_each_run_has_its_own_crash_and_its_own_stderr(kind: str, run: Pytest, tmp_path: Path) -> None:
    (run.folder / "runs").mkdir()
    with (tmp_path / "stderr").open("w") as file:
        done = subprocess.run(
            [sys.executable, "-c", DRIVER],
            cwd=run.folder,
            env=run.runner.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file if kind == "file" else subprocess.PIPE,
            text=True,
            timeout=DEADLINE,
        )
    assert done.stdout == f"137 {[(-9, [f'run {number}'], number + 1) for number in range(3)]}\n", done.stderr
    assert [(crash["folder"] / "stderr.log").read_text() for crash in run.runner.crashes()] == [f"run {number}\n" for number in range(3)]
