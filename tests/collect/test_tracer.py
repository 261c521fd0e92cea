"""`crashkit run --keep minimal`: the core is taken of the dying process, and no whole one is ever written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.collect.stopped_core import StoppedCore, areas, take_minimal
from crashkit.collect.supervise import tracer
from crashkit.collect.supervise.spawn import spawn
from crashkit.collect.supervise.tracer import Held
from crashkit.crashfolder.store import Store
from crashkit.model import Crash
from crashkit.pipeline import analyze
from tests.collect.conftest import SEGFAULT, Crashkit
from tests.crashes import needs_gdb
from tests.test_minimal import compared

PROGRAM = """
import ctypes, os, threading, time
class Job:
    def __init__(self, number):
        self.name, self.size, self.parts = f"job-{number}", number * 1.5, [1, 2, {"a": (3, 4)}]
ready = threading.Barrier(5)
def wait():
    ready.wait()
    time.sleep(1000)
for number in range(4):
    threading.Thread(target=wait, daemon=True, name=f"sleeper-{number}").start()
ready.wait()
ballast = bytearray(b"x") * (int(os.environ["BALLAST"]) << 20)
def run(job, text):
    table = {f"k{number}": number for number in range(10)}
    ctypes.string_at(16)
run(Job(3), "caf\\u00e9 \\u4e2d")
"""


def trace(crashkit: Crashkit, code: str, take: tracer.Take, environment: dict[str, str]) -> int:
    """Run this code, traced; how it ended, as waitpid(2) says it. What is taken is in the folder `taken`."""
    inbox = Store(crashkit.home).begin("run")
    release, hold = os.pipe()

    def prepare() -> None:
        os.chdir(crashkit.cwd)
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        os.close(hold)
        os.read(release, 1)

    def forked(pid: int) -> None:
        started.append(tracer.watcher(inbox, take)(pid))
        os.close(release)
        os.close(hold)

    started: list[int] = []
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        pid = spawn([sys.executable, "-c", code], {**os.environ, **environment}, set(), {1: nothing, 2: nothing}, prepare, forked)
        _, status = os.waitpid(pid, 0)
        assert started[0] > 0
        os.waitpid(started[0], 0)
    finally:
        os.close(nothing)
    return status


@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("handler", ["0", "1"])
@pytest.mark.parametrize("ballast", ["1", "100"])
def test_the_report_is_that_of_the_whole_core_which_the_kernel_writes(crashkit: Crashkit, ballast: str, handler: str) -> None:
    """Ballast is what gdb does not get to see at once; a handler hides the fault."""
    small = crashkit.cwd / "small"

    def take(held: Held, path: Path) -> bool:
        take_minimal(held, small)
        return False  # so that the kernel writes its core, too

    status = trace(crashkit, PROGRAM, take, {"BALLAST": ballast, "PYTHONFAULTHANDLER": handler})
    whole = crashkit.cwd / "core"
    assert os.WTERMSIG(status) == signal.SIGSEGV and os.WCOREDUMP(status) and whole.exists()
    assert small.stat().st_size < 0.05 * whole.stat().st_size
    times = whole.stat()
    os.utime(small, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert compared(in_order(analyze(whole)), in_order(analyze(small))) == ""


def in_order(crash: Crash) -> Crash:
    """The threads by their numbers: the kernel writes those that did not crash in the order in which they arrive at their end."""
    return replace(crash, threads=tuple(sorted(crash.threads, key=lambda thread: (not thread.crashed, thread.tid or 0))))
