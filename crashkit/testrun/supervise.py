"""`pytest --crashkit`: run pytest below crashkit's supervisor, start it again after a crash, and sum up at the end.

This process is the one that was started as pytest. It imports none of the user's code.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from crashkit.collect.run import Request, run
from crashkit.collect.supervise.sighting import say
from crashkit.collect.supervise.supervisor import EXPECTED
from crashkit.pytest_plugin import FOLDER
from crashkit.scratch import Scratch
from crashkit.testrun import told, verdicts
from crashkit.testrun.journal import History, Step, read
from crashkit.testrun.told import KEPT

_MOST_STARTS = 100
"""A fixture that crashes under every test must not start pytest a thousand times."""
_BURST = 100


def main() -> NoReturn:
    """Run the command of sys.argv, which is pytest, and exit with its status."""
    with Scratch("pytest") as folder:
        os.environ[FOLDER] = str(folder)
        session = Session(folder)
        status = run(Request(command=tuple(sys.argv[1:]), burst=_BURST, again=session.again, kept=folder / KEPT))
        signal.pthread_sigmask(signal.SIG_SETMASK, set())  # the supervisor blocked them all
        summary = session.summary()
    if summary:
        sys.stdout.write(summary)
        sys.stdout.flush()
    sys.exit(status)


class Session:
    """What is known of the session between two runs of pytest, and at its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts = 1
        self._stderr = b""
        self._verdicts: verdicts.Verdicts = {}

    def again(self, status: int, stderr: bytes) -> bool:
        """Whether to start a fresh pytest, because a test killed this one. `status` is as in wait(2)."""
        self._stderr = stderr
        history = History(read(self._folder))
        pid = history.main
        if pid is None or history.finished(pid):
            return False
        step = history.step(pid)
        ended = os.waitstatus_to_exitcode(status)
        if step is None or -ended in EXPECTED:
            return False
        if self._starts >= _MOST_STARTS:
            say(f"{self._starts} tests killed pytest; it is not started again")
            return False
        self._verdicts[step.node] = verdicts.Verdict(step.when, self._verdict(history, pid, step, ended))
        verdicts.write(self._folder, self._verdicts)
        self._starts += 1
        doing = f"collecting {step.node}" if step.when == "collect" else step.node
        os.write(1, b"\n")  # its last line may not have ended
        say(f"pytest died while running {doing}; a fresh process reports what it ran")
        return True

    def _verdict(self, history: History, pid: int, step: Step, ended: int) -> str:
        if crash := told.of_process(self._folder, pid):
            return told.text(crash)
        hang = next((event for event in history.hangs() if event["pid"] == pid and event["node"] == step.node), None)
        return f"{told.TIMED_OUT}\n{hang['text']}" if hang else told.exited(ended)

    def summary(self) -> str:
        """For the terminal, after pytest's own; empty if nothing crashed or hung."""
        history = History(read(self._folder))
        if not ((self._folder / KEPT).exists() or b"Timeout (" in self._stderr or history.hangs()):
            return ""
        from crashkit.testrun.summary import summary  # it reads reports, which takes a moment to load

        return summary(history, told.crashes(self._folder), self._stderr.decode("utf-8", "replace"))
