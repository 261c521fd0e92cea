"""The words that the summaries share. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from crashkit.report.index.document import Entry, Group, Index, Place
from crashkit.report.wording import base_name, plural, short_path


def counts(index: Index) -> str:
    """`5 crashes in 2 groups, 1 of them new`."""
    if not index.entries:
        return f"No crashes in {plural(index.files, 'file')}"
    text = "1 crash" if len(index.entries) == 1 else f"{len(index.entries):,} crashes"
    if len(index.entries) > 1:
        text += (
            " in 1 group"
            if len(index.groups) == 1
            else ", all different"
            if len(index.groups) == len(index.entries)
            else f" in {plural(len(index.groups), 'group')}"
        )
    if index.has_baseline or index.has_history:
        new = sum(group.new for group in index.groups)
        text += f", {new if new else 'none'} of them new" if len(index.groups) > 1 else ", new" if new else ", not new"
    return text


def place(where: Place) -> str:
    """`tests/test_io.py:12`, as short as it says enough."""
    return (where.path or short_path(where.file)) + (f":{where.line}" if where.line else "")


def at(entry: Entry) -> str:
    """`decode (app/io.py:12)`; the native function where no Python line is known; '' if neither is."""
    own = entry.own
    if own is None:
        return entry.native or ""
    return f"{own.function or '(no name)'} ({place(own)})" if own.file else own.function or ""


def in_repository(entry: Entry) -> Optional[Place]:
    """The innermost line of the repository's own code."""
    return next((one for one in entry.stack if one.path), None)


def first_in_repository(entries: Iterable[Entry]) -> Optional[Place]:
    """That of the first crash of a group that has one: all have the same frames, but some know their files better."""
    return next(filter(None, map(in_repository, entries)), None)


def trend(group: Group) -> str:
    """How often it occurred before: `new`, `as before`, `2 before`, `2 before, first 2026-11-02`; '' without a baseline or a history."""
    if group.known is None:
        return ""
    if group.new:
        return "new"
    if group.before is not None:
        return "as before" if group.before == len(group.crashes) else f"{group.before:,} before"
    first = group.past.first_seen if group.past else None
    return f"{group.known:,} before" + (f", first {first[:10]}" if first else "")


def several(values: Iterable[Optional[str]], most: int = 4) -> str:
    """Different values, in order: `3.11.7, 3.13.0 and 2 more`."""
    found = list(dict.fromkeys(value for value in values if value))
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def program(entry: Entry) -> str:
    """The executable's name."""
    return base_name(entry.executable) if entry.executable else ""
