"""Our descendant processes: what they are while they run, and how each of them ended, even if another process reaps them.

Sources, none of which needs root: wait(2) for our own children and for orphans, as we are a subreaper; pidfds of the others,
whose exit status the kernel keeps (Linux 6.15) or which can be read while they are zombies; the kernel's process events if
available (`proc_events`); and regular walks through /proc, which discover new processes.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Optional

from crashkit.collect.host import linux
from crashkit.collect.host.snapshot import ProcessSnapshot, read_stat, snapshot, started

_MAX_WATCHED = 1000
_SHARE = 0.003
"""Share of one CPU for walking the tree."""
_YOUNG = 1.0
"""Seconds after it was first seen for which a process that looks like its parent is taken for one between fork(2) and execve(2)."""
_SHARE_FOR_YOUNG = 0.1


class Death(NamedTuple):
    """The end of a process."""

    pid: int
    start: int
    """Start time in clock ticks since boot; with the pid it identifies a process."""
    status: int
    """As in wait(2)."""
    process: Optional[ProcessSnapshot]
    certain: bool = True
    """False if the source does not know whether the kernel wrote a core."""
    parent: int = 0
    """Pid of the parent; 0 where it is not known."""

    @property
    def signal(self) -> int:
        """Number of the signal that killed it; 0 if it exited."""
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else 0

    @property
    def core_dumped(self) -> bool:
        """Whether the kernel wrote a core; not reliable unless `certain`."""
        return bool(os.WIFSIGNALED(self.status) and os.WCOREDUMP(self.status))


def pause(walks: int, cost: float, any_young: bool) -> float:
    """Seconds until the next walk after so many, the last of which took `cost` seconds."""
    # Frequently at first, while processes execute others and load libraries.
    regular = min(5.0, max(0.05 * min(walks, 10), cost / _SHARE))
    return min(regular, max(0.05, cost / _SHARE_FOR_YOUNG)) if any_young else regular


class ProcessTree:
    """The descendants of this process, except those in `ours`."""

    def __init__(self, poll: select.poll) -> None:
        self.ours: set[int] = set()
        """Pids of our own running helpers."""
        self.interval = 0.05
        self._walks = 0
        self._poll = poll
        self._alive: dict[int, ProcessSnapshot] = {}
        self._pidfds: dict[int, int] = {}
        self._gone: dict[int, ProcessSnapshot] = {}
        self._looked_again: dict[int, float] = {}
        self._has_children_files = os.path.exists(f"/proc/self/task/{os.getpid()}/children")

    def find(self, pid: int) -> Optional[ProcessSnapshot]:
        """The process that has or recently had this pid, here or in its own namespace."""
        known = self._alive.get(pid) or self._gone.get(pid)
        if known is not None:
            return known
        return next((process for process in self._alive.values() if process.namespace_pid == pid), None)

    def walk(self) -> None:
        """Find new processes, and refresh known ones from time to time: they load libraries and change directory."""
        began = time.monotonic()
        for pid in self._descendants():  # parents first
            known = self._alive.get(pid)
            if known is not None and began < self._looked_again[pid] and not self._may_execute(known, began):
                with contextlib.suppress(OSError):
                    self._alive[pid] = known._replace(cwd=os.readlink(f"/proc/{pid}/cwd"))
                continue
            self.refresh(pid)
        self._walks += 1
        now = time.monotonic()
        self.interval = pause(self._walks, now - began, any(self._may_execute(process, now) for process in self._alive.values()))

    def _may_execute(self, process: ProcessSnapshot, now: float) -> bool:
        """Whether it may be between fork and execve. Until it is looked at again, it has its parent's arguments and variables."""
        parent = self._alive.get(process.ppid) if now - process.first_seen < _YOUNG else None
        return parent is not None and (process.executable, process.argv) == (parent.executable, parent.argv)

    def started(self, pid: int, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        """A child that was just started: on a busy machine it may end before the first walk."""
        seen = started(pid, argv, environment)
        if seen is not None:
            self._alive[pid], self._looked_again[pid] = seen, 0.0

    def refresh(self, pid: int) -> None:
        """Take a new snapshot of one descendant."""
        seen = snapshot(pid) if pid in self._alive or self._is_below_us(pid) else None
        if seen is None:
            return
        known = self._alive.get(pid)
        if known is None or known.start != seen.start:
            self._add(seen)
        else:
            seen = seen._replace(first_seen=known.first_seen)
        self._alive[pid] = seen
        now = time.monotonic()
        self._looked_again[pid] = now + min(60.0, now - seen.first_seen)

    def _add(self, process: ProcessSnapshot) -> None:
        # Our own children report to wait(2) already.
        if process.ppid == os.getpid() or len(self._pidfds) >= _MAX_WATCHED:
            return
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(process.pid)
            self._pidfds[pidfd] = process.pid
            self._poll.register(pidfd, select.POLLIN)

    def _descendants(self) -> list[int]:
        children = self._children_by_file if self._has_children_files else self._children_by_table()
        found: list[int] = []
        queue = [os.getpid()]
        while queue:
            for pid in children(queue.pop()):
                if pid not in self.ours:
                    found.append(pid)
                    queue.append(pid)
        return found

    def living(self) -> dict[int, str]:
        """Pid and name of each descendant that has not ended."""
        stats = {pid: read_stat(pid) for pid in self._descendants()}
        return {pid: stat.name for pid, stat in stats.items() if stat is not None and stat.state not in "ZX"}

    def any_held(self) -> bool:
        """Whether a tracer holds one of the descendants; proc_pid_stat(5)."""
        return any(stat is not None and stat.state == "t" for stat in map(read_stat, self._descendants()))

    @staticmethod
    def _children_by_file(pid: int) -> list[int]:
        pids: list[int] = []
        with contextlib.suppress(OSError):
            for tid in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{tid}/children", "rb") as file:
                    pids += map(int, file.read().split())
        return pids

    @staticmethod
    def _children_by_table() -> Callable[[int], list[int]]:
        """For kernels without CONFIG_PROC_CHILDREN."""
        table: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and (stat := read_stat(int(name))) is not None:
                table.setdefault(stat.ppid, []).append(int(name))
        return lambda pid: table.get(pid, [])

    def ended(self, pidfd: int) -> Optional[Death]:
        """The death of a pidfd's process; None if we do not watch it or its status is not available."""
        pid = self._pidfds.get(pidfd)
        if pid is None:
            return None
        process = self._alive.get(pid)
        status = linux.pidfd_exit_status(pidfd)
        if status is None:
            stat = read_stat(pid)
            if stat is not None and process is not None and stat.start == process.start and stat.state == "Z":
                status = stat.exit_code
        self._poll.unregister(pidfd)
        del self._pidfds[pidfd]
        os.close(pidfd)
        if process is None:
            return None
        self._bury(pid)
        return None if status is None else Death(pid, process.start, status, process, parent=process.ppid)

    def told(self, pid: int, parent: int, status: int) -> Optional[Death]:
        """The death of a process that `proc_events` reported; None if it is not our descendant or wait(2) will report it too."""
        if parent == os.getpid() or pid in self.ours or not os.WIFSIGNALED(status):
            return None
        process = self._alive.get(pid)
        if process is None and not self._is_below_us(parent):
            return None
        stat = read_stat(pid)
        start = process.start if process else stat.start if stat else 0
        return Death(pid, start, status, process, certain=os.WCOREDUMP(status), parent=parent)

    def _is_below_us(self, pid: int) -> bool:
        for _ in range(100):
            if pid in self._alive or pid in self._gone or pid == os.getpid():
                return True
            stat = read_stat(pid)
            if stat is None or pid <= 1 or pid in self.ours:
                return False
            pid = stat.ppid
        return False

    def reaped(self, pid: int, status: int, start: int) -> Death:
        """The death of a direct child; `start` is its start time, read before it was reaped."""
        process = self.find(pid)
        if process is not None and start and process.start != start:
            process = None
        self._bury(pid)
        return Death(pid, start, status, process, parent=os.getpid())

    def _bury(self, pid: int) -> None:
        process = self._alive.pop(pid, None)
        self._looked_again.pop(pid, None)
        if process is not None:
            self._gone[pid] = process
            while len(self._gone) > 200:
                del self._gone[next(iter(self._gone))]

    def processes(self) -> list[ProcessSnapshot]:
        """Those that were found and have not ended, as far as it is known."""
        return list(self._alive.values())

    def folders(self) -> set[str]:
        """Working directories of all running descendants."""
        return {process.cwd for process in self._alive.values() if process.cwd}
