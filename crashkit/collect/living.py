"""What only a live process tells, from /proc: which threads burn the processor, what its open files are, and who is at the other end."""

from __future__ import annotations

import os
import time
from typing import NamedTuple, Optional

from crashkit.collect.child_processes import awaited_children
from crashkit.collect.host.proc import numbers, text_of
from crashkit.collect.open_files import closed_polls, open_files, opening_fifos
from crashkit.stacks.living import Living

SECONDS = 0.25
"""Over how long a time."""
_WOKEN = 1_000_000
"""Nanoseconds: a thread that ran for less was only woken to be looked at. On a busy machine it may have waited long for that."""
_MOST_PROCESSES = 4096
_TICK = os.sysconf("SC_CLK_TCK")


class Spent(NamedTuple):
    """How long a thread ran, and how long it was ready but did not run because others did; nanoseconds."""

    ran: int
    ready: int = 0


class Watch:
    """Watches the threads of a process while something else is done."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = time.monotonic()
        self._before = _spent(pid)

    def shares(self, seconds: float = SECONDS, stopped: float = 0.0) -> dict[int, float]:
        """The share of the time since the watch began, at least `seconds`, in which each thread ran or was ready to run.

        `stopped`: seconds within which it could not run, since we had stopped it.
        """
        time.sleep(max(0.0, self._began + seconds + stopped - time.monotonic()))
        took = time.monotonic() - self._began - stopped
        return {tid: share(self._before[tid], now, took) for tid, now in _spent(self._pid).items() if tid in self._before}


def share(before: Spent, after: Spent, seconds: float) -> float:
    """The share of these seconds in which a thread ran or, if it had work to do, waited for a processor."""
    ran, ready = after.ran - before.ran, after.ready - before.ready
    return min(1.0, (ran + (ready if ran >= _WOKEN else 0)) / 1e9 / seconds)


def living(pid: int, watch: Watch, stopped: float = 0.0) -> Living:
    """Look at the process; what may not be read or is gone is left out. `stopped`: for how many seconds of the watch it was stopped."""
    shares = {tid: round(share, 2) for tid, share in watch.shares(stopped=stopped).items()}
    found = children(pid)
    files = open_files(pid)
    return Living(shares, files, found, opening_fifos(pid), awaited_children(pid, found), closed_polls(pid, files))


def children(pid: int) -> tuple[int, ...]:
    """The processes that this one started and that still run."""
    found = []
    for tid in numbers(f"/proc/{pid}/task"):
        found += [int(word) for word in text_of(f"/proc/{pid}/task/{tid}/children").split()]
    return tuple(sorted(found))


def tree(pid: int) -> list[int]:
    """The process and all that descend from it, parents first."""
    found = [pid]
    for one in found:
        found += [child for child in children(one) if child not in found]
        if len(found) > _MOST_PROCESSES:
            break
    return found


def _spent(pid: int) -> dict[int, Spent]:
    """Of each thread (Documentation/scheduler/sched-stats.rst).

    Without those statistics only the time that it ran, which its stat counts in ticks.
    """
    found = {}
    for tid in numbers(f"/proc/{pid}/task"):
        words = text_of(f"/proc/{pid}/task/{tid}/schedstat").split()
        if len(words) > 1 and words[0].isdigit() and words[1].isdigit():
            found[tid] = Spent(int(words[0]), int(words[1]))
            continue
        text = text_of(f"/proc/{pid}/task/{tid}/stat")
        fields = text[text.rfind(")") + 1 :].split()
        if len(fields) > 12:
            found[tid] = Spent((int(fields[11]) + int(fields[12])) * 1_000_000_000 // _TICK)
    return found


def command_of(pid: int) -> Optional[str]:
    """The command line of a process; None if it has ended."""
    return text_of(f"/proc/{pid}/cmdline").replace("\0", " ").strip() or text_of(f"/proc/{pid}/comm").strip() or None
