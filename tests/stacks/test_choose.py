"""Which of several Python stacks of a thread is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from crashkit.debugger.contract import PythonStack
from crashkit.model import Address, PythonFrame, Thread
from crashkit.stacks.choose import choose, of_faulthandler


def frame(function: str | None = "f", line: int | None = 1, origin: str | None = "libpython", **values: str) -> PythonFrame:
    return PythonFrame(function=function, file="f.py", line=line, origin=origin, locals=values)


def stack(
    *frames: PythonFrame, name: str | None = None, gil: bool | None = None, total: int | None = None, cut: bool = False
) -> PythonStack:
    return PythonStack(frames, name, gil, total=total, cut=cut)


def shown(sources: Sequence[Mapping[int, PythonStack]]) -> dict[int, PythonStack]:
    """The stacks that were chosen, as their sources read them: without what the others say of them (test_trust.py)."""

    def read(frames: Sequence[PythonFrame]) -> tuple[PythonFrame, ...]:
        return tuple(replace(frame, trust=None, confirmed_by=(), contradicted_by={}) for frame in frames)

    return {tid: one._replace(frames=read(one.frames), outer=read(one.outer)) for tid, one in choose(sources).stacks.items()}


def test_the_first_of_equals():
    first, second = stack(frame()), stack(frame(origin="pystack"))
    assert shown([{1: first}, {1: second}]) == {1: first}
    assert choose([{1: first}, {1: second}]).soft_errors == ()


def test_a_value_of_which_only_the_type_was_read_is_taken_from_who_read_it():
    array = "<numpy.ndarray uint8 (3,), data at 0x7f00>"
    ours = stack(
        frame(origin="crashkit", view=array, both=f"[{array}, <x.Y object at 0x7f01>]", n="8", gone="1", same="<x.Y at remote 0x1>")
    )
    libpython = stack(
        frame(
            view="<numpy.ndarray at remote 0x7f3c>",
            both="[<numpy.ndarray at remote 0x7f3c>, <x.Y at remote 0x7f01>]",
            n="7",
            same="<x.Z(a=1)>",
        )
    )
    (found,) = shown([{1: libpython}, {1: ours}])[1].frames
    assert found.locals == {"view": array, "both": ours.frames[0].locals["both"], "n": "7", "same": "<x.Z(a=1)>"}
    assert found.origin == "libpython"
    elsewhere = stack(frame(line=2, origin="crashkit", view=array))
    assert shown([{1: libpython}, {1: elsewhere}])[1].frames == libpython.frames


def test_a_stack_without_gaps_wins():
    gap, whole = stack(frame(line=None, x="1")), stack(frame(origin="pystack"))
    assert gap.has_gaps and not whole.has_gaps
    assert shown([{1: gap}, {1: whole}])[1].frames == whole.frames


def test_some_frames_win_over_none():
    whole = stack(frame(origin="pystack"))
    assert shown([{1: stack()}, {1: whole}])[1].frames == whole.frames


def test_each_thread_on_its_own():
    one, two = stack(frame("one")), stack(frame("two", origin="pystack"))
    assert shown([{1: one}, {2: two}, {}]) == {1: one, 2: two}


def test_name_and_gil_from_whoever_knows():
    chosen = shown([{1: stack(frame(), gil=False)}, {1: stack(frame(origin="pystack"), name="worker", gil=True)}])[1]
    assert (chosen.name, chosen.holds_gil) == ("worker", False)
    assert shown([{1: stack(frame())}, {1: stack(frame(origin="pystack"), gil=True)}])[1].holds_gil is True
    handling = stack(frame(origin="crashkit"))._replace(exception="KeyError('k')")
    assert shown([{1: stack(frame())}, {1: handling}])[1].exception == "KeyError('k')"


def test_disagreement_is_recorded():
    chosen = choose([{7: stack(frame(line=1), frame("g"))}, {7: stack(frame(line=2, origin="pystack"))}])
    assert [error.message for error in chosen.soft_errors] == [
        "thread 7: libpython and pystack disagree: f (f.py:1) against f (f.py:2) and one more frame; "
        "libpython is shown: it read more frames (2 against 1)"
    ]
    assert chosen.soft_errors[0].stage == "python"


def test_frames_that_only_one_of_two_whole_stacks_has_are_a_disagreement():
    for sources in ([frame()], [frame(), frame("main")]), ([frame(), frame("main")], [frame()]):
        assert len(choose([{7: stack(*frames)} for frames in sources]).soft_errors) == 1


def test_a_source_without_a_name_disagrees_too():
    chosen = choose([{7: stack(frame(line=1, origin=None))}, {7: stack(frame(line=2, origin="pystack"))}])
    assert "one source and pystack disagree: " in chosen.soft_errors[0].message
    assert "; one source is shown: " in chosen.soft_errors[0].message


def test_what_one_could_not_read_is_no_disagreement():
    partial = stack(frame(None, None), frame("g", None), frame(None, 3))
    whole = stack(frame(origin="pystack"), frame("g", 2, "pystack"), frame("h", 3, "pystack"))
    assert choose([{7: partial}, {7: whole}]).soft_errors == ()
    for other in (frame("x", None), frame(None, 7)):
        assert len(choose([{7: stack(other, *partial.frames[1:])}, {7: whole}]).soft_errors) == 1


def test_of_two_stacks_with_gaps_the_one_that_knows_more_wins():
    less, more = stack(frame(None, None), frame(x="1")), stack(frame("f", None, "pystack"), frame())
    for sources in ([less, more], [more, less]):
        first, second = shown([{1: one} for one in sources])[1].frames
        # The values of the other's are shown.
        assert first == more.frames[0] and (second.function, second.locals) == (more.frames[1].function, {"x": "1"})


def test_of_two_stacks_without_gaps_the_deeper_one_wins():
    less, more = stack(frame("f", x="1")), stack(frame("f", origin="pystack"), frame("main", origin="pystack"))
    for sources in ([less, more], [more, less]):
        assert [(one.function, one.origin) for one in shown([{1: one} for one in sources])[1].frames] == [
            ("f", "pystack"),
            ("main", "pystack"),
        ]
    deep = stack(frame(origin="pystack"), frame(origin="pystack"), frame(origin="pystack"), total=5000)
    assert shown([{1: more}, {1: deep}])[1].frames == deep.frames
    # Who counted more frames, and read fewer of them, may have counted what are none.
    assert shown([{1: deep}, {1: stack(*deep.frames, frame("main"))}])[1].total is None


def test_the_stack_of_a_subinterpreter_is_over_that_of_the_one_that_runs_it():
    inner, outer = stack(frame("inner"), gil=True), stack(frame("run"), frame("main"), name="MainThread", gil=False, cut=True)
    both = inner.over(outer)
    assert [one.function for one in both.frames] == ["inner", "run", "main"]
    assert (both.name, both.holds_gil, both.cut) == ("MainThread", True, True)
    deep = stack(frame("deep"), total=5000)
    assert deep.over(outer) == outer.over(deep) == deep
    assert stack(frame("inner"), cut=True).over(stack(frame("main"))).frames == (frame("inner"),)


def test_no_frames_are_no_disagreement():
    assert choose([{7: stack()}, {7: stack(frame(origin="pystack"))}]).soft_errors == ()


def test_the_dump_of_a_forked_sibling_is_no_disagreement():
    """Its threads have the same idents, and a log holds the dumps of both."""
    for order in (["faulthandler", "libpython"], ["libpython", "faulthandler"]):
        sources = [{7: stack(frame(line=line, origin=origin))} for line, origin in enumerate(order)]
        assert choose(sources).soft_errors == ()


@pytest.mark.parametrize("cut", [{"cut": True}, {"total": 5000}], ids=["cut", "deep"])
@pytest.mark.parametrize("first", [True, False])
def test_of_an_incomplete_stack_the_inner_end_is_compared(cut, first):
    """`sources` are the incomplete stack and the whole one, in either order."""

    def disagreements(inner: PythonFrame) -> int:
        short, whole = stack(inner, **cut), stack(frame("g", origin="pystack"), frame("main", origin="pystack"))
        sources = [{7: short}, {7: whole}] if first else [{7: whole}, {7: short}]
        return len(choose(sources).soft_errors)

    assert disagreements(frame("g")) == 0
    assert disagreements(frame("h")) == 1


def test_faulthandler_names_threads_by_their_ident():
    threads = [Thread(tid=11, pthread=Address(0x7F01)), Thread(tid=12)]
    dump = [
        Thread(tid=0x7F01, name="worker", frames=(frame(origin="faulthandler"),)),
        Thread(tid=0x7F02, frames=(frame(origin="faulthandler"),)),
        Thread(tid=None),
    ]
    assert of_faulthandler(dump, threads) == {11: stack(frame(origin="faulthandler"), name="worker")}


_KINDS = [frame(), frame("g"), frame(None), frame(line=None), frame(line=2, x="1"), frame(origin="pystack"), frame("g", None, "pystack")]
_stacks = st.lists(st.sampled_from(_KINDS), max_size=4).map(lambda frames: stack(*frames))
_sources = st.lists(st.dictionaries(st.integers(1, 4), _stacks, max_size=4), max_size=4)


@given(_sources)
def test_every_thread_gets_one_of_its_stacks_and_no_better_one_is_left_out(sources):
    chosen = shown(sources)
    assert chosen.keys() == {tid for source in sources for tid in source}
    for tid, best in chosen.items():
        candidates = [source[tid].frames for source in sources if tid in source]
        assert best.frames in candidates
        if not best.frames:
            assert not any(candidates)
        if best.has_gaps:
            assert all(PythonStack(frames, None, None).has_gaps for frames in candidates if frames)
