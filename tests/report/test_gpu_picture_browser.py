"""The picture of a GPU kernel's grid in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from crashkit.model import Crash
from tests.gpu_cores import gpu
from tests.report.test_report_browser import browser, opened, pytestmark  # noqa: F401


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_seen_in_both_themes(opened: Any, theme: str) -> None:  # noqa: F811
    """Each state has a colour of its own, apart from its background, and nothing is refused by the page's policy."""
    page = opened(Crash(gpu=(gpu("native_hang"), gpu("triton_beyond"))))
    page.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    fills = {
        state: page.execute_script("return getComputedStyle(document.querySelector('svg.gpu rect.' + arguments[0])).fill", state)
        for state in ("failed", "waits", "runs")
    }
    ground = page.execute_script("return getComputedStyle(document.querySelector('.picture')).backgroundColor")
    assert len({*fills.values(), ground}) == 4
    assert "rgb(0, 0, 0)" not in fills.values()
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []
    boxes = page.execute_script(
        "return [...document.querySelectorAll('figure.picture svg[role=img]')].map(x => x.getBoundingClientRect().width)"
    )
    assert boxes
    assert all(width > 10 for width in boxes)
