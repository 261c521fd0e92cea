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
from crashkit.collect.supervise.sighting import printable, say
from crashkit.collect.supervise.supervisor import EXPECTED
from crashkit.naming.signals import signal_name
from crashkit.pytest_plugin import FOLDER
from crashkit.scratch import Scratch
from crashkit.testrun import told, verdicts
from crashkit.testrun.journal import History, read
from crashkit.testrun.told import KEPT

_MOST_STARTS = 100
"""A fixture that crashes under every test must not start pytest a thousand times."""
_BURST = 100


def main() -> NoReturn:
    """Run the command of sys.argv, which is pytest, and exit with its status."""
    with Scratch("pytest") as folder:
        os.environ[FOLDER] = str(folder)
        session = Session(folder)
        command = tuple(sys.argv[1:])
        status = run(Request(command=command, burst=_BURST, kills_on_purpose=True, again=session.again, kept=folder / KEPT, on_exit=False))
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
        self._stderr += stderr
        try:
            return self._is_to_continue(status, stderr)
        except OSError as error:  # a full disk
            say(f"cannot restart pytest: {error.strerror}")
            return False

    def _is_to_continue(self, status: int, stderr: bytes) -> bool:
        history = History(read(self._folder))
        pid = history.main
        if pid is None or history.finished(pid):
            return False
        step = history.step(pid)
        if step is None:
            return False
        os.write(1, b"\n")  # its last line may not have ended
        doing = ("collecting " if step.when == "collect" else "running ") + printable(step.node)
        ended = os.waitstatus_to_exitcode(status)
        if -ended in EXPECTED:
            say(f"pytest was terminated by {signal_name(-ended)} while {doing}")
            return False
        if self._starts >= _MOST_STARTS:
            say(f"pytest died while {doing}; it was started {self._starts} times and is not restarted")
            return False
        self._verdicts[step.node] = verdicts.Verdict(step.when, told.verdict(self._folder, history, pid, ended, stderr))
        verdicts.write(self._folder, self._verdicts)
        self._starts += 1
        say(f"pytest died while {doing}; a fresh process reports the results")
        return True

    def summary(self) -> str:
        """For the terminal, after pytest's own; empty if nothing crashed or hung."""
        history = History(read(self._folder))
        if not ((self._folder / KEPT).exists() or b"Timeout (" in self._stderr or history.hangs()):
            return ""
        from crashkit.testrun.summary import summary  # it reads reports, which takes a moment to load

        return summary(history, told.crashes(self._folder), self._stderr.decode("utf-8", "replace"))
