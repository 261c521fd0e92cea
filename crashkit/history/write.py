"""Puts entries into the tables, and forgets the oldest ones. Written twice, an entry counts once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Union

from msgspec.structs import replace
from sqlalchemy import Connection, Table, case, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from crashkit.history.entry import Entry
from crashkit.history.tables import crashes, groups

_TOGETHER = 5000
"""Keys in one question: SQLite takes 32,766."""
_Insert = Union[postgresql.Insert, sqlite.Insert]


class _Known(NamedTuple):
    """What is there of a crash already."""

    group: str
    release: str
    recorded: float


class Retention(NamedTuple):
    """How much of the history stays; as in the store, crashes beyond any limit go, oldest first."""

    crashes: int = 100_000
    age: float = 365 * 86400
    """Seconds."""


def insert(connection: Connection, entries: Sequence[Entry]) -> list[str]:
    """Write the entries; the keys of groups that a crash has left for another one, for `tidy`.

    Rows are written in the order of their keys: two writers never wait for each other in a circle. The release that was written first
    stays: who analyzes the crash later may not know it, or have another one checked out.
    """
    newest = {entry.key: entry for entry in sorted(entries, key=lambda entry: entry.recorded)}
    known = _known(connection, sorted(newest))
    for key, there in known.items():
        if newest[key].recorded < there.recorded:
            del newest[key]  # delivered late: its group may be one that the crash has left
        else:
            newest[key] = replace(newest[key], release=there.release or newest[key].release)
    if not newest:
        return []
    ordered = sorted(newest.values(), key=lambda entry: (entry.group, entry.seen, entry.key))
    connection.execute(_group_rows(connection), [_group(entry) for entry in ordered])
    connection.execute(_crash_rows(connection), [_crash(newest[key]) for key in sorted(newest)])
    return sorted({known[key].group for key, entry in newest.items() if key in known and known[key].group != entry.group})


def _known(connection: Connection, keys: Sequence[str]) -> dict[str, _Known]:
    """Those of these crashes that are there already."""
    columns = (crashes.c.key, crashes.c.group_key, crashes.c.release, crashes.c.recorded)
    found: dict[str, _Known] = {}
    for at in range(0, len(keys), _TOGETHER):
        rows = connection.execute(select(*columns).where(crashes.c.key.in_(keys[at : at + _TOGETHER])))
        found.update({key: _Known(*rest) for key, *rest in rows})
    return found


def tidy(connection: Connection, left: Sequence[str]) -> None:
    """Groups that crashes have left were not seen when those were; without any crash they are gone. In a transaction of its own."""
    for key in left:
        mine = groups.c.key == key
        # First the lock, then the look: with PostgreSQL a statement sees what was there as it began.
        connection.execute(select(groups.c.key).where(mine).with_for_update())
        seen = connection.execute(select(func.min(crashes.c.seen), func.max(crashes.c.seen)).where(crashes.c.group_key == key)).one()
        if seen[0] is None:
            connection.execute(delete(groups).where(mine))
        else:
            times = {"first_seen": case((groups.c.forgotten == 0, seen[0]), else_=groups.c.first_seen), "last_seen": seen[1]}
            connection.execute(update(groups).where(mine).values(times))


def _insert(connection: Connection, table: Table) -> _Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def _group_rows(connection: Connection) -> _Insert:
    statement = _insert(connection, groups)
    new = statement.excluded
    earlier, later = new.first_seen < groups.c.first_seen, new.last_seen >= groups.c.last_seen
    changes: dict[str, Any] = {name: case((earlier, new[name]), else_=groups.c[name]) for name in ("first_seen", "first_release")}
    changes.update({name: case((later, new[name]), else_=groups.c[name]) for name in ("last_seen", "signal", "where", "cause")})
    return statement.on_conflict_do_update(index_elements=[groups.c.key], set_=changes)


def _crash_rows(connection: Connection) -> _Insert:
    statement = _insert(connection, crashes)
    changes = {column.name: statement.excluded[column.name] for column in crashes.c if column.name != "key"}
    return statement.on_conflict_do_update(
        index_elements=[crashes.c.key], set_=changes, where=statement.excluded.recorded >= crashes.c.recorded
    )


def _group(entry: Entry) -> dict[str, Any]:
    version, _, fingerprint = entry.group.partition("-")
    return {
        "key": entry.group,
        "algorithm": int(version),
        "fingerprint": fingerprint,
        "frames": list(entry.frames),
        "signal": entry.signal,
        "where": entry.where,
        "cause": entry.cause,
        "first_seen": entry.seen,
        "last_seen": entry.seen,
        "first_release": entry.release,
    }


def _crash(entry: Entry) -> dict[str, Any]:
    same = ("key", "seen", "recorded", "id", "host", "place", "signal", "where", "cause", "program", "release", "python", "crashkit")
    return {"group_key": entry.group, "versions": dict(entry.versions), **{name: getattr(entry, name) for name in same}}


def forget(connection: Connection, before: float) -> int:
    """Remove the crashes recorded before a time, and groups that have no others; how many crashes. Other groups keep their count."""
    doomed = crashes.c.recorded < before
    counted = select(crashes.c.group_key, func.count()).where(doomed).group_by(crashes.c.group_key)
    for key, number in sorted(map(tuple, connection.execute(counted))):
        connection.execute(update(groups).where(groups.c.key == key).values(forgotten=groups.c.forgotten + number))
    gone = connection.execute(delete(crashes).where(doomed)).rowcount
    left = select(crashes.c.key).where(crashes.c.group_key == groups.c.key).exists()
    connection.execute(delete(groups).where(~left))
    return gone


def overdue(connection: Connection, keep: Retention, now: float) -> float:
    """Crashes recorded before this time are beyond the retention; 0 if none is."""
    before = 0.0
    oldest = connection.execute(select(func.min(crashes.c.recorded))).scalar()
    if oldest is not None and oldest < now - keep.age:
        before = now - keep.age
    if (connection.execute(select(func.count()).select_from(crashes)).scalar() or 0) > keep.crashes:
        last_kept = select(crashes.c.recorded).order_by(crashes.c.recorded.desc()).offset(keep.crashes - 1).limit(1)
        before = max(before, connection.execute(last_kept).scalar() or 0.0)
    return before
