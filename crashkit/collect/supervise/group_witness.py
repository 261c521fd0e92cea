"""Find out whether a signal was sent only to us, or to our process group and so to the command too.

A terminal, a job-control shell and `kill 0` signal the group; `kill PID` and `docker stop` signal only us. Only the latter
must be passed on: a command that gets SIGINT twice aborts its clean shutdown. siginfo is the same in both cases, so we check
another member of the group: the witness, a process that blocks every signal. A signal that is pending there was sent to the
group.
"""

from __future__ import annotations

import os
import re
import signal
import time

from crashkit.collect.host import linux
from crashkit.descriptors import close_all_but

_SETTLE = 0.003
"""Seconds that a sender may need to signal all members one by one."""


class GroupWitness:
    """The witness process. Every signal must already be blocked when it is created."""

    def __init__(self) -> None:
        reader, self._drain = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._stand(reader)
        os.close(reader)

    def _stand(self, reader: int) -> None:
        try:
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            linux.prctl(linux.PR_SET_NAME, b"crashkit-group")
            if reader != 0:
                os.dup2(reader, 0)
            close_all_but(0)
            while number := os.read(0, 1):
                # Take only that one: `saw` may not have checked others yet.
                signal.sigtimedwait(number, 0)
        finally:
            os._exit(0)

    def saw(self, number: int, command: int) -> bool:
        """Whether the signal reached the whole group, including `command`. Takes 3 ms."""
        try:
            if os.getpgid(command) != os.getpgrp():
                return False
        except OSError:
            return False
        time.sleep(_SETTLE)
        try:
            with open(f"/proc/{self.pid}/status") as file:
                pending = re.search(r"^ShdPnd:\s*([0-9a-f]+)", file.read(), re.MULTILINE)
            if pending is None or not int(pending.group(1), 16) >> (number - 1) & 1:
                return False
            os.write(self._drain, bytes([number]))
        except OSError:
            return False
        return True
