"""The two kinds of a history, each empty, and entries for them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crashkit.history.entry import Entry
from tests import postgres

pytest.importorskip("sqlalchemy", reason="needs SQLAlchemy (pip install sqlalchemy alembic)")


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    with postgres.server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "history.sqlite")
    running: postgres.Server = request.getfixturevalue("server")
    return running.emptied()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git (apt-get install git)")


def entry(number: int, group: int = 0, seen: float = 0.0, **facts: Any) -> Entry:
    """Crash `number`, seen now unless said otherwise."""
    facts = {"recorded": time.time(), "host": f"host{number % 4}", "signal": "SIGSEGV", "frames": ("a", "b"), **facts}
    return Entry(key=f"{number:032x}", group=f"2-{group:016x}", seen=seen or time.time(), id=f"id-{number}", place="/srv/x", **facts)
