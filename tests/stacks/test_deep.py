"""Both ends of stacks too deep to show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashkit.limits import WHOLE_STACK
from crashkit.model import ElidedFrames, NativeFrame, PythonFrame
from crashkit.stacks.deep import INNER, OUTER, Ends, join, repeating, shorten
from tests.stacks.frames import evaluation, native, python, stacks

MAIN = (native("main", 1), native("_start", 2))


def pythons(frames) -> list[PythonFrame]:
    return [frame for frame in frames if isinstance(frame, PythonFrame)]


def gaps(frames) -> list[ElidedFrames]:
    return [frame for frame in frames if isinstance(frame, ElidedFrames)]


def names(frames) -> list[str]:
    return ["…" if isinstance(frame, ElidedFrames) else frame.function or "??" for frame in frames]


def recursion(count: int, entry: bool | None = True) -> tuple[PythonFrame, ...]:
    return tuple(python("down", entry) for _ in range(count))


def calls(count: int) -> tuple[NativeFrame, ...]:
    """Native frames of 3.10: an evaluation and the call that led to it, over and over."""
    return (evaluation(7), native("cfunction_call", 8)) * count


@pytest.mark.slow
@given(stacks(most_calls=60, most_native=6))
def test_a_stack_that_is_not_deep_is_shown_whole(stack):
    assert join(Ends(stack.native, stack.python)).frames == stack.merged


@pytest.mark.slow
@given(stacks(), st.data())
def test_what_does_not_fit_is_said(stack, data):
    wrong = (*stack.python, python("one"), python("too"), python("many"))
    joined = join(Ends(stack.native, wrong))
    assert joined.frames is None
    assert "interpreter calls on the native stack" in joined.why


class TestDeepPython:
    """The Python stack is known at both ends, and how deep it is."""

    def test_one_interpreter_call_ran_it_all(self):
        """Pure Python recursion from 3.11 on: the native stack is short and whole."""
        whole = (native("strlen"), evaluation(), *MAIN)
        outer = (*recursion(199, False), python("main", False), python("<module>", True))
        joined = join(Ends(whole, recursion(1000, False), python_outer=outer, python_total=5000)).frames
        assert names(joined[: INNER + 1]) == ["strlen"] + ["down"] * (INNER - 1) + ["…"]
        assert names(joined[-4:]) == ["main", "<module>", "main", "_start"]
        gap = gaps(joined)[0]
        assert gap.cycle == ("down",)
        assert gap.count + len(pythons(joined)) == 5000

    def test_one_interpreter_call_a_frame(self):
        """Up to 3.10: both stacks are deep."""
        outer = (*recursion(199), python("<module>"))
        joined = join(
            Ends(
                native=(native("strlen"), *calls(499)),
                python=recursion(1000),
                native_outer=(*calls(80), *MAIN),
                python_outer=outer,
                native_cut=True,
                python_total=3000,
                native_between=4000,
            )
        ).frames
        assert len(joined) == INNER + 1 + OUTER
        assert names(joined[:3]) == ["strlen", "down", "cfunction_call"]
        assert names(joined[-4:]) == ["<module>", "cfunction_call", "main", "_start"]
        gap = gaps(joined)[0]
        assert sorted(gap.cycle) == ["cfunction_call", "down"]
        shown = len(pythons(joined))
        assert gap.count == (3000 - shown) * 2

    def test_outer_native_end_unknown(self):
        joined = join(
            Ends((native("strlen"), *calls(499)), recursion(1000), python_outer=recursion(200), native_cut=True, python_total=3000)
        )
        assert names(joined.frames[-OUTER:]) == ["down"] * OUTER


class TestDeepNative:
    """C recursion: the native stack was not walked whole."""

    C = tuple(native("recurse", 5) for _ in range(1000))
    PYTHON = (python("call"), python("main"), python("<module>"))

    def test_python_frames_below_it_are_shown(self):
        """They were all run by frames near the outer end."""
        outer = (native("recurse", 5), native("ffi_call", 6), *calls(3), *MAIN)
        joined = join(Ends(self.C, self.PYTHON, native_outer=outer, native_cut=True, native_between=100000)).frames
        assert pythons(joined) == list(self.PYTHON)
        assert names(joined[-8:]) == ["call", "cfunction_call", "main", "cfunction_call", "<module>", "cfunction_call", "main", "_start"]
        gap = gaps(joined)[0]
        assert gap.cycle == ("recurse",)
        assert gap.count == 100000 + len(self.C) - INNER

    def test_without_an_outer_end_python_frames_are_shown_all_the_same(self):
        joined = join(Ends(self.C, self.PYTHON, native_cut=True)).frames
        assert pythons(joined) == list(self.PYTHON)
        assert gaps(joined) == [ElidedFrames(count=None, cycle=("recurse",))]

    def test_outer_end_without_names(self):
        """A stripped interpreter: no evaluation can be told."""
        outer = (native(None, 9), *MAIN)
        joined = join(Ends(self.C, self.PYTHON, native_outer=outer, native_cut=True)).frames
        assert pythons(joined) == list(self.PYTHON)
        assert names(joined[-3:]) == ["??", "main", "_start"]

    def test_without_python(self):
        joined = join(Ends(self.C, (), native_outer=MAIN, native_cut=True, native_between=50)).frames
        assert joined[-2:] == MAIN
        assert gaps(joined)[0].count == 50 + len(self.C) - INNER

    def test_a_walk_that_broke_off_early(self):
        """A damaged stack, a few frames in: nothing repeats, nothing is left out."""
        joined = join(Ends((native("strlen"), native("f")), self.PYTHON, native_cut=True)).frames
        assert names(joined) == ["strlen", "f", "call", "main", "<module>"]


@given(
    st.integers(0, 8),
    st.integers(0, 400),
    st.integers(0, 300),
    st.integers(0, 60),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 2, 5]),
)
def test_size_is_bounded_and_python_frames_are_never_doubled(groups, natives, inner, outer, cut, found, size):
    """Whatever the ends are, in whichever combination."""
    stack = calls(groups) + tuple(native("c", 3) for _ in range(natives))
    frames = tuple(python(f"f{index}", entry=index % size == size - 1) for index in range(inner))
    outer_frames = tuple(python(f"o{index}", entry=index % size == size - 1) for index in range(outer))
    total = inner + outer + 10 if outer else None
    joined = join(Ends(stack, frames, MAIN if found and cut else (), outer_frames, cut, total)).frames
    if joined is None:
        return
    assert len(joined) <= (WHOLE_STACK + OUTER + 1 if gaps(joined) else WHOLE_STACK)
    shown = [frame.function for frame in pythons(joined)]
    assert len(set(shown)) == len(shown)
    order = [frame.function for frame in (*frames, *outer_frames)]
    assert shown == [name for name in order if name in set(shown)]
    if not gaps(joined):
        assert shown == order


class TestRepeating:
    @given(st.integers(1, 20), st.integers(6, 40))
    def test_cycle_of_any_length(self, period, rounds):
        cycle = [native(f"f{index}", index) for index in range(period)]
        found = repeating(cycle * rounds)
        assert len(found) == period
        assert sorted(frame.function for frame in found) == sorted(frame.function for frame in cycle)

    def test_ends_that_differ(self):
        middle = [native("a", 1), native("b", 2)] * 40
        frames = [native(f"x{index}", index) for index in range(10)]
        assert [frame.function for frame in repeating([*frames, *middle, *frames])] in (["a", "b"], ["b", "a"])

    def test_nothing_repeats(self):
        assert not repeating([native(f"f{index}", index) for index in range(100)])
        assert not repeating([])


def test_shorten_keeps_what_is_short():
    frames = tuple(native("f", index) for index in range(WHOLE_STACK))
    assert shorten(frames) == frames
    short = shorten((*frames, native("g")))
    assert (short[:INNER], short[-OUTER:-1]) == (frames[:INNER], frames[-OUTER + 1 :])
    assert len(short) == INNER + OUTER + 1 and gaps(short)[0].count == WHOLE_STACK + 1 - INNER - OUTER
