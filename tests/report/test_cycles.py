"""What a stack repeats is found once, with its count, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashkit.report.cycles import Part, parts


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ("", []),
        ("abc", [Part(0, 3)]),
        ("xxxx", [Part(0, 4)]),  # four frames are shown as they are
        ("x" * 9, [Part(0, 1, 9)]),
        ("ab" * 5 + "m", [Part(0, 2, 5), Part(10, 1)]),
        ("zab" + "abc" * 4 + "cd", [Part(0, 3), Part(3, 3, 4), Part(15, 2)]),
        ("abcabc", [Part(0, 6)]),  # two rounds could be chance
        ("ababababab" + "cdcdcdcdcd", [Part(0, 2, 5), Part(10, 2, 5)]),
        ("abababababa", [Part(0, 2, 5), Part(10, 1)]),
    ],
)
def test_parts(stack: str, expected: list[Part]) -> None:
    assert parts(stack) == expected


@given(st.lists(st.sampled_from("abc"), max_size=80))
def test_nothing_is_lost_or_moved(stack: list[str]) -> None:
    whole: list[str] = []
    for part in parts(stack):
        assert part.start == len(whole)
        whole += stack[part.start : part.start + part.length] * part.rounds
    assert whole == stack
