"""A process whose main thread waits for a child: the answer is the child, and what that waits for, not what a background thread reads."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from crashkit.collect.attach import attach
from crashkit.collect.child_processes import awaited_children
from crashkit.pipeline import Options
from tests.attach.programs import ended, running, until_asleep
from tests.crashes import an_interpreter, needs_x86_64

pytestmark = [needs_x86_64(), pytest.mark.slow]
HEAD = "import os, subprocess, sys, threading\n"
READER = """
idle = os.pipe()
threading.Thread(target=os.read, args=(idle[0], 1), daemon=True).start()
"""
WAITS = """
def build():
    child = subprocess.Popen([{command}], stdin=subprocess.PIPE)
    print("ready", child.pid, flush=True)
    child.wait()
build()
"""
NESTED = "sys.executable, '-Ic', 'import subprocess; subprocess.Popen([\"sleep\", \"1000\"]).wait()'"


@pytest.mark.parametrize("reader", ["", READER], ids=["alone", "beside-a-reader"])
def test_the_child_waits_for_its_parent(reader: str, tmp_path: Path) -> None:
    """Its input never ends, as the parent holds the pipe; a worker of pytest-xdist has a thread that reads an idle pipe besides."""
    program = HEAD + reader + WAITS.format(command="'cat'")
    with running(an_interpreter(), program, tmp_path) as (process, words):
        child = int(words[0])
        with ended(child):
            until_asleep(process.pid, 2 if reader else 1)
            until_asleep(child, 1)
            crash = attach(process.pid, Options(gdb=None))
    assert (crash.waits[0].thread, crash.waits[0].kind, crash.waits[0].process) == (process.pid, "child", child)
    assert re.fullmatch(
        rf"process {child} \(cat\): it waits for a pipe that process {process.pid} \(\S+\) has open for writing", crash.waits[0].name or ""
    )
    (finding,) = crash.findings
    assert (finding.id, finding.confidence) == (
        "deadlock-child-pipe",
        "likely",
    ) and f"build (program.py:{9 if reader else 6}) for a child process" in (finding.summary or "")
    assert "communicate" in finding.fix[0] and not any("socket" in fix for fix in finding.fix)
    assert "reads a pipe that only its parent can close" in finding.summary


def test_nobody_reads_what_the_child_writes(tmp_path: Path) -> None:
    program = HEAD + WAITS.format(command="'head', '-c', '1000000', '/dev/zero'").replace("stdin", "stdout")
    with running(an_interpreter(), program, tmp_path) as (process, words):
        child = int(words[0])
        with ended(child):
            until_asleep(process.pid, 1)
            until_asleep(child, 1)
            crash = attach(process.pid, Options(gdb=None))
    (finding,) = crash.findings
    assert (finding.id, finding.confidence) == ("deadlock-child-pipe", "likely")
    assert "writes into a pipe that is full" in finding.summary


QUEUED = """
import multiprocessing, os
queue = multiprocessing.get_context("fork").Queue()
def fills():
    queue.put(b"x" * 10_000_000)
    print("ready", os.getpid(), flush=True)
process = multiprocessing.get_context("fork").Process(target=fills)
process.start()
process.join()
"""


def test_a_queue_that_is_not_read_before_its_process_ends(tmp_path: Path) -> None:
    with running(an_interpreter(), QUEUED, tmp_path) as (_, words):
        child = int(words[0])
        with ended(child):
            until_asleep(child, 2)
            crash = attach(child, Options(gdb=None))
    (finding,) = crash.findings
    assert (finding.id, finding.confidence) == ("hang-queue-not-read", "likely")
    assert "QueueFeederThread" in finding.summary and "queue.get()" in finding.fix[0]


def test_what_a_child_was_started_with_is_masked(tmp_path: Path) -> None:
    command = "'/bin/sh', '-c', 'read line', 'client', '--password', 'hunter2-of-the-child'"
    with running(an_interpreter(), HEAD + WAITS.format(command=command), tmp_path) as (process, words):
        child = int(words[0])
        with ended(child):
            until_asleep(process.pid, 1)
            until_asleep(child, 1)
            found = awaited_children(process.pid, (child,))
    assert "client --password" in found[child] and "hunter2" not in found[child]


@pytest.mark.parametrize(
    ("command", "signals", "said"),
    [
        ("'sleep', '1000'", (), r"process \d+ \(sleep 1000\): it waits for a point in time"),
        ("'sleep', '1000'", (signal.SIGSTOP,), r"process \d+ \(sleep 1000\): it was stopped by a signal, until SIGCONT"),
        (NESTED, (), r"process \d+ \(.*\): it waits for process \d+ \(sleep 1000\): it waits for a point in time"),
    ],
    ids=["sleeps", "stopped", "nested"],
)
def test_what_the_child_does(command: str, signals: tuple[signal.Signals, ...], said: str, tmp_path: Path) -> None:
    with running(an_interpreter(), HEAD + WAITS.format(command=command), tmp_path) as (process, words):
        child = int(words[0])
        with ended(child):
            until_asleep(process.pid, 1)
            until_asleep(child, 1)
            grandchildren = Path(f"/proc/{child}/task/{child}/children").read_text().split()
            try:
                for one in signals:
                    os.kill(child, one)
                    while Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                        pass
                crash = attach(process.pid, Options(gdb=None))
            finally:
                for pid in map(int, grandchildren):
                    os.kill(pid, signal.SIGKILL)
    assert re.fullmatch(said, crash.waits[0].name or ""), crash.waits[0].name
    assert [finding.id for finding in crash.findings] == ["hang-child"]
