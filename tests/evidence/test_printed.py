"""What programs printed when a process of theirs died: each was made to die in that way, so what is true is known. As people paste it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Crash

ROOT = Path(__file__).parents[2]
NOTHING, NAMELESS = "none", "@"
MERELY_HOW = frozenset({"self-abort"})
"""What is said of a crash of which the signal alone is known."""


class Log(msgspec.Struct, forbid_unknown_fields=True):
    """fixtures/logs/programs.toml tells what its fields mean."""

    program: str
    truth: str
    expect: str
    text: str
    signal: str = ""
    confidence: str = ""
    never: tuple[str, ...] = ()


class _Logs(msgspec.Struct):
    log: list[Log]


LOGS = msgspec.toml.decode((ROOT / "fixtures" / "logs" / "programs.toml").read_bytes(), type=_Logs).log


def _each(change: Callable[[int, str], str]) -> Callable[[str], str]:
    return lambda text: "".join(change(number, row) + "\n" for number, row in enumerate(text.splitlines()))


def _at_80_columns(text: str) -> str:
    return "".join(row[start : start + 80] + "\n" for row in text.splitlines() for start in range(0, max(1, len(row)), 80))


PASTED: dict[str, Callable[[str], str]] = {
    "whole": lambda text: text,
    "docker": _each(lambda number, row: f"2026-11-27T12:31:{number % 60:02}.{123456789 + number}Z {row}"),
    "container runtime": _each(lambda number, row: f"2026-11-27T12:31:{number % 60:02}.{123456789 + number}Z stderr F {row}"),
    "compose": _each(lambda _, row: f"web-1  | {row}"),
    "journal": _each(lambda number, row: f"Nov 27 12:31:{number % 60:02} node3 web[4711]: {row}"),
    "indented": _each(lambda _, row: f"    {row}"),
    "quoted": _each(lambda _, row: f"> {row}"),
    "fenced": lambda text: f"It died today, see below.\n\n```\n{text}```\n",
    "terminal": _at_80_columns,
}


class Found(NamedTuple):
    """What is said of a text."""

    signal: str
    ids: tuple[str, ...]
    confidence: str = ""
    """Of the first."""


def read(folder: Path, text: str) -> Found:
    """What is said of the text; nothing of one that is refused."""
    path = folder / "pasted.log"
    path.write_text(text)
    try:
        crash: Crash = crash_of_log(path, read_log(path))
    except EvidenceError:
        return Found("refused", ())
    found = diagnose(crash, load_catalog())
    ids = tuple(finding.id for finding in found.findings)
    return Found((crash.signal.name if crash.signal else "") or "", ids, found.findings[0].confidence if ids else "")


def is_right(found: Found, log: Log) -> bool:
    """Whether that is the truth, and as much of it as the text tells."""
    if found.ids and not set(log.never).isdisjoint(found.ids):
        return False
    if log.expect == NOTHING:
        return not found.ids
    if log.signal and found.signal != log.signal:
        return False
    return MERELY_HOW.issuperset(found.ids) if log.expect == NAMELESS else found.ids[:1] == (log.expect,)


@pytest.mark.parametrize("log", LOGS, ids=[f"{log.program}: {log.truth}" for log in LOGS])
def test_what_a_program_printed(log: Log, tmp_path: Path) -> None:
    wrong = {how: found for how, paste in PASTED.items() if not is_right(found := read(tmp_path, paste(log.text)), log)}
    assert wrong == {}
    assert log.confidence in ("", read(tmp_path, log.text).confidence)
