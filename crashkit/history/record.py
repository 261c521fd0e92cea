"""Writes crashes into a history, losing none: entries wait in the spool until they have arrived."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.crashfolder.store import home
from crashkit.history.address import NONE, VARIABLE
from crashkit.history.entry import Entry
from crashkit.history.index import HistoryError, connect
from crashkit.history.spool import Spool

_TOGETHER = 500
"""Waiting entries that are written in one transaction, about."""


class Outcome(NamedTuple):
    """What became of the entries."""

    arrived: int
    """How many are in the index now, with those that had waited."""
    problem: Optional[HistoryError] = None
    """Why some are not: they are in the spool and are delivered with the next ones, unless the message says otherwise."""


def record(address: str, entries: Sequence[Entry], store: Optional[Path] = None) -> Outcome:
    """Write entries into the index, and those that wait in the spool of the store. Never raises because the index is away.

    Several processes may do so at once. Where the address is `none`, nothing is written.
    """
    if address == NONE:
        return Outcome(0)
    spool = Spool(store or home(), address)
    spooled: Optional[Path] = None
    unkept: Optional[OSError] = None
    if entries:
        try:
            spooled = spool.put(entries)
        except OSError as error:
            unkept = error
    try:
        if entries:
            _write(address, entries)
        if spooled is not None:
            spool.remove(spooled)
        return Outcome(len(entries) + _deliver(spool, address))
    except HistoryError as error:
        if unkept is not None:
            lost = f"{error}; nor can the crash be kept for later in {spool.folder}: {unkept.strerror}"
            return Outcome(0, HistoryError(lost, "Analyze it again when the history is available."))
        return Outcome(0, error)


def main() -> None:
    """Write what waits in the spool of the store into the index that the environment names."""
    record(os.environ.get(VARIABLE, NONE), [])


def _deliver(spool: Spool, address: str) -> int:
    """Write what waits; how many entries that was."""
    arrived = 0
    waiting = spool.waiting()
    if not waiting:
        return 0
    with spool.alone() as alone:
        while alone and waiting:
            taken: list[tuple[Path, tuple[Entry, ...]]] = []
            while waiting and sum(len(entries) for _, entries in taken) < _TOGETHER:
                path = waiting.pop(0)
                if entries := spool.take(path):
                    taken.append((path, entries))
            _write(address, [entry for _, entries in taken for entry in entries])
            for path, entries in taken:
                spool.remove(path)
                arrived += len(entries)
    return arrived


def _write(address: str, entries: Sequence[Entry]) -> None:
    with connect(address, write=True) as connection:
        from crashkit.history.write import Retention, forget, insert, overdue, tidy

        left = insert(connection, entries)
        before = overdue(connection, Retention(), time.time())
    if left:
        with connect(address, write=True) as connection:
            tidy(connection, left)
    if before:
        with connect(address, write=True) as connection:
            forget(connection, before)
