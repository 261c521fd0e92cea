"""The crashes of a run in the history: records them, and says what it knew of them before."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Optional

from crashkit.batch.group import with_past
from crashkit.errors import CrashkitError
from crashkit.history.entry import Entry
from crashkit.history.record import record
from crashkit.naming.times import utc
from crashkit.report.index.document import Index, Past

DAYS = 30
"""That the trends show."""
_DAY = 86400.0


def remembered(
    index: Index, address: str, recorded: Mapping[int, Entry], began: float, run: Optional[str]
) -> tuple[Index, Optional[CrashkitError]]:
    """Record the crashes, by their numbers, and return the index with the past of each group, or with why that cannot be told.

    Nothing is lost then: what has not arrived waits in the spool. What was recorded since `began`, in seconds since the epoch, and what
    the CI run of the address `run` recorded is no past.
    """
    problem = record(address, list(recorded.values())).problem
    if problem is not None:
        return index, problem
    names = {group.key: recorded[group.crashes[0]].group for group in index.groups if group.crashes[0] in recorded}
    if not names:
        return index, None
    try:
        return with_past(index, _past(address, names, began, run)), None
    except CrashkitError as error:
        return index, error


def _past(address: str, names: Mapping[str, str], began: float, run: Optional[str]) -> dict[str, Past]:
    from crashkit.history.index import connect

    now = time.time()
    with connect(address) as connection:
        from crashkit.history.query import past

        found = past(connection, sorted(set(names.values())), began, run, now - DAYS * _DAY, now)
    return {
        key: Past(count=found[name].count, first_seen=utc(found[name].first_seen), trend=found[name].trend, days=DAYS)
        for key, name in names.items()
    }
