"""Points in time, which hostile or broken evidence may put anywhere."""

from __future__ import annotations

import pytest

from crashkit.naming.times import utc


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_795_342_874.9, "2026-11-22T10:21:14Z"),
        (253_402_300_799, "9999-12-31T23:59:59Z"),
        (253_402_300_800, None),
        (-(1 << 40), None),
        (1 << 63, None),
        (1e308, None),
        (float("nan"), None),
        (None, None),
    ],
)
def test_a_time_that_no_calendar_has_is_not_known(seconds: float | None, written: str | None) -> None:
    assert utc(seconds) == written
