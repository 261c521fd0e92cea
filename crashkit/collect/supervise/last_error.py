"""What the exception that ended a command says of processes that were killed before: that one of them died, or something else. Pure.

Frameworks kill their helpers as they end. Only if the exception tells of a death, such a kill may be why the command failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

_TRACEBACK = b"Traceback (most recent call last):"
_LONGEST = 1 << 16
_OF_A_DEATH = re.compile(
    rb"\b(?:died|dead|death|killed|SIGKILL|signal 9|exit(?:ed|code| code| status)|terminated|crash(?:ed)?|lost|gone|unexpectedly|abruptly"
    rb"|worker|child|subprocess|out of memory|OOM|BrokenProcessPool|Broken ?Pipe|EOFError|Connection (?:reset|closed|refused|aborted))\b"
    rb"|Connection(?:Reset|Refused|Aborted)|WorkerLost",
    re.IGNORECASE,
)
_PID = re.compile(rb"\b[Pp][Ii][Dd](?:\(s\))?[ :=]{1,3}(\d{1,9})\b")


def to_blame(stderr: bytes, killed: Sequence[int]) -> Optional[int]:
    """Which of the killed processes, in the order of their deaths, the end of the command may be due to; None if it is due to none."""
    start = stderr.rfind(_TRACEBACK)
    if start < 0:
        return killed[0] if killed else None
    told = [line for line in stderr[start:][:_LONGEST].splitlines()[1:] if line[:1] not in (b" ", b"")]
    text = b"\n".join(told)
    named = [int(pid) for pid in _PID.findall(stderr[start:][:_LONGEST])]
    if (known := next((pid for pid in named if pid in killed), None)) is not None:
        return known
    # Of whom it tells is known, and it is none of these.
    return killed[0] if killed and not named and _OF_A_DEATH.search(text) else None
