"""What stands around a significant line of a log, and what a process wrote last. Pure but for reading the file that is open already."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import BinaryIO

from msgspec.structs import replace

from crashkit.evidence.text import ips
from crashkit.evidence.text.prefixes import clean, strip
from crashkit.model import LogLine

BEFORE, AFTER = 2, 2
"""Lines shown around a significant one."""
_WORDS = 6
"""Lines of the end of a log."""
_LONGEST = 300
_WINDOW = 8 << 10
_ENDING = 64 << 10
_DUMPS = re.compile(
    r"^(?:Fatal Python error:|Current thread 0x|Thread 0x[0-9a-f]+ |==\d+==\s?ERROR: \w+Sanitizer:|={65}$|Process: {3,}\S.{0,200} \[\d+\]$)"
)
"""The words of faulthandler, of a sanitizer and of macOS are not the process's own (Python/traceback.c, Modules/faulthandler.c)."""


def with_neighbours(file: BinaryIO, lines: Sequence[LogLine], starts: Mapping[int, int]) -> tuple[LogLine, ...]:
    """The lines with those around them; none stands twice. `starts` has the offset in the file of each line, by its number."""
    taken = {line.line for line in lines if line.line is not None}
    shown: list[LogLine] = []
    for line in lines:
        start = starts.get(line.line or 0)
        if line.line is None or start is None:
            shown.append(line)
            continue
        before, after = _around(file, start)
        above = _fresh(zip(range(line.line - len(before), line.line), before, strict=True), taken)
        below = _fresh(zip(range(line.line + 1, line.line + 1 + len(after)), after, strict=True), taken)
        shown.append(replace(line, before=above, after=below))
    return tuple(shown)


def _fresh(numbered: Collection[tuple[int, bytes]] | zip[tuple[int, bytes]], taken: set[int]) -> tuple[str, ...]:
    found = []
    for number, raw in numbered:
        text = _readable(raw)
        if number not in taken and text.strip():
            taken.add(number)
            found.append(text)
    return tuple(found)


def _around(file: BinaryIO, start: int) -> tuple[list[bytes], list[bytes]]:
    """The whole lines before and after the one at this offset that lie within a few kilobytes."""
    window = min(start, _WINDOW)
    file.seek(start - window)
    above = file.read(window).split(b"\n")[:-1]
    if window < start:
        above = above[1:]  # begins in the middle of a line
    here, *below = file.read(2 * _WINDOW).split(b"\n")
    del here
    return above[-BEFORE:], below[:AFTER]


def last_lines(data: bytes) -> tuple[str, ...]:
    """The last lines of what a process had printed."""
    return tuple(row for row in map(_readable, data.split(b"\n")) if row.strip())[-_WORDS:]


def last_words(file: BinaryIO) -> tuple[str, ...]:
    """The last lines that a process wrote, without the report of what watched it."""
    file.seek(0)
    if ips.begins(file.read(ips.HEAD)):
        return ()
    end = file.seek(0, 2)
    file.seek(max(0, end - _ENDING))
    rows = [_readable(raw) for raw in file.read(_ENDING).split(b"\n")]
    dump = next((index for index, row in enumerate(rows) if _DUMPS.match(row)), len(rows))
    return tuple(row for row in rows[:dump] if row.strip())[-_WORDS:]


def _readable(raw: bytes) -> str:
    _, text = strip(clean(raw[: 4 * _LONGEST]))
    return text.rstrip() if len(text) <= _LONGEST else text[:_LONGEST] + "…"
