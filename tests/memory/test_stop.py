"""Threads are stopped in their own time, and continue with every signal that was theirs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crashkit.memory import ptrace, stop
from crashkit.memory.stop import Stopped, reap, stop_threads, threads

TRAPS = """
import signal, sys
handled, sent, over = 0, 0, False
def on_trap(*_):
    global handled
    handled += 1
def on_end(*_):
    global over
    over = True
signal.signal(signal.SIGTRAP, on_trap)
signal.signal(signal.SIGUSR1, on_end)
print("ready", flush=True)
while not over:
    sent += 1
    signal.raise_signal(signal.SIGTRAP)
    if handled != sent:
        break
print(sent - handled, flush=True)
"""
MAIN_ENDS = """
import ctypes, sys, threading
threading.Thread(target=threading.Event().wait).start()
print("ready", flush=True)
sys.stdin.buffer.raw.read(1)
ctypes.CDLL(None).pthread_exit(None)
"""


@contextmanager
def running(program: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def test_a_trap_of_its_own_is_not_taken_for_a_stop_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that handles SIGTRAP gets also the one that it was about to get as we stopped it."""
    seize = ptrace.seize

    def until_it_traps(tid: int, options: int = 0) -> None:
        seize(tid, options)
        os.waitid(os.P_PID, tid, os.WSTOPPED | os.WNOWAIT)

    monkeypatch.setattr(ptrace, "seize", until_it_traps)
    with running(TRAPS) as process:
        with Stopped(process.pid) as stopped:
            assert stopped.threads == [process.pid]
        process.send_signal(signal.SIGUSR1)
        assert process.stdout is not None and process.stdout.readline() == b"0\n"


def test_a_main_thread_that_has_ended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end is not told before all others have ended, so whoever waited for it would wait for as long as it may."""
    monkeypatch.setattr(stop, "_PATIENCE", 1e9)
    with running(MAIN_ENDS) as process:
        for tid in threads(process.pid):
            ptrace.seize(tid)
        assert process.stdin is not None
        process.stdin.write(b"x")
        while "\nState:\tZ" not in Path(f"/proc/{process.pid}/status").read_text():
            time.sleep(0.001)
        stopped: dict[int, int] = {}
        assert stop_threads(process.pid, stopped, lambda tid: None, reap) == set()
        assert stopped == {tid: 0 for tid in threads(process.pid) if tid != process.pid} != {}
        for tid in stopped:
            ptrace.let_go(tid)


def test_what_the_tracer_imports_is_light() -> None:
    """`crashkit run` starts it beside the command."""
    code = "import sys, crashkit.collect.supervise.tracer; print(*{'msgspec', 'crashkit.model', 'crashkit.arch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
