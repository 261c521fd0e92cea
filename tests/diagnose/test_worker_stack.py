"""What a supervisor says of its worker: whether the worker's own stack is there is told as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.naming.own_code import python_frames
from crashkit.pipeline import analyze

from ..crashes import an_interpreter, needs_gdb, python_crash

PROGRAM = """
import concurrent.futures, ctypes

def decode(pointer):
    return ctypes.string_at(pointer)

if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        pool.submit(decode, 0).result()
"""
MISSING = "The worker's own stack is not in this text."
DUMPS = "PYTHONFAULTHANDLER=1"


@pytest.mark.slow
@pytest.mark.parametrize("dumps", [True, False])
def test_the_stack_of_a_worker(dumps: bool, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(PROGRAM)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONFAULTHANDLER"}
    command = ["prlimit", "--core=0", sys.executable, *(["-X", "faulthandler"] if dumps else []), "work.py"]
    ended = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60)
    assert "BrokenProcessPool" in ended.stderr
    (tmp_path / "work.log").write_text(ended.stderr)
    crash = analyze(tmp_path / "work.log")
    (finding,) = (finding for finding in crash.findings if finding.id == "supervisor-worker-crashed")
    shown = [frame.function for thread in crash.threads if thread.crashed for frame in python_frames(thread)]
    assert ("decode" in shown) == dumps
    assert (MISSING in (finding.summary or "")) == (not dumps)
    assert any(DUMPS in fix for fix in finding.fix) == (not dumps)


LOOP = """import ctypes
def fetch(index):
    return ctypes.string_at(index)
def _worker_loop():
    fetch(0)
_worker_loop()
"""


@pytest.mark.slow
@needs_gdb
def test_the_core_of_a_dataloader_s_worker_is_about_what_failed(tmp_path: Path) -> None:
    """It is the process that crashed; its parent is the one that only reports it."""
    script = tmp_path / "torch/utils/data/_utils/worker.py"
    script.parent.mkdir(parents=True)
    script.write_text(LOOP)
    found = analyze(python_crash(script, python=an_interpreter()).core).findings
    assert [finding.id for finding in found] == ["null-deref", "dataloader-worker-crashed"]
    assert found[1].summary.startswith("This process was a worker of a DataLoader")


@pytest.mark.slow
@needs_gdb
@pytest.mark.parametrize(
    ("path", "function"),
    [
        ("torch/utils/data/_utils/worker.py", "get_worker_info"),  # any process may ask whether it is a worker
        ("nottorch/utils/data/_utils/worker.py", "_worker_loop"),
        ("service/worker.py", "_worker_loop"),
    ],
)
def test_another_worker_file_is_none_of_torch_s_loop(path: str, function: str, tmp_path: Path) -> None:
    script = tmp_path / path
    script.parent.mkdir(parents=True)
    # The tests share the crashes of scripts with the same name and text.
    script.write_text(f"# {path}\n{LOOP.replace('_worker_loop', function)}")
    found = analyze(python_crash(script, python=an_interpreter()).core).findings
    assert [finding.id for finding in found] == ["null-deref"]
