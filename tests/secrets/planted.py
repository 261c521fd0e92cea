"""A real crash with secrets in all that it leaves (fixtures/crashers/with_secrets.py)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.crashes import CRASHERS

PROGRAM = CRASHERS / "with_secrets.py"
ARGUMENTS = ("--db-pass", "pl4ntArgv20", "--api-token=pl4ntArgv21", "pl4ntEnv22")
ENVIRONMENT = {"HF_TOKEN": "pl4ntEnv22", "NCCL_PASS": "pl4ntNccl23", "DB_PASSWORD": "pl4ntEnv24"}
"""The first is not shown, and stands in the command line and in the log; the second would be shown; the third is a local variable."""

_SECRET = re.compile(r"pl4nt[A-Z]\w+")
ALL = frozenset(_SECRET.findall(" ".join((PROGRAM.read_text(), *ARGUMENTS, *ENVIRONMENT.values()))))
READABLE = ("token_ids", "[101, 2023, 102]", "select 1", "postgres://me:")
"""What stands beside them and is none."""


def left(texts: Iterable[str]) -> set[str]:
    return {secret for text in texts for secret in _SECRET.findall(text)}


def in_files(folder: Path) -> set[str]:
    """Those in the files of a folder, except the core: it holds the memory of the process."""
    return left(path.read_bytes().decode("utf-8", "replace") for path in folder.rglob("*") if path.is_file() and path.name != "core")
