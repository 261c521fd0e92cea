"""Trends in one word."""

from __future__ import annotations

from crashkit.report.sparkline import heights, sparkline


def test_sparklines() -> None:
    assert sparkline([0, 1, 8, 4]) == " ▁█▄" and sparkline([5, 0, 0]) == "█" and sparkline([0, 0]) == sparkline([]) == ""


def test_what_is_there_is_seen() -> None:
    """However small beside the largest."""
    assert heights([0, 1, 1_000_000], 12) == [0, 1, 12]
