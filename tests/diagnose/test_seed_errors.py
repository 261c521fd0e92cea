"""docs/seed-errors.md tells the truth: each row that names a signature is recognised as it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.text.log import crash_of_log, read_log

PAGE = Path(__file__).parent.parent.parent / "docs" / "seed-errors.md"
ROWS = re.findall(r"^\| (`+)(.+?)\1 \| ([a-z0-9]+(?:-[a-z0-9]+)+) \|$", PAGE.read_text(), re.MULTILINE)


def test_there_are_rows() -> None:
    assert len(ROWS) == 14


@pytest.mark.parametrize(("error", "signature"), [(error, signature) for _, error, signature in ROWS])
def test_row(error: str, signature: str, tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_text(error + "\n")
    findings = diagnose(crash_of_log(path, read_log(path)), load_catalog()).findings
    assert [finding.id for finding in findings][:1] == [signature]
