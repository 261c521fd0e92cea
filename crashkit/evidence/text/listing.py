"""The contract of listings: how processes ended, as docker, kubectl or SLURM list them. Each lists its own, which need not belong together.

A listing is a `Listing`: the line that it begins with, and what each further line tells. One row is one process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Optional

from crashkit.evidence.text.reader import Format, Note, Reader
from crashkit.naming.signals import REQUESTS, signal_name

_MOST_ROWS = 10_000
_SHELL = 128


class Ended(NamedTuple):
    """What a listing tells of one process."""

    name: str
    text: str
    """The line that tells how it ended."""
    status: Optional[int] = None
    """Negative for a signal; None if it runs, or is not told."""
    out_of_memory: bool = False
    runs: bool = False
    row: int = 0
    """Which of the lines tells it, from 0."""
    stopped: bool = False
    """Whether its launcher says that it ended it."""
    why: Optional[str] = None
    """The kind of log line that tells why its launcher ended it: job-time-limit, job-cancelled. None where a user may have wished so."""
    unsure: bool = False
    """Whether the status may mean something else."""

    @property
    def crashed(self) -> bool:
        """Whether a signal ended it that nobody sends to ask for that, or the lack of memory."""
        by_signal = self.status is not None and self.status < 0 and -self.status not in REQUESTS
        return self.out_of_memory or (by_signal and not self.stopped)


Read = Callable[[Iterable[str]], Iterator[Ended]]
"""From the lines behind the head to the processes, in their order."""


@dataclass(frozen=True)
class Listing:
    """One program's listing."""

    launcher: str
    """Who started the processes: docker, podman, kubernetes, slurm."""
    openers: tuple[str, ...]
    """As `Format.openers`."""
    head: re.Pattern[str]
    row: re.Pattern[str]
    """Each line of the listing, else it has ended."""
    read: Read
    head_tells: bool = False
    """Whether the head is the first row, too."""


class Rows(Reader):
    """Collects the lines of one listing."""

    quotes = True

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self._lines: list[str] = []

    def feed(self, text: str) -> bool:
        """Take the next line; see `Reader.feed`."""
        if not self.listing.row.match(text):
            self.ended = True
            return False
        if len(self._lines) < _MOST_ROWS:
            self._lines.append(text)
        return True

    def processes(self) -> list[Ended]:
        """What it tells of each."""
        return list(self.listing.read(self._lines))

    def finish(self) -> Optional[Iterable[Note]]:
        """What tells of each process that crashed, or that its launcher ended."""
        behind_head = 0 if self.listing.head_tells else 1
        return [note for one in self.processes() if one.crashed or one.why for note in _notes(one, behind_head + one.row)] or None


def _notes(one: Ended, behind: int) -> Iterator[Note]:
    if one.out_of_memory:
        yield Note(one.text, "oom-event", {"name": one.name}, behind=behind)
    if one.why is not None:
        yield Note(one.text, one.why, {"job": one.name}, behind=behind)
    elif one.status is not None and one.status < 0:
        yield Note(one.text, "exit-status", {"name": one.name, "status": str(_SHELL - one.status)}, behind=behind)


def format_of(listing: Listing) -> Format[Rows]:
    """The format of texts with such a listing."""

    def opens(text: str) -> Optional[Rows]:
        if not listing.head.match(text):
            return None
        rows = Rows(listing)
        if listing.head_tells:
            rows.feed(text)
        return rows

    return Format(openers=listing.openers, opens=opens)


def of_shell(status: int) -> int:
    """139 is signal 11."""
    is_signal = _SHELL < status < 2 * _SHELL and signal_name(status - _SHELL).startswith("SIG")
    return _SHELL - status if is_signal else status
