"""Histories of other versions of crashkit."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from crashkit.history import index, tables
from crashkit.history.index import HistoryError, connect, migrate
from crashkit.history.query import groups_since
from crashkit.history.record import record
from tests.history.conftest import entry
from tests.postgres import Server

ROOT = Path(__file__).parent.parent.parent
FIRST = ROOT / "fixtures" / "history-0001.sql"
"""A file of the first version, with two crashes, as sqlite3's iterdump wrote it."""
GROUP = "2-77ff5d09dd6c3a10"


@contextlib.contextmanager
def unchecked(address: str) -> Iterator[Connection]:
    """A connection that leaves the tables as they are."""
    with index._engine(index._url(address), True).connect() as connection, connection.begin():
        yield connection


@pytest.fixture
def first(tmp_path: Path) -> str:
    path = tmp_path / "first.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.executescript(FIRST.read_text())
    return str(path)


def test_a_file_of_the_first_version_is_read_and_written(first: str, store: Path) -> None:
    with connect(first) as connection:
        (group,) = groups_since(connection, 0, 0, 2e9)
    assert (group.key, group.count, group.first_release, group.last_seen) == (GROUP, 2, "v1", 1795297467.0)
    assert record(first, [entry(7)], store) == (1, None)
    with connect(first) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == tables.VERSION


READER = """
import sys
from crashkit.history.index import connect
from crashkit.history.query import groups_since
print("ready", flush=True)
sys.stdin.readline()
with connect(sys.argv[1]) as connection:
    print(len(groups_since(connection, 0, 0, 2e9)))
"""


@pytest.mark.slow
def test_several_processes_may_migrate_at_once(first: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", READER, first]
    readers = [subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for reader in readers:
        assert reader.stdout is not None and reader.stdout.readline() == "ready\n"
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("go\n")
        reader.stdin.flush()
    assert [reader.communicate(timeout=60)[0] for reader in readers] == ["1\n"] * 4


def test_a_migration_that_fails_changes_nothing(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path(first).read_bytes()

    def fails(connection: Connection, version: str) -> None:
        migrate(connection, version)
        raise HistoryError("the disk is full", "")

    monkeypatch.setattr(index, "migrate", fails)
    with pytest.raises(HistoryError, match="disk is full"), connect(first):
        pass
    monkeypatch.undo()
    assert Path(first).read_bytes() == before
    with connect(first) as connection:
        assert len(groups_since(connection, 0, 0, 2e9)) == 1


@pytest.mark.slow
def test_a_shared_history_is_changed_on_request_only(server: Server, store: Path) -> None:
    """Its other users may run the older crashkit. Crashes wait meanwhile."""
    address = server.emptied()
    with unchecked(address) as connection:
        migrate(connection, "0001")
    outcome = record(address, [entry(1)], store)
    assert outcome.problem is not None and "an older version of crashkit" in str(outcome.problem) and "--upgrade" in outcome.problem.hint
    with pytest.raises(HistoryError, match="an older version of crashkit"), connect(address):
        pass
    with connect(address, write=True, upgrade=True):
        pass
    assert record(address, [entry(2)], store) == (2, None)


def test_a_history_of_a_newer_crashkit_is_left_alone(address: str, store: Path) -> None:
    record(address, [entry(1)], store)
    with unchecked(address) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    outcome = record(address, [entry(2)], store)
    assert outcome.problem is not None and "a newer version of crashkit" in str(outcome.problem)


def test_the_migrations_make_the_tables(address: str) -> None:
    scripts = ScriptDirectory(str(Path(index.__file__).parent / "migrations"))
    assert scripts.get_current_head() == tables.VERSION
    with connect(address, write=True) as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []
