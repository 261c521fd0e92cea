"""What the processes of a pytest session record, so that another process can tell which test a death belongs to.

One file of JSON lines in the folder of the session. Each line is written at once (O_APPEND), by whichever process it is about: pytest, a
worker of pytest-xdist, a child of pytest-forked.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Optional

Event = dict[str, Any]
_NAME = "journal"
_GRACE = 2.0
"""Seconds: a manifest has the time at which a death was noticed, rounded down."""


class Journal:
    """The file, for writing. Raises OSError if it cannot be made."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / _NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, event: str, **fields: Any) -> None:
        """Add one event of this process; on a full disk it is lost, and the tests go on."""
        line = {"event": event, "pid": os.getpid(), "time": time.time(), **fields}
        with suppress(OSError):
            os.write(self._descriptor, json.dumps(line, default=str).encode() + b"\n")


def read(folder: Path) -> list[Event]:
    """All events, in the order of writing; a line that was cut off is left out."""
    try:
        lines = (folder / _NAME).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    events = []
    for line in lines[:-1]:
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


class Step(NamedTuple):
    """What a process was doing: a phase of a test, or the collection of a file."""

    node: str
    when: str
    """setup, call, teardown, or collect."""


class Run(NamedTuple):
    """One test in one process."""

    node: str
    pid: int
    began: float
    """Seconds since the epoch."""
    ended: Optional[float]
    patience: float
    """Seconds after which faulthandler dumps the stacks; 0 for never."""


class History:
    """What the events say. Pure."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self._processes = {event["pid"]: event for event in events if event["event"] == "start"}

    @property
    def main(self) -> Optional[int]:
        """The pid of pytest itself, the latest one where it was started again."""
        return next((pid for pid, event in reversed(self._processes.items()) if not event.get("worker")), None)

    def finished(self, pid: int) -> bool:
        """Whether the session of this process came to its end."""
        return any(event["pid"] == pid and event["event"] == "finish" for event in self.events)

    def step(self, pid: int) -> Optional[Step]:
        """What the process was doing last; None if that was nothing that a test or a file is to blame for."""
        current: Optional[Step] = None
        for event in self.events:
            if event["pid"] != pid:
                continue
            kind = event["event"]
            if kind in ("begin", "phase"):
                current = Step(event["node"], event.get("when", "setup"))
            elif kind == "collect":
                current = Step(event["node"], "collect")
            elif kind in ("end", "collected", "finish"):
                current = None
        return current

    def describe(self, pid: int) -> Optional[str]:
        """How a process of the session crashed, in a few words, where it ran no test."""
        if pid not in self._processes:
            return None
        worker = self._processes[pid].get("worker")
        who = f"worker {worker} of pytest-xdist" if worker else "pytest"
        return f"{who} crashed {'at exit' if self.finished(pid) else 'outside of any test'}"

    def forked_by(self, pid: int) -> Optional[str]:
        """The test that forked this process."""
        return next((event["node"] for event in reversed(self.events) if event["event"] == "fork" and event["pid"] == pid), None)

    def runs(self) -> list[Run]:
        """Every run of a test, in the order of their beginnings."""
        ends = {(event["pid"], event["node"]): event["time"] for event in self.events if event["event"] == "end"}
        return [
            Run(event["node"], event["pid"], event["time"], ends.get((event["pid"], event["node"])), event.get("patience", 0.0))
            for event in self.events
            if event["event"] == "begin"
        ]

    def running_at(self, pid: int, when: float) -> Optional[str]:
        """The test that this process ran at a time, in seconds since the epoch; None if it may have been one of several."""
        nodes = [run.node for run in self.runs() if run.pid == pid and run.began <= when + _GRACE and (run.ended or when) >= when - _GRACE]
        return nodes[0] if len(nodes) == 1 else None

    def done(self) -> frozenset[str]:
        """The tests that pytest itself ran to their end, in any of its processes."""
        return frozenset(event["node"] for event in self.events if event["event"] == "end" and not self._is_worker(event["pid"]))

    def reports(self) -> dict[str, list[Mapping[str, Any]]]:
        """The serialized reports of each test that pytest itself got, in order."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for event in self.events:
            if event["event"] == "report":
                found.setdefault(event["node"], []).append(event["report"])
        return found

    def hangs(self) -> list[Event]:
        """Those that pytest-timeout ended."""
        return [event for event in self.events if event["event"] == "hang"]

    def _is_worker(self, pid: int) -> bool:
        return bool(self._processes.get(pid, {}).get("worker"))
