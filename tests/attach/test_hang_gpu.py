"""`crashkit run --cuda --hang-after`: the driver of a process that hangs is asked for its GPU core, and the report has both sides.

The driver is played by a thread that does what driver 580 does: it makes a pipe, and when a MiB has come through it, it writes the dump
(a recorded one) and aborts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from crashkit.collect import gpu_request
from crashkit.collect.host import cuda
from tests.collect.conftest import Crashkit
from tests.gpu_cores import data

DRIVER = """
import ctypes, os, signal, socket, threading
def place(name): return os.environ[name].replace("%h", socket.gethostname()).replace("%p", str(os.getpid())).replace("%t", "1795366632")
pipe = place("CUDA_COREDUMP_PIPE")
os.mkfifo(pipe)
def driver():
    with open(pipe, "rb") as file:
        left = 1 << 20
        while left and (read := file.read(left)): left -= len(read)
    with open(place("CUDA_COREDUMP_FILE"), "wb") as file: file.write(open("hang.nvcudmp", "rb").read())
    os.abort()
threading.Thread(target=driver, daemon=True).start()
"""


@pytest.fixture
def crashkit(tmp_path: Path) -> Crashkit:
    made = Crashkit(tmp_path)
    (made.cwd / "hang.nvcudmp").write_bytes(data("native_hang"))
    return made


def manifests(crashkit: Crashkit) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(crashkit.home.glob("*/manifest.json"))]


@pytest.mark.slow
def test_both_sides_in_one_report(crashkit: Crashkit) -> None:
    program = crashkit.cwd / "program.py"
    program.write_text(DRIVER + "def waits(): signal.pause()\nwaits()\n")
    done = crashkit("run", "--cuda", "--hang-after", "1", "--on-hang", "abort", "--", sys.executable, program)
    assert done.returncode == 128 + signal.SIGABRT, done.stderr
    assert "died of" not in done.stderr and "ending the command" not in done.stderr
    (manifest,) = manifests(crashkit)
    assert {"core", "gpu-core"} <= {file["kind"] for file in manifest["files"]}
    assert manifest["alive"] == "no output and no progress for 1 s" and "signal" not in manifest
    report = json.loads(next(crashkit.home.glob("*/report.json")).read_text())
    assert [kernel["name"] for kernel in report["gpu"][0]["kernels"]] == ["waits_at_barrier"]
    assert "waits" in {frame.get("function") for thread in report["threads"] for frame in thread["frames"]}
    assert not list(crashkit.cwd.glob("core*")), "its own core was taken while it lived"


@pytest.mark.slow
def test_started_again(crashkit: Crashkit) -> None:
    """The second time it does not hang."""
    code = "if os.path.exists('once'): os._exit(5)\nopen('once', 'w').close()\nsignal.pause()"
    options = ("--no-analyze", "--cuda", "--hang-after", "0.5", "--on-hang", "restart", "--restart-delay", "0")
    done = crashkit("run", *options, "--", sys.executable, "-c", DRIVER + code)
    assert done.returncode == 5, done.stderr
    (manifest,) = manifests(crashkit)
    assert manifest["is_command"] and {"core", "gpu-core"} <= {file["kind"] for file in manifest["files"]}


@pytest.mark.slow
def test_one_that_is_to_go_on_is_not_asked(crashkit: Crashkit) -> None:
    """The driver ends a process that it has written a core of."""
    code = "import sys; sys.stdin.readline(); os._exit(7)"
    process = crashkit.start("run", "--no-analyze", "--cuda", "--hang-after", "0.5", "--", sys.executable, "-c", DRIVER + code, stdin=-1)
    while "was examined" not in (line := process.stderr.readline()):
        assert line
    process.stdin.write("\n")
    process.stdin.close()
    assert process.wait(60) == 7
    (manifest,) = manifests(crashkit)
    assert "gpu-core" not in {file["kind"] for file in manifest["files"]}
    assert any("--on-hang abort" in note for note in manifest["notes"])


@pytest.mark.slow
def test_an_abort_of_its_own_is_a_crash(crashkit: Crashkit) -> None:
    """Of a process that has no pipe, and so was not asked."""
    code = "import os, signal; signal.signal(signal.SIGTERM, lambda *_: os.abort()); signal.pause()"
    options = ("--no-analyze", "--cuda", "--hang-after", "0.5", "--on-hang", "abort")
    crashkit("run", *options, "--", sys.executable, "-c", code)
    assert sorted(manifest.get("signal", 0) for manifest in manifests(crashkit)) == [0, signal.SIGABRT]


def test_what_is_no_pipe_of_the_driver_is_not_written(tmp_path: Path) -> None:
    """A file, a link to a pipe that somebody reads, a pipe that nobody reads, and another process's."""
    mine = os.getpid()
    other = tmp_path / "other"
    os.mkfifo(other)
    reader = os.open(other, os.O_RDONLY | os.O_NONBLOCK)
    for name in ("file", "link", "unread", "another"):
        folder = tmp_path / f"{name}.folder"
        folder.mkdir()
        pipe = folder / f"gpu-pipe.host.{mine}"
        if name == "file":
            pipe.touch()
        elif name == "link":
            pipe.symlink_to(other)
        elif name == "unread":
            os.mkfifo(pipe)
        else:
            os.mkfifo(folder / f"gpu-pipe.host.1{mine}")
        gpu_request.ask(folder, mine)
        assert not cuda.was_asked(folder, mine, 0)
        assert not pipe.is_file() or pipe.stat().st_size == 0
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_driver_that_reads_nothing_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_request, "_PATIENCE", 0.2)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        pipe = tmp_path / f"gpu-pipe.host.{process.pid}"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        asking = threading.Thread(target=gpu_request.ask, args=(tmp_path, process.pid))
        asking.start()
        asking.join(20)
        assert not asking.is_alive()
        os.close(reader)
