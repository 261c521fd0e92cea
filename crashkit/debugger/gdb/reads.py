"""Which memory of a core gdb read, from what it logs of its targets (`set debug target`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional

# gdb/target.c, target_xfer_partial: objects 1 to 4 are memory, memory past caches, stacks and code; address, size asked for; status 1 is
# success, and the size that was read.
_ANSWERED = re.compile(
    rb"core:target_xfer_partial \([1-4], [^,\n]{1,64}, [^,\n]{1,32}, [^,\n]{1,32}, 0x([0-9a-f]{1,16}), (\d{1,20})\)"
    rb" = (-?\d{1,4}), (\d{1,10})"
)
_SUCCESS = b"1"
_MOST_BYTES = 1 << 30
_LONGEST_LINE = 64 << 10


def log_reads(console: Callable[[str], object], log: Path) -> None:
    """Let gdb write what it reads into this file. `console` passes it a command. Raises DebuggerError."""
    for command in (f"file {log}", "overwrite on", "debugredirect on", "enabled on"):
        console(f"set logging {command}")
    console("set debug target 1")


def logged_reads(log: Path) -> Iterator[tuple[int, int]]:
    """Address and size of each read of the core; what cannot be read of the log is left out."""
    return ((address, got) for address, _, got in _logged(log) if got is not None)


def logged_misses(log: Path) -> Iterator[tuple[int, int]]:
    """Address and size of what gdb asked the core for, and did not get."""
    return ((address, asked) for address, asked, got in _logged(log) if got is None)


def _logged(log: Path) -> Iterator[tuple[int, int, Optional[int]]]:
    """Address, size asked for, size that was read or None."""
    left = _MOST_BYTES
    try:
        with log.open("rb") as file:
            while left > 0 and (line := file.readline(_LONGEST_LINE)):
                left -= len(line)
                if found := _ANSWERED.search(line):
                    yield int(found[1], 16), int(found[2]), int(found[4]) if found[3] == _SUCCESS else None
    except OSError:
        return
