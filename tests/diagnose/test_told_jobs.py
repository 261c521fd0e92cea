"""What people and programs say of jobs, servers, limits and hangs (told_jobs.toml): named first, and what resembles it is not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.diagnose.synthetic import of_posted

TEXTS = msgspec.toml.decode(Path(__file__).with_name("told_jobs.toml").read_bytes(), type=dict[str, dict[str, list[str]]])


def _pairs(kind: str) -> list[tuple[str, str]]:
    return [(identity, text) for identity, texts in TEXTS[kind].items() for text in texts]


@pytest.mark.parametrize(("identity", "text"), _pairs("told"))
def test_named_first(identity: str, text: str, tmp_path: Path) -> None:
    assert [finding.id for finding in of_posted(text, tmp_path)][:1] == [identity]


@pytest.mark.parametrize(("identity", "text"), _pairs("look-alike"))
def test_what_resembles_it(identity: str, text: str, tmp_path: Path) -> None:
    assert identity not in [finding.id for finding in of_posted(text, tmp_path)]
