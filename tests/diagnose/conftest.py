from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crashkit.errors import EvidenceError
from crashkit.model import Crash
from crashkit.pipeline import analyze


@pytest.fixture
def told(tmp_path: Path) -> Callable[[str], Crash]:
    """The analysis of a log with that text."""

    def read(text: str) -> Crash:
        log = tmp_path / "app.log"
        log.write_text(f"{text}\n")
        return analyze(log)

    return read


@pytest.fixture
def told_ids(told: Callable[[str], Crash]) -> Callable[[str], list[str]]:
    """The findings for a log with that text; none where it is refused."""

    def ids(text: str) -> list[str]:
        try:
            return [finding.id for finding in told(text).findings]
        except EvidenceError:
            return []

    return ids
