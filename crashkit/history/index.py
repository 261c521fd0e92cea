"""A connection to a history: SQLite in a file, or PostgreSQL where a team shares one."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from crashkit.errors import CrashkitError
from crashkit.history.address import INSTALL, NONE, POSTGRESQL, SQLITE, installed, problem
from crashkit.secrets.text import Secrets

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import URL

_CONNECT_SECONDS = 5
_BUSY_SECONDS = 30
"""How long a writer waits for another one: each holds the file for milliseconds."""
_UNANSWERED_MS = 15_000
_UPGRADING = 0x63726B
"""The number of PostgreSQL's lock while tables are made or changed."""
_INSTALL_POSTGRESQL = "pip install 'psycopg[binary]'"


class HistoryError(CrashkitError):
    """The history cannot be read or written now."""


def digest(address: str) -> str:
    """Tells indexes apart in names of files; it says nothing about passwords."""
    return hashlib.sha256(shown(address).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def shown(address: str) -> str:
    """The address without its password."""
    return Secrets().text(address if "://" in address else os.path.abspath(address))  # noqa: PTH100 (links stay)


@contextlib.contextmanager
def connect(address: str, *, write: bool = False, upgrade: bool = False) -> Iterator[Connection]:
    """A connection in a transaction, which ends with the block; the tables are those of this crashkit.

    Missing tables are made, those of an older crashkit changed: in PostgreSQL only with `upgrade`, since its other users may run that
    older one. Raises HistoryError.
    """
    if address == NONE:
        raise HistoryError("no history is kept here: the index is set to none", "Pass another one with --index.")
    if not installed():
        raise HistoryError("the history needs SQLAlchemy and alembic, which are not installed", INSTALL)
    with _plain_errors(address):
        url = _url(address)
        if url.get_backend_name() == "sqlite" and not write and not os.path.exists(url.database or ""):  # noqa: PTH110
            raise HistoryError(f"there is no history at {shown(address)}", "crashkit run creates it with the first crash that it reports.")
        engine = _engine(url, write)
        with engine.connect() as connection, connection.begin():
            stale = not _is_current(connection, address)
            if stale and write:
                _migrate(connection, address, upgrade)
            if write or not stale:
                yield connection
                return
        with connect(address, write=True, upgrade=upgrade):
            pass
        with engine.connect() as connection, connection.begin():
            yield connection


def _url(address: str) -> URL:
    """Raises HistoryError for a kind of database that is not supported, or whose driver is not installed."""
    if wrong := problem(address):
        raise HistoryError(f"{shown(address)} cannot be used: {wrong}", "Pass another one with --index.")
    from sqlalchemy.engine import URL, make_url
    from sqlalchemy.exc import ArgumentError

    if "://" not in address:
        return URL.create("sqlite", database=os.path.abspath(address))  # noqa: PTH100
    scheme, _, rest = address.partition("://")
    try:
        url = make_url(f"sqlite://{rest}" if scheme in SQLITE else f"postgresql+psycopg://{rest}")
    except (ArgumentError, ValueError):
        raise HistoryError(
            f"{shown(address)} is not the address of a database", "Pass a file, or postgresql://USER@HOST/DATABASE."
        ) from None
    if scheme in POSTGRESQL and find_spec("psycopg") is None:
        raise HistoryError("a history in PostgreSQL needs psycopg, which is not installed", _INSTALL_POSTGRESQL)
    return url


def _engine(url: URL, write: bool) -> Engine:
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    if url.get_backend_name() == "postgresql":
        patience = {"connect_timeout": _CONNECT_SECONDS, "tcp_user_timeout": _UNANSWERED_MS, "application_name": "crashkit"}
        return create_engine(url, poolclass=NullPool, connect_args={**patience, **url.query})
    if write:
        _make_private(Path(url.database or ""))
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": _BUSY_SECONDS})

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # The driver would begin one late, and not for tables; two writers that take the lock only to write could wait for each other.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _make_private(path: Path) -> None:
    """Make the file before SQLite does, readable by this user only. Raises HistoryError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise HistoryError(f"cannot write the history {path}: {error.strerror}", "Pass another one with --index.") from None


def _is_current(connection: Connection, address: str) -> bool:
    from crashkit.history.tables import VERSION

    version = _version(connection)
    if version is not None and version > VERSION:
        raise HistoryError(f"{shown(address)} was written by a newer version of crashkit", "Upgrade crashkit here, too.")
    return version == VERSION


def _version(connection: Connection) -> Optional[str]:
    from sqlalchemy import inspect, text

    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def _migrate(connection: Connection, address: str, upgrade: bool) -> None:
    """Make or change the tables, unless another process did so meanwhile."""
    from sqlalchemy import text

    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _UPGRADING})
        if _is_current(connection, address):
            return
        if _version(connection) is not None and not upgrade:
            raise HistoryError(
                f"the tables of {shown(address)} are from an older version of crashkit",
                "Run crashkit groups --upgrade, with the same --index.",
            )
    migrate(connection, "head")


def migrate(connection: Connection, version: str) -> None:
    """Bring the tables to a version, `head` for the newest, in the connection's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, version)


@contextlib.contextmanager
def _plain_errors(address: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise HistoryError(f"cannot open {shown(address)}: {error}", INSTALL) from error
    except Exception as error:
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        if not isinstance(error, SQLAlchemyError):
            raise
        told = str(error.orig if isinstance(error, DBAPIError) else error).strip().split("\n")[0]
        raise HistoryError(
            f"cannot use {shown(address)}: {Secrets().text(told)}", "Check the address and whether the database can be reached."
        ) from error
