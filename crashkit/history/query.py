"""What the history tells: groups with their counts, and the crashes of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

from sqlalchemy import Connection, Integer, Select, cast, func, select

from crashkit.errors import CrashkitError
from crashkit.history.tables import crashes, groups

BUCKETS = 12
_TOGETHER = 5000
"""Keys in one question: SQLite takes 32,766."""


@dataclass(frozen=True)
class Group:
    """Equal crashes. Signal, where and cause are those of the newest one; times are in seconds since the epoch."""

    key: str
    count: int
    """With those that are forgotten."""
    first_seen: float
    last_seen: float
    hosts: int
    signal: str
    where: str
    cause: str
    first_release: str
    frames: tuple[str, ...]
    trend: tuple[int, ...]
    """Crashes in each of `BUCKETS` equal parts of the time that was asked for, the oldest part first."""


@dataclass(frozen=True)
class Past:
    """What there was of a group before a run."""

    count: int
    """With those that are forgotten."""
    first_seen: Optional[float]
    """When the first of them was, in seconds since the epoch."""
    trend: tuple[int, ...]
    """As `Group.trend`, with those of the run."""


class Occurrence(NamedTuple):
    """One crash of the history."""

    id: str
    seen: float
    host: str
    place: str
    signal: str
    where: str
    cause: str
    program: str
    release: str
    python: str
    crashkit: str
    versions: Mapping[str, str]


def groups_since(
    connection: Connection, new_since: float, trend_from: float, now: float, limit: Optional[int] = None, only: Optional[str] = None
) -> list[Group]:
    """Groups that were first seen at or after `new_since`, the most frequent first; their trends begin at `trend_from`.

    With `only`, the group of this key.
    """
    number = func.count(crashes.c.key)
    total = (number + groups.c.forgotten).label("total")
    found: Select[Any] = (
        select(groups, total, func.count(crashes.c.host.distinct()).label("hosts"))
        .join(crashes, crashes.c.group_key == groups.c.key)
        .where(groups.c.first_seen >= new_since)
        .group_by(groups.c.key)
        .order_by(total.desc(), groups.c.last_seen.desc(), groups.c.key)
        .limit(limit)
    )
    if only is not None:
        found = found.where(groups.c.key == only)
    rows = connection.execute(found).mappings().all()
    trends = _trends(connection, trend_from, now)
    return [
        Group(
            key=row["key"],
            count=row["total"],
            first_seen=row["first_seen"],
            last_seen=row["last_seen"],
            hosts=row["hosts"],
            signal=row["signal"],
            where=row["where"],
            cause=row["cause"],
            first_release=row["first_release"],
            frames=tuple(row["frames"]),
            trend=tuple(trends.get(row["key"], {}).get(bucket, 0) for bucket in range(BUCKETS)),
        )
        for row in rows
    ]


def past(connection: Connection, keys: Sequence[str], began: float, run: Optional[str], trend_from: float, now: float) -> dict[str, Past]:
    """The past of the groups of these keys: their crashes that were recorded before `began`, and not by the run of this address.

    Two jobs of one run may report the same crash, and a job that is tried again reports it once more: neither makes it an old one.
    """
    earlier = crashes.c.recorded < began
    if run:
        for inside in ("/", "#"):
            earlier &= ~crashes.c.place.startswith(run + inside, autoescape=True)
    trends = _trends(connection, trend_from, now)
    found: dict[str, tuple[int, Optional[float]]] = {}
    for at in range(0, len(keys), _TOGETHER):
        some = keys[at : at + _TOGETHER]
        counted = select(crashes.c.group_key, func.count(), func.min(crashes.c.seen)).where(earlier, crashes.c.group_key.in_(some))
        found.update({key: (count, first) for key, count, first in connection.execute(counted.group_by(crashes.c.group_key))})
        forgotten = select(groups.c.key, groups.c.forgotten, groups.c.first_seen).where(groups.c.key.in_(some), groups.c.forgotten > 0)
        for key, count, first in connection.execute(forgotten):
            found[key] = (found.get(key, (0, None))[0] + count, first)
    return {
        key: Past(*found.get(key, (0, None)), trend=tuple(trends.get(key, {}).get(bucket, 0) for bucket in range(BUCKETS))) for key in keys
    }


def _trends(connection: Connection, begin: float, now: float) -> dict[str, dict[int, int]]:
    width = max((now - begin) / BUCKETS, 1.0)
    part_of = (crashes.c.seen - begin) / width
    # PostgreSQL rounds where SQLite, which may have been built without floor(), cuts off.
    bucket = cast(func.floor(part_of) if connection.dialect.name == "postgresql" else part_of, Integer).label("bucket")
    found: dict[str, dict[int, int]] = {}
    counted = (
        select(crashes.c.group_key, bucket, func.count())
        .where(crashes.c.seen >= begin, crashes.c.seen <= now)
        .group_by(crashes.c.group_key, bucket)
    )
    for key, part, number in connection.execute(counted):
        parts = found.setdefault(key, {})
        parts[min(part, BUCKETS - 1)] = parts.get(min(part, BUCKETS - 1), 0) + number
    return found


def find_group(connection: Connection, text: str) -> str:
    """The key of the one group whose key, or whose fingerprint, begins so. Raises CrashkitError."""
    begins = groups.c.key.startswith(text, autoescape=True) | groups.c.fingerprint.startswith(text, autoescape=True)
    kept = select(crashes.c.key).where(crashes.c.group_key == groups.c.key).exists()
    keys = list(connection.execute(select(groups.c.key).where(begins, kept).order_by(groups.c.key)).scalars())
    if text in keys:
        return text
    if len(keys) == 1:
        return str(keys[0])
    if not keys:
        raise CrashkitError(f"no group begins with {text!r}", "List the groups with crashkit groups.")
    raise CrashkitError(f"{len(keys)} groups begin with {text!r}", "Pass more of it: " + ", ".join(keys[:5]))


def occurrences(connection: Connection, group: str, limit: Optional[int] = None) -> list[Occurrence]:
    """The crashes of a group, newest first."""
    columns = [crashes.c[name] for name in Occurrence._fields]
    found = select(*columns).where(crashes.c.group_key == group).order_by(crashes.c.seen.desc(), crashes.c.key).limit(limit)
    return [Occurrence(*row) for row in connection.execute(found)]


def first_of_release(connection: Connection, text: str) -> Optional[float]:
    """When a release, or a commit that begins so, was first seen; None if it never was."""
    exact = select(func.min(crashes.c.seen)).where(crashes.c.release == text)
    found = connection.execute(exact).scalar()
    if found is None and len(text) >= 7 and set(text) <= set("0123456789abcdef"):
        found = connection.execute(select(func.min(crashes.c.seen)).where(crashes.c.release.startswith(text))).scalar()
    return found
