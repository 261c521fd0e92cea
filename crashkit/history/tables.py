"""The tables of the history, as the newest migration leaves them. Times are in seconds since the epoch."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text

VERSION = "0002"
"""The newest migration."""

metadata = MetaData()

groups = Table(
    "groups",
    metadata,
    Column("key", String(80), primary_key=True),
    Column("algorithm", Integer, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("frames", JSON, nullable=False),
    Column("signal", Text, nullable=False),
    Column("where", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("first_seen", Float(53), nullable=False),
    Column("last_seen", Float(53), nullable=False),
    Column("first_release", Text, nullable=False),
    Column("forgotten", Integer, nullable=False, server_default="0"),
)
"""Equal crashes. Signal, where and cause are those of the newest one; `forgotten` ones are counted, but not kept any more."""

crashes = Table(
    "crashes",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("group_key", String(80), ForeignKey("groups.key"), nullable=False),
    Column("seen", Float(53), nullable=False),
    Column("recorded", Float(53), nullable=False),
    Column("id", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("place", Text, nullable=False),
    Column("signal", Text, nullable=False),
    Column("where", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("program", Text, nullable=False),
    Column("release", Text, nullable=False),
    Column("python", Text, nullable=False),
    Column("crashkit", Text, nullable=False),
    Column("versions", JSON, nullable=False),
    Index("crashes_by_group", "group_key", "seen"),
    Index("crashes_by_time", "recorded"),
    Index("crashes_by_release", "release", "seen"),
)
