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


@pytest.mark.parametrize(
    ("stack", "omitted", "expected"),
    [
        # Four whole rounds and a frame, 97 frames in place of `.`, and the three that follow them: `cab`.
        ("z" + "abc" * 4 + "a" + "." + "cab" + "m", (97, 3), [Part(0, 1), Part(1, 3, 37, 18), Part(18, 1)]),
        ("abc" * 4 + "." + "abc" * 2, (30, 3), [Part(0, 3, 16, 19)]),
        # What follows is another cycle, or what was omitted is.
        ("abc" * 4 + "." + "xy" * 5, (30, 3), [Part(0, 3, 14, 13), Part(13, 2, 5)]),
        ("abc" * 4 + "." + "abc" * 4, (30, 2), [Part(0, 3, 4), Part(12, 1), Part(13, 3, 4)]),
        ("abc" * 4 + "x." + "abc" * 4, (30, 3), [Part(0, 3, 4), Part(12, 2), Part(14, 3, 4)]),
    ],
)
def test_frames_of_a_cycle_that_were_omitted_count_as_rounds_of_it(stack: str, omitted: tuple[int, int], expected: list[Part]) -> None:
    assert parts(stack, {stack.index("."): omitted}) == expected


@given(st.lists(st.sampled_from("abc"), max_size=80))
def test_nothing_is_lost_or_moved(stack: list[str]) -> None:
    whole: list[str] = []
    for part in parts(stack):
        assert part.start == len(whole)
        whole += stack[part.start : part.start + part.length] * part.rounds
    assert whole == stack
