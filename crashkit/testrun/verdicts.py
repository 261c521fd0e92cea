"""What the supervisor tells the fresh pytest of the tests that killed the earlier ones: a JSON file, by node id."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_NAME = "verdicts.json"


class Verdict(NamedTuple):
    """One test, or one file of tests, that killed pytest."""

    when: str
    """setup, call, teardown, collect."""
    text: str
    """For the test's report."""


Verdicts = dict[str, Verdict]


def read(folder: Path) -> Verdicts:
    """All of a session; none if nothing has crashed yet."""
    try:
        document = json.loads((folder / _NAME).read_bytes())
    except FileNotFoundError:
        return {}
    return {node: Verdict(*entry) for node, entry in document.items()}


def write(folder: Path, verdicts: Mapping[str, Verdict]) -> None:
    """Replace the file. Raises OSError."""
    (folder / _NAME).write_text(json.dumps(verdicts))
