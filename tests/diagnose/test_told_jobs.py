"""What people and programs say of jobs, servers, limits and hangs (told_jobs.toml): named first, and what resembles it is not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Finding

TEXTS = msgspec.toml.decode(Path(__file__).with_name("told_jobs.toml").read_bytes(), type=dict[str, dict[str, list[str]]])


def _pairs(kind: str) -> list[tuple[str, str]]:
    return [(identity, text) for identity, texts in TEXTS[kind].items() for text in texts]


@pytest.mark.parametrize(("identity", "text"), _pairs("told"))
def test_named_first(identity: str, text: str, tmp_path: Path) -> None:
    assert [finding.id for finding in _findings(text, tmp_path)][:1] == [identity]


@pytest.mark.parametrize(("identity", "text"), _pairs("look-alike"))
def test_what_resembles_it(identity: str, text: str, tmp_path: Path) -> None:
    assert identity not in [finding.id for finding in _findings(text, tmp_path)]


def _findings(text: str, folder: Path) -> tuple[Finding, ...]:
    path = folder / "posted.txt"
    path.write_text(text + "\n")
    try:
        return tuple(diagnose(crash_of_log(path, read_log(path)), load_catalog()).findings)
    except EvidenceError:
        return ()
