"""GitHub's annotations: workflow commands that a step prints, one a group (docs.github.com, "Workflow commands for GitHub Actions")."""

from __future__ import annotations

from crashkit.report import safe
from crashkit.report.index import wording
from crashkit.report.index.document import Index

MOST = 10
"""GitHub shows so many errors of one step."""


def lines(index: Index) -> list[str]:
    """The commands, the worst group first."""
    return [_line(index, number) for number in range(min(MOST, len(index.groups)))]


def _line(index: Index, number: int) -> str:
    entries = index.members(index.groups[number])
    first = entries[0]
    where = wording.first_in_repository(entries)
    facts = {"file": where.path, "line": str(where.line) if where.line else None} if where else {}
    times = f" ({len(entries):,} times)" if len(entries) > 1 else ""
    facts["title"] = f"{first.signal or 'Crash'}{times}: {first.cause or wording.at(first) or first.what}"
    tests = wording.several(entry.test for entry in entries)
    message = f"{first.what}{f' While running {tests}.' if tests else ''}"
    given = ",".join(f"{name}={_property(value)}" for name, value in facts.items() if value)
    return f"::error {given}::{_data(message)}"


def _data(text: str) -> str:
    """actions/toolkit, command.ts, escapeData: nothing in the text ends the command, or begins another one."""
    return safe.line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
