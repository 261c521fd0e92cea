"""Which of several Python stacks of a thread is shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crashkit.model import Address, PythonFrame, Thread
from crashkit.stacks.choose import choose, has_gaps, of_faulthandler
from crashkit.stacks.from_gdb import PythonStack


def frame(function: str | None = "f", line: int | None = 1, origin: str = "libpython", **values: str) -> PythonFrame:
    return PythonFrame(function=function, file="f.py", line=line, origin=origin, locals=values)


def stack(*frames: PythonFrame, name: str | None = None, gil: bool | None = None) -> PythonStack:
    return PythonStack(frames, name, gil)


def test_the_first_of_equals():
    first, second = stack(frame()), stack(frame(origin="pystack"))
    chosen = choose([{1: first}, {1: second}])
    assert chosen.stacks == {1: first}
    assert chosen.soft_errors == ()


def test_a_stack_without_gaps_wins():
    gap, whole = stack(frame(line=None, x="1")), stack(frame(origin="pystack"))
    assert has_gaps(gap) and not has_gaps(whole)
    assert choose([{1: gap}, {1: whole}]).stacks[1].frames == whole.frames


def test_some_frames_win_over_none():
    whole = stack(frame(origin="pystack"))
    assert choose([{1: stack()}, {1: whole}]).stacks[1].frames == whole.frames


def test_each_thread_on_its_own():
    one, two = stack(frame("one")), stack(frame("two", origin="pystack"))
    assert choose([{1: one}, {2: two}, {}]).stacks == {1: one, 2: two}


def test_name_and_gil_from_whoever_knows():
    chosen = choose([{1: stack(frame(), gil=False)}, {1: stack(frame(origin="pystack"), name="worker", gil=True)}]).stacks[1]
    assert (chosen.name, chosen.holds_gil) == ("worker", False)


def test_disagreement_is_recorded():
    chosen = choose([{7: stack(frame(line=1), frame("g"))}, {7: stack(frame(line=2, origin="pystack"))}])
    assert [error.message for error in chosen.soft_errors] == [
        "thread 7: libpython and pystack disagree; libpython is shown (2 frames against 1)"
    ]


def test_faulthandler_names_threads_by_their_ident():
    threads = [Thread(tid=11, pthread=Address(0x7F01)), Thread(tid=12)]
    dump = [
        Thread(tid=0x7F01, frames=(frame(origin="faulthandler"),)),
        Thread(tid=0x7F02, frames=(frame(origin="faulthandler"),)),
        Thread(tid=None),
    ]
    assert list(of_faulthandler(dump, threads)) == [11]


_KINDS = [frame(), frame("g"), frame(None), frame(line=None), frame(line=2, x="1"), frame(origin="pystack"), frame("g", None, "pystack")]
_stacks = st.lists(st.sampled_from(_KINDS), max_size=4).map(lambda frames: stack(*frames))
_sources = st.lists(st.dictionaries(st.integers(1, 4), _stacks, max_size=4), max_size=4)


@given(_sources)
def test_every_thread_gets_one_of_its_stacks_and_no_better_one_is_left_out(sources):
    chosen = choose(sources).stacks
    assert chosen.keys() == {tid for source in sources for tid in source}
    for tid, best in chosen.items():
        candidates = [source[tid].frames for source in sources if tid in source]
        assert best.frames in candidates
        if not best.frames:
            assert not any(candidates)
        if has_gaps(best):
            assert all(has_gaps(PythonStack(frames, None, None)) for frames in candidates if frames)
