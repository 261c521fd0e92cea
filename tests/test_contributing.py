"""CONTRIBUTING.md names files, folders and make targets that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
NOT_OURS = {"libpython.py"}
PLACES = sorted(
    {
        one or other
        for one, other in re.findall(r"`(?:pytest )?([\w.-]+/[\w./-]*|[\w-]+\.(?:py|md|toml))(?: [^`]*)?`|\]\(([\w./-]+)\)", TEXT)
    }
    - NOT_OURS
)
TARGETS = sorted(set(re.findall(r"(?:^|`)make ([\w-]+)", TEXT, re.M)))


def test_there_is_something_to_check() -> None:
    assert len(PLACES) > 30 and {"test", "test-fast", "lint", "mutate", "news"} <= set(TARGETS)


@pytest.mark.parametrize("place", PLACES)
def test_place_exists(place: str) -> None:
    """From the root of the repository, from crashkit/, or, in the folklore, by its name alone."""
    found = (ROOT / place).exists() or (ROOT / "crashkit" / place).exists()
    assert found or ("/" not in place and any((ROOT / "crashkit").rglob(place)))


@pytest.mark.parametrize("target", TARGETS)
def test_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
