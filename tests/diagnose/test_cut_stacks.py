"""faulthandler shows the 100 innermost frames: where all of them repeat one cycle of calls, the stack was about to be used up."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.text.log import crash_of_log, read_log

PAIR = ("line 20 in f", "line 20 in <lambda>")


def dump(*frames: str, end: str = "  ...\n", signal: str = "Segmentation fault") -> str:
    shown = "".join(f'  File "/srv/walk.py", {frame}\n' for frame in frames)
    return f"Fatal Python error: {signal}\n\nCurrent thread 0x00007f9ffab4cb80 (most recent call first):\n{shown}{end}"


DEEP = {
    "two functions": dump(*PAIR * 50),
    "one": dump(*("line 4 in walk",) * 100),
    "seven": dump(*(tuple(f"line {line} in walk" for line in range(7)) * 15)[:100]),
}
OTHERS = {
    "crashed in a call of its leaf": dump("line 9 in leaf", *PAIR * 50),
    "in another line than that of the recursion": dump("line 5 in walk", *("line 4 in walk",) * 99),
    "that ends": dump(*PAIR * 50, "line 30 in <module>", end=""),
    "few": dump(*PAIR * 5),
    "no fault": dump(*PAIR * 50, signal="Aborted"),
}


def found(tmp_path: Path, text: str) -> dict[str, str]:
    log = tmp_path / "stderr.log"
    log.write_text(text)
    return {finding.id: finding.confidence for finding in diagnose(crash_of_log(log, read_log(log)), load_catalog()).findings}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_is_a_stack_overflow(text: str, tmp_path: Path) -> None:
    assert found(tmp_path, text).get("stack-overflow") == "likely"


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_is_none(text: str, tmp_path: Path) -> None:
    assert "stack-overflow" not in found(tmp_path, text)
