"""Ids of crashes, such as 20261120T231200-5752-python3.11: the time of death (UTC), the pid, the executable's name."""

from __future__ import annotations

import calendar
import re
import time

from crashkit.naming.times import utc

_TIME = "%Y%m%dT%H%M%S"
_UNKNOWN_TIME = "unknown-time"
_UNFIT = re.compile(r"[^A-Za-z0-9._+-]")
_SHORT = re.compile(rf"(?:\d{{8}}T\d{{6}}|{_UNKNOWN_TIME})-\d+(?=-)")
_LONGEST_NAME = 40


def identity(when: float | None, pid: int | None, executable: str | None) -> str:
    """The id of a crash. `when` is in seconds since the epoch; `executable` is a path or name; untrusted text."""
    at = utc(when)
    stamp = re.sub("[-:Z]", "", at) if at is not None else _UNKNOWN_TIME
    name = _UNFIT.sub("_", (executable or "").rsplit("/", 1)[-1])[:_LONGEST_NAME].lstrip(".-") or "unknown"
    return f"{stamp}-{pid or 0}-{name}"


def shortened(identity: str) -> str:
    """An id without the executable's name: the part of it that is still unique, wherever one can be passed."""
    found = _SHORT.match(identity)
    return found[0] if found is not None else identity


def time_of(identity: str) -> float | None:
    """The time in an id, in seconds since the epoch; None if it has none."""
    try:
        return float(calendar.timegm(time.strptime(identity[:15], _TIME)))
    except ValueError:
        return None
