"""Images that hold a Python and crashkit and nothing else; docs/support-matrix.md says what works there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests import bare_image
from tests.bare_image import PYTHON, crashkit, run
from tests.crashes import cores_land_in_cwd, python_crash

pytestmark = [pytest.mark.chroot, bare_image.needed]
SEGFAULT = "import ctypes; ctypes.string_at(0)"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def test_the_image_is_bare(root):
    script = "import os, shutil; print(*sorted(os.listdir('/'))); print(shutil.which('sh'), shutil.which('gdb')); open('/x', 'w')"
    done = run("-c", script, root=root)
    assert "bin" not in done.stdout.split()
    assert done.stdout.splitlines()[1] == "None None"
    assert "Read-only file system" in done.stderr


def test_a_core_is_analyzed_without_gdb(root, tmp_path):
    folder = tmp_path / "evidence"
    folder.mkdir()
    shutil.copy(python_crash("threads.py", python=PYTHON).core, folder)
    done = crashkit("analyze", "/tmp/core", "--json", root=root, writable="evidence", folder=folder)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    crashed = next(thread for thread in report["threads"] if thread.get("crashed"))
    assert "read" in [frame.get("function") for frame in crashed["frames"]]
    assert any(error["stage"] == "gdb" and error["hint"] for error in report["soft_errors"])


@pytest.mark.parametrize("writable", ["tmp", "nothing"])
def test_a_command_runs_and_says_what_it_can(root, writable):
    with cores_land_in_cwd():
        done = crashkit("run", "--", PYTHON, "-c", SEGFAULT, root=root, writable=writable)
    assert done.returncode == (139 if writable == "tmp" else -11), done.stderr
    assert "in string_at" in done.stderr and "Traceback" not in done.stderr
    assert "Set CRASHKIT_HOME to a writable folder" in done.stderr
    assert ("report.html" in done.stderr) == (writable == "tmp")


def test_a_command_that_cannot_be_run_is_told_as_ever(root):
    done = crashkit("run", "--", "/no/such/program", root=root, writable="nothing")
    assert done.returncode == 127
    told, hint = done.stderr.splitlines()[-2:]
    assert told == "crashkit: cannot run '/no/such/program': No such file or directory"
    assert hint == "crashkit: Check its name, and PATH."


@pytest.mark.parametrize("command", ["doctor", "list", "demo", "signatures list"])
@pytest.mark.parametrize("writable", ["tmp", "nothing"])
def test_every_other_command_answers(root, command, writable):
    done = crashkit(*command.split(), root=root, writable=writable)
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout or done.stderr
    assert "Traceback" not in done.stderr


def test_analyze_where_nothing_can_be_written(root):
    core = python_crash("threads.py", python=PYTHON).core
    done = run("-m", "crashkit", "analyze", "-", "--json", root=root, writable="nothing", stdin=core)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["signal"]["reason"] == "null-pointer" and len(report["threads"]) == 7
    assert {error["stage"] for error in report["soft_errors"]} >= {"gdb", "pystack"}
    (crashed,) = (thread for thread in report["threads"] if thread.get("crashed"))
    frames = [frame["function"] for frame in crashed.get("python_frames") or crashed["frames"] if frame["kind"] == "python"]
    assert frames[:2] == ["string_at", "read"]
