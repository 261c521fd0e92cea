"""No line of a log, no name in a core makes a regular expression take more than linear time (tests/pumping.py)."""

from __future__ import annotations

import re
import time
from typing import Optional

import pytest

from tests.pumping import Place, every_pattern, inputs, seconds

SHORT, LONG = 8 << 10, 64 << 10
QUICK, BOUNDED = 0.1, 0.6
"""Seconds of processor time for 64 KB: below the first, nothing else is asked; up to the second, eight times the length may take
twelve times as long. What is quadratic takes 1.5 s to 100 s."""


def pace() -> float:
    """How much slower this machine is than the one that the limits are for, measured with a linear pattern; at least 1."""
    pattern, text = re.compile("(?:a|b)*c"), "ab" * 4000
    took = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(10):
            pattern.match(text)
        took.append(time.process_time() - began)
    return max(1.0, min(took) / 0.003)


def least(place: Place, method: str, text: str, enough: float = 0.01) -> float:
    """Of three tries, unless the first takes no more than is enough: another process may have had the cache."""
    took = seconds(place, method, text)
    return took if took <= enough else min(took, seconds(place, method, text), seconds(place, method, text))


def complaint(place: Place, method: str, slow: float) -> Optional[str]:
    """What is wrong with the time that this pattern takes. Short texts first: an exponential one must not be given a long one."""
    tried = []
    for make in inputs(place.pattern.pattern, place.pattern.flags):
        for length in (24, 128, 1024):
            took = seconds(place, method, make(length))
            if took > 0.01 * slow and least(place, method, make(length)) > 0.01 * slow:
                return f"{took:.2f} s for {length} characters like {make(40)!r}"
        tried.append((took, make))
    tried.sort(key=lambda one: one[0], reverse=True)
    for _, make in tried[:6]:
        short = least(place, method, make(SHORT), BOUNDED / 8 * slow)
        if short > BOUNDED / 8 * slow:
            return f"{short:.2f} s for 8 KB like {make(40)!r}"
        if short < QUICK / (LONG // SHORT) ** 2 * slow:
            continue  # Even if it were quadratic, the long text would be quick.
        long = least(place, method, make(LONG), QUICK * slow)
        if long > BOUNDED * slow or (long > QUICK * slow and long > 12 * least(place, method, make(SHORT))):
            return f"{short:.2f} s for 8 KB, {long:.2f} s for 64 KB like {make(40)!r}"
    return None


def found(places: list[Place]) -> list[str]:
    slow = pace()
    checked = ((place, complaint(place, method, slow)) for place in places for method in place.methods)
    return [f"{place.where}: {place.pattern.pattern[:80]!r}: {what}" for place, what in checked if what]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_every_pattern_is_linear_or_bounded(part):
    assert found(every_pattern()[part::4]) == []


@pytest.mark.long
@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$",
        r"^[-+ |.]*\d*[-+ |.]*$",
        r"^(?P<type>[A-Za-z_][\w.]*?(?:Error|[A-Z]\w*))(?:: (?P<message>.*))?$",
        r"(?P<library>[^\s:]+\.so[\w.]*): undefined symbol: (?P<symbol>\w+)",
        r"(?P<gpu>\S.*) with CUDA capability",
        r"ev_epoll\w*\.cc",
        r"x*x*y",
    ],
)
def test_the_test_finds_slow_patterns(pattern):
    """Among them those of 0.1.0."""
    assert found([Place("", re.compile(pattern), ("search",))])


@pytest.mark.slow
def test_every_kind_of_place_is_found():
    where = {place.where for place in every_pattern()}
    assert {
        "crashkit.evidence.text.gdb._FRAME",
        "crashkit.evidence.text.prefixes._LAYERS",
        "log_lines.toml c-assert",
        "cuda-illegal-access",
    } <= where
    assert any(":" in one for one in where)
    assert len(where) > 150
