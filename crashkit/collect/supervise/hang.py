"""Notices that a command makes no progress any more.

Progress is output (bytes that its processes write, whatever the file) or processor time. A program that is idle by design shows
neither: it touches a heartbeat file, or answers health checks, and then that alone counts. CUDA burns a processor while it waits for
the GPU: that is no progress either.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

from crashkit.collect.host import linux
from crashkit.collect.supervise.gpu_watch import GpuWatch
from crashkit.collect.supervise.sighting import printable, say
from crashkit.descriptors import close_all_but
from crashkit.naming.cuda import SEEN_TO_WAIT

ACTIONS = ("report", "abort", "restart")

_SHARE = 0.02
"""The share of a processor that counts as progress: a thread that waits for the GIL asks for it 200 times a second."""
_TICK = os.sysconf("SC_CLK_TCK")
_LOOKS = 10
"""How often to look within the time after which it counts as hanging."""
_CHECK_SECONDS = 5.0
_MOST_WATCHED = 64
"""Processes that may wait for the GPU at the same time: the ranks of one host."""


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
        self.probe = Probe(limits.health, self.interval) if limits.health is not None else None
        self.gpu: Optional[GpuWatch] = None
        """There once a process that has CUDA's driver was busy without output."""
        self.restarted()

    def restarted(self) -> None:
        """The command was started, again."""
        self._progressed = self._looked = time.monotonic()
        self._started = time.time()
        self._before: Optional[tuple[int, dict[int, float]]] = None
        self._waits = ""
        self._told = False

    def next_look(self) -> float:
        """When to look again, as of time.monotonic()."""
        return self._looked + self.interval

    def look(self, pids: Iterable[int]) -> Optional[str]:
        """Why the command hangs; None if it does not, or if that was told already and it made no progress since."""
        now = time.monotonic()
        if now < self.next_look():
            return None
        progressed = self._last_progress(pids, now)
        if progressed > self._progressed:
            self._progressed = progressed
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
        return self._waits or "no output and no progress"

    def _last_progress(self, pids: Iterable[int], now: float) -> float:
        """When there was progress for the last time, as of time.monotonic(), as far as this look tells; 0 if it tells of none."""
        if self.limits.heartbeat is not None:
            with contextlib.suppress(OSError):
                touched = os.stat(self.limits.heartbeat).st_mtime
                return now if touched > self._started and time.time() - touched < self.limits.seconds else 0
            return 0
        if self.probe is not None:
            return now if self.probe.answered() else 0
        pids = list(pids)
        written, ran = sum(map(_written, pids)), {pid: _ran(pid) for pid in pids}
        before, self._before = self._before, (written, ran)
        if before is None or written != before[0]:
            return now
        enough = _SHARE * (now - self._looked)
        # A process that ended takes its share away.
        if abs(sum(ran.values()) - sum(before[1].values())) <= enough:
            self._waits = ""
            return 0
        return self._last_without_gpu([pid for pid in pids if ran[pid] - before[1].get(pid, 0.0) > enough], now)

    def _last_without_gpu(self, busy: Sequence[int], now: float) -> float:
        """When one of these busy processes did something else for the last time than to wait for the GPU."""
        if not busy or len(busy) > _MOST_WATCHED or not all(map(_has_driver, busy)):
            return now
        if self.gpu is None:
            try:
                self.gpu = GpuWatch(self.interval)
            except OSError:  # no more processes, or no more files
                return now
        waiting = self.gpu.ask(busy)
        if waiting.keys() != set(busy):
            return now
        places = [place for _, place in waiting.values()]
        more = len(places) - 1
        others = f", as {'do' if more > 1 else 'does'} {more} more process{'es' if more > 1 else ''}" if more else ""
        self._waits = f"{SEEN_TO_WAIT} at {printable(places[0])}{others}"
        return max(since for since, _ in waiting.values())


class Probe:
    """Asks for the health of the command, in a process of its own: the answer may take long."""

    def __init__(self, address: str, interval: float) -> None:
        self._reader, writer = os.pipe()
        self._has_ended = False
        os.set_blocking(self._reader, False)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
                os.dup2(writer, 0)
                close_all_but(0)
                while True:
                    if answers(address):
                        os.write(0, b".")
                    time.sleep(interval)
            finally:
                os._exit(0)
        os.close(writer)

    def answered(self) -> bool:
        """Whether it answered since the last time. Nobody asks any more if something has ended this process: that is no hang."""
        with contextlib.suppress(BlockingIOError):
            if not os.read(self._reader, 65536) and not self._has_ended:
                self._has_ended = True
                say("the process that asks for the health of the command was ended: its health is no longer checked")
            return True
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


def _has_driver(pid: int) -> bool:
    """Whether CUDA's driver is loaded there."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        return any(b"/libcuda.so" in line for line in file)
    return False
