"""Notices that a command makes no progress any more.

Progress is output (bytes that its processes write, whatever the file) or processor time. A program that is idle by design shows
neither: it touches a heartbeat file, or answers health checks, and then that alone counts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from typing import NamedTuple, Optional

from crashkit.collect.host import linux

ACTIONS = ("report", "abort", "restart")

_SHARE = 0.02
"""The share of a processor that counts as progress: a thread that waits for the GIL asks for it 200 times a second."""
_TICK = os.sysconf("SC_CLK_TCK")
_LOOKS = 10
"""How often to look within the time after which it counts as hanging."""
_CHECK_SECONDS = 5.0


class Limits(NamedTuple):
    """When a command counts as hanging, and what to do then."""

    seconds: float
    action: str = "report"
    heartbeat: Optional[str] = None
    """A file that the command touches as long as all is well."""
    health: Optional[str] = None
    """An HTTP address that answers with a status below 400 as long as all is well."""


class HangWatch:
    """Looks at the processes from time to time. `look` as often as you like."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.interval = max(0.1, limits.seconds / _LOOKS)
        self.probe = _Probe(limits.health, self.interval) if limits.health is not None else None
        self.restarted()

    def restarted(self) -> None:
        """The command was started, again."""
        self._progressed = self._looked = time.monotonic()
        self._started = time.time()
        self._before: Optional[tuple[int, float]] = None
        self._told = False

    def next_look(self) -> float:
        """When to look again, as of time.monotonic()."""
        return self._looked + self.interval

    def look(self, pids: Iterable[int]) -> Optional[str]:
        """Why the command hangs; None if it does not, or if that was told already and it made no progress since."""
        now = time.monotonic()
        if now < self.next_look():
            return None
        if self._has_progressed(pids, now - self._looked):
            self._progressed = now
            self._told = False
        self._looked = now
        if self._told or now - self._progressed < self.limits.seconds:
            return None
        self._told = True
        return f"{self._what()} for {self.limits.seconds:g} s"

    def _what(self) -> str:
        if self.limits.heartbeat is not None:
            return f"{self.limits.heartbeat} was not touched"
        if self.limits.health is not None:
            return f"{self.limits.health} did not answer"
        return "no output and no progress"

    def _has_progressed(self, pids: Iterable[int], elapsed: float) -> bool:
        if self.limits.heartbeat is not None:
            with contextlib.suppress(OSError):
                touched = os.stat(self.limits.heartbeat).st_mtime
                return touched > self._started and time.time() - touched < self.limits.seconds
            return False
        if self.probe is not None:
            return self.probe.answered()
        written, ran = 0, 0.0
        for pid in pids:
            written += _written(pid)
            ran += _ran(pid)
        before, self._before = self._before, (written, ran)
        # A process that ended takes its share away.
        return before is None or written != before[0] or abs(ran - before[1]) > _SHARE * elapsed


class _Probe:
    """Asks for the health of the command, in a process of its own: the answer may take long."""

    def __init__(self, address: str, interval: float) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
                os.dup2(writer, 0)
                os.closerange(1, 65536)
                while True:
                    if answers(address):
                        os.write(0, b".")
                    time.sleep(interval)
            finally:
                os._exit(0)
        os.close(writer)

    def answered(self) -> bool:
        """Whether it answered since the last time."""
        with contextlib.suppress(OSError):
            return bool(os.read(self._reader, 65536))
        return False


def answers(address: str, seconds: float = _CHECK_SECONDS) -> bool:
    """Whether an HTTP server answers with a status below 400."""
    from urllib.request import ProxyHandler, build_opener

    try:
        # The command is asked itself, not a proxy. Statuses from 400 on raise.
        with build_opener(ProxyHandler({})).open(address, timeout=seconds) as reply:
            return int(reply.status) < 400
    except (OSError, ValueError):
        return False


def _written(pid: int) -> int:
    """Bytes that the process has written in all (proc_pid_io(5), wchar); 0 if that may not be read."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/io", "rb") as file:
        return int(file.read().split(b"wchar:")[1].split()[0])
    return 0


def _ran(pid: int) -> float:
    """Seconds of processor time that the process has used."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK
    return 0.0
