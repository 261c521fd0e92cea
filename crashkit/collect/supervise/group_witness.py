"""Was a signal sent to us alone, or to our whole process group, and so to the command too?

A terminal, a job-control shell and `kill 0` signal the group; `kill PID` and `docker stop` signal us alone. Only the latter
must be passed on: a command that gets SIGINT twice gives up its clean shutdown. The kernel does not tell the two apart (siginfo is
the same), so another member of the group is asked: the witness, a process that blocks every signal. One that is pending there
went to the group.
"""

from __future__ import annotations

import os
import re
import signal
import time

from crashkit.collect.host import linux

_SETTLE = 0.003
"""Seconds that a sender who goes through the members may need."""


class GroupWitness:
    def __init__(self) -> None:
        """All signals must be blocked already."""
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
            # Whoever waits for the end of the command's output must not wait for us.
            os.closerange(1, 65536)
            while number := os.read(0, 1):
                # That one alone: another may have come meanwhile, which nobody has asked about yet.
                signal.sigtimedwait(number, 0)
        finally:
            os._exit(0)

    def saw(self, number: int, command: int) -> bool:
        """True where the signal reached the whole group, `command` included."""
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
