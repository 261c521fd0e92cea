"""How busy a thread is counts only the time in which it was let run: on a loaded machine it may be stopped for long."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from crashkit.collect.living import Watch
from tests.attach.programs import running
from tests.crashes import an_interpreter

SPINS = "import os\nprint('ready', os.getpid(), flush=True)\nwhile True: pass\n"
STOPPED = 0.5
"""Seconds: a time that is measured, not one that is waited for."""


def test_a_busy_thread_was_busy_while_it_was_not_stopped(tmp_path: Path) -> None:
    with running(an_interpreter(), SPINS, tmp_path) as (process, _):
        watch, as_if_not = Watch(process.pid), Watch(process.pid)
        began = time.monotonic()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        time.sleep(STOPPED)
        stopped = time.monotonic() - began
        process.send_signal(signal.SIGCONT)
        shares = watch.shares(stopped=stopped)
        others = as_if_not.shares(0)
    assert shares[process.pid] >= 0.8
    assert others[process.pid] < shares[process.pid]
