"""Where a history is: a file, for SQLite, or the URL of a database. Imports nothing that takes time: `crashkit run` starts with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

VARIABLE = "CRASHKIT_INDEX"
NONE = "none"
"""The address that stands for no history."""
SQLITE = ("sqlite", "sqlite+pysqlite")
POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
INSTALL = "pip install sqlalchemy alembic"
_FILE = "history.sqlite"


def default(home: Path) -> str:
    """The history of a crash store."""
    return str(home / _FILE)


def chosen(given: Optional[str], environment: Mapping[str, str], home: Path) -> str:
    """The address for the crashes of a store: what an option or the environment says, else the store's own, if it can be written."""
    return given or environment.get(VARIABLE) or (default(home) if installed() and os.access(home, os.W_OK) else NONE)


def installed() -> bool:
    """Whether what a history needs is there, without importing it."""
    from importlib.util import find_spec

    return find_spec("sqlalchemy") is not None and find_spec("alembic") is not None


def problem(address: str) -> Optional[str]:
    """What is wrong with an address, as far as its text tells; None if nothing is."""
    scheme, separator, rest = address.partition("://")
    if not separator or scheme in POSTGRESQL or (scheme in SQLITE and len(rest) > 1 and rest.startswith("/")):
        return None
    return "a history is a file, or postgresql://USER@HOST/DATABASE"
