"""Words of what docker, kubectl or SLURM list of several processes. The order of a listing says nothing of who failed first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, Optional

from crashkit.evidence.text.formats import LISTINGS
from crashkit.evidence.text.listing import Ended, Rows
from crashkit.evidence.text.prefixes import clean
from crashkit.job.word import Who, Word

_OPENERS = tuple(opener.encode() for one in LISTINGS for opener in one.openers)
_LARGEST = 4 << 20
"""Bytes of the beginning of a file that may hold listings."""


def words(file: BinaryIO) -> list[Word]:
    """How each process ended, if there are several and one crashed."""
    file.seek(0)
    data = file.read(_LARGEST)
    if not any(opener in data for opener in _OPENERS):
        return []
    found = {(launcher, one.name): (number, one) for launcher, number, one in _ended(data.splitlines())}
    if len(found) < 2 or not any(one.crashed for _, one in found.values()):
        return []
    told = []
    for (launcher, name), (number, one) in found.items():
        who, text = Who(name=name), one.text
        if one.runs:
            told.append(Word(who, "lives", line=number, text=text, launcher=launcher))
            continue
        if one.out_of_memory:
            told.append(Word(who, "killed", line=number, text=text, launcher=launcher))
        if one.status is not None:
            told.append(Word(who, "exit", line=number, text=text, number=one.status, launcher=launcher, unsure=one.unsure))
        if one.stopped:
            told.append(Word(who, "stopped", line=number, text=text, launcher=launcher))
    return told


def _ended(lines: Iterable[bytes]) -> Iterator[tuple[str, int, Ended]]:
    rows: Optional[Rows] = None
    began = 0
    for number, raw in enumerate(lines, 1):
        text = clean(raw)
        if rows is not None and not rows.feed(text):
            yield from ((rows.listing.launcher, began, one) for one in rows.processes())
            rows = None
        if rows is None:
            rows, began = next((rows for one in LISTINGS if (rows := one.opens(text)) is not None), None), number
    if rows is not None:
        yield from ((rows.listing.launcher, began, one) for one in rows.processes())
