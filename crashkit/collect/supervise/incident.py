"""One incident: a process that failed, those of its job that died because of it, and those that lived when it did."""

from __future__ import annotations

from typing import Optional

from crashkit.collect.host.snapshot import ProcessSnapshot
from crashkit.collect.supervise.sighting import Sighting
from crashkit.environment import RESTARTS, RUN, number

SECONDS = 60.0
"""Within which what fails after the first process does so because of it."""
MOST_OTHERS = 128
_QUIET = 5.0
"""Seconds without a further death after which a job that lives on is reported."""
_GRACE = 35.0
"""torchrun gives the others 30 s between SIGTERM and SIGKILL."""
_SAME_JOB = ("MASTER_ADDR", "MASTER_PORT", RUN, "SLURM_JOB_ID", RESTARTS)


class Incident:
    """Collects the processes of one incident, until no more are to be expected. `now` is of time.monotonic()."""

    def __init__(self, first: Sighting, now: float) -> None:
        self._seen = [first]
        self._began = self._last = now
        self.launcher_stops = False
        """Whether a launcher has begun to end the other processes of the job."""

    def takes(self, process: Optional[ProcessSnapshot], now: float) -> bool:
        """Whether a process that dies now does so for the same reason: it is of the same start of the same job."""
        first = self._seen[0].process
        if first is None or process is None or first.rank is None or process.rank is None or now - self._began > SECONDS:
            return False
        ours, theirs = dict(first.place), dict(process.place)
        return process.first_seen <= self._began and all(ours.get(name) == theirs.get(name) for name in _SAME_JOB)

    @property
    def stderr(self) -> bytes:
        """The end of the log when the first process had failed."""
        return self._seen[0].stderr

    def is_before(self, process: ProcessSnapshot) -> bool:
        """Whether the process is of a later start of the same job: torchelastic counts them."""
        first = self._seen[0].process
        if first is None or first.rank is None:
            return False
        ours, theirs = dict(first.place), dict(process.place)
        counts = number(ours, RESTARTS), number(theirs, RESTARTS)
        if counts[0] is None or counts[1] is None or counts[0] >= counts[1]:
            return False
        return ours.get(RUN) is not None and ours.get(RUN) == theirs.get(RUN)

    def add(self, seen: Sighting, now: float) -> None:
        """Add a process. What one showed while it lived counts no more if it then died by itself."""
        if seen.alive is not None and any(one.pid == seen.pid for one in self._seen):
            return
        if seen.alive is None:
            self._seen = [one for one in self._seen if one.alive is None or one.pid != seen.pid]
            self._last = now
        if len(self._seen) <= MOST_OTHERS:
            self._seen.append(seen)

    def is_over(self, now: float, has_ended: bool) -> bool:
        """Whether no more is to be expected. `has_ended`: nothing of the command runs any more."""
        if has_ended or self._seen[0].rank is None:
            return True
        return now - self._last > (_GRACE if self.launcher_stops else _QUIET)

    def whole(self, stderr: bytes) -> Sighting:
        """The first process with all others, and the log as it is now: the launcher's words come last."""
        first, *others = self._seen
        return first._replace(others=tuple(others), stderr=stderr)


__all__ = ["SECONDS", "Incident"]
