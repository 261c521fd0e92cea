"""What a stack repeats is found once, with its count, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashkit.model import Crash, ElidedFrames, NativeFrame, PythonFrame, Signal, Thread
from crashkit.report import markdown, text
from crashkit.report.cycles import Part, parts
from crashkit.report.index.entry import entry
from crashkit.report.issue import issue


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


def test_a_recursion_is_shown_once_in_every_format() -> None:
    """Its native frames lie between the Python ones, and are left out in some."""
    cycle = (
        PythonFrame(function="walk", file="/srv/app.py", line=3),
        NativeFrame(function="slot_tp_repr", module="/usr/bin/python3.11"),
        PythonFrame(function="visit", file="/srv/app.py", line=7),
    )
    names = ("walk", "slot_tp_repr", "visit")
    frames = (*cycle * 30, ElidedFrames(count=30_000, cycle=names), *cycle * 5, PythonFrame(function="main", file="/srv/app.py", line=9))
    crash = Crash(signal=Signal(number=11, name="SIGSEGV"), threads=(Thread(tid=1, crashed=True, frames=frames),))
    python = "the 2 frames above occur about 10,000 times in a row"
    assert python in markdown.summary(crash) and python in issue(crash)
    whole = "\n".join(text.summary(crash, None, color=False, width=100))
    assert "the 3 frames above occur about 10,000 times in a row" in whole
    stacks = (whole.partition("Stack of")[2], markdown.summary(crash).partition("Innermost")[2], issue(crash).partition("stack,")[2])
    assert [shown.count("app.py:3") for shown in stacks] == [1, 1, 1]
    stack = entry(crash, 1).stack
    assert [place.function for place in stack] == ["walk", "visit", "main"]
