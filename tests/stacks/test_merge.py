"""Merging the native and the Python stack of a thread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashkit.model import NativeFrame, PythonFrame
from crashkit.naming.functions import without_suffix
from crashkit.stacks.merge import is_evaluation, is_interpreter, merge, runs
from tests.stacks.frames import Stacks, evaluation, native, python, stacks


def names(frames) -> list[str | None]:
    return [frame.function for frame in frames]


def pythons(frames) -> list[PythonFrame]:
    return [frame for frame in frames if isinstance(frame, PythonFrame)]


def natives(frames) -> list[NativeFrame]:
    return [frame for frame in frames if isinstance(frame, NativeFrame)]


def is_part_of(part: list, whole: list) -> bool:
    """Whether `part` is `whole` with some frames left out, in order."""
    rest = iter(whole)
    return all(any(frame is other for other in rest) for frame in part)


def test_one_evaluation_a_python_frame():
    """Up to 3.10."""
    stack = [
        native("strlen"),
        evaluation(),
        native("_PyEval_EvalFrame"),
        native("function_code_fastcall"),
        native("map_next"),
        evaluation(),
    ]
    merged = merge([*stack, native("main")], [python("read"), python("handle")])
    assert names(merged.frames) == ["strlen", "read", "map_next", "handle", "main"]


@pytest.mark.parametrize("above", [[], [native("raise"), NativeFrame(function="<signal handler called>", trust="signal")]])
def test_an_evaluation_that_a_stack_without_room_ended_at_its_beginning(above: list[NativeFrame]) -> None:
    """It has not put its Python frame in place yet."""
    stack = [*above, evaluation(), native("sort"), evaluation(), native("main")]
    merged = merge(stack, [python("key")], overflowed=True)
    assert names(merged.frames) == [*names(above), evaluation().function, "sort", "key", "main"]
    assert merge(stack, [python("key")]).frames is None
    assert merge([native("strlen"), *stack[len(above) :]], [python("key")], overflowed=True).frames is None


def test_several_python_frames_an_evaluation():
    """From 3.11 on only the outermost of a run was entered from C."""
    stack = [native("strlen"), evaluation(), native("map_next"), evaluation(), native("main")]
    frames = [
        python("string_at", entry=False),
        python("read"),
        python("listcomp", entry=False),
        python("handle", entry=False),
        python("crash"),
    ]
    merged = merge(stack, frames)
    assert names(merged.frames) == ["strlen", "string_at", "read", "map_next", "listcomp", "handle", "crash", "main"]


def test_one_evaluation_ran_all_the_frames_of_a_dump():
    """faulthandler does not tell where runs begin; with one evaluation there is one run, with more nobody knows."""
    frames = [python("string_at", entry=None), python("read", entry=None)]
    assert names(merge([native("strlen"), evaluation(), native("main")], frames).frames) == ["strlen", "string_at", "read", "main"]
    two = [evaluation(), native("map_next"), evaluation(), native("main")]
    assert names(merge(two, frames).frames) == ["string_at", "map_next", "read", "main"]
    assert merge(two, [*frames, python("crash", entry=None)]).frames is None


def test_what_the_compiler_hung_on_a_name_does_not_matter():
    merged = merge([native("_PyEval_EvalFrameDefault.cold"), native("_PyEval_Vector.constprop.0.isra.2"), native("main")], [python("f")])
    assert names(merged.frames) == ["f", "main"]
    assert without_suffix("_PyEval_EvalFrameDefault.localalias.3") == "_PyEval_EvalFrameDefault"
    assert without_suffix("") == "" and not is_evaluation(NativeFrame())


def test_interpreter_frames_away_from_an_evaluation_stay():
    """A crash in `_PyEval_EvalFrame` itself, before the evaluation began."""
    merged = merge([native("_PyEval_Vector"), native("partial_call"), evaluation(), native("main")], [python("f")])
    assert names(merged.frames) == ["_PyEval_Vector", "partial_call", "f", "main"]


def test_thread_without_python_frames():
    assert merge([native("read"), native("start_thread")], []).frames == (native("read"), native("start_thread"))
    # A thread state that is gone: its evaluations stay as they are.
    assert names(merge([evaluation(), native("main")], []).frames) == ["_PyEval_EvalFrameDefault", "main"]


def test_thread_without_native_frames():
    assert merge([], [python("f"), python("g")]).frames == (python("f"), python("g"))
    assert merge([], []).frames == ()


@pytest.mark.parametrize("extra", ["native", "python"])
def test_stacks_that_do_not_fit_are_not_merged(extra):
    stack = [evaluation(), native("main")] + ([evaluation(), native("x")] if extra == "native" else [])
    frames = [python("f")] + ([python("g"), python("h")] if extra == "python" else [])
    merged = merge(stack, frames)
    assert merged.frames is None
    assert (
        merged.why
        == f"{2 if extra == 'native' else 1} interpreter calls on the native stack, {3 if extra == 'python' else 1} on the Python stack"
    )


def test_no_interpreter_call_among_named_natives_is_a_mismatch():
    assert merge([native("read"), native("main")], [python("f")]).frames is None


def test_native_stack_cut_short():
    """Python frames beyond the cut follow it."""
    merged = merge([native("strlen"), evaluation()], [python("f"), python("g"), python("h")], native_cut=True)
    assert names(merged.frames) == ["strlen", "f", "g", "h"]


def test_python_stack_cut_short_leaves_the_evaluations_it_cannot_fill():
    stack = [evaluation(), native("map_next"), evaluation(), native("_PyEval_Vector"), native("main")]
    merged = merge(stack, [python("f")], python_cut=True)
    assert names(merged.frames) == ["f", "map_next", "_PyEval_EvalFrameDefault", "_PyEval_Vector", "main"]


@given(st.lists(st.sampled_from([True, False, None]), max_size=30))
def test_runs(entries):
    frames = [python(f"f{index}", entry) for index, entry in enumerate(entries)]
    groups = runs(frames)
    assert [frame for group in groups for frame in group] == frames
    assert all(groups)
    for group in groups:
        assert all(frame.entry is False for frame in group[:-1])
    assert all(group[-1].entry is not False for group in groups[:-1])


@given(stacks())
def test_merging_gives_the_stack_that_it_was_taken_from(stack: Stacks):
    assert merge(stack.native, stack.python).frames == stack.merged


@given(stacks(), st.data())
def test_whatever_fits_or_not_nothing_is_lost_or_moved(stack: Stacks, data):
    """Any piece of either stack, cut or not, said to be cut or not."""
    taken = stack.native[: data.draw(st.integers(0, len(stack.native)))]
    left = stack.python[: data.draw(st.integers(0, len(stack.python)))]
    merged = merge(taken, left, native_cut=data.draw(st.booleans()), python_cut=data.draw(st.booleans()))
    if merged.frames is None:
        assert merged.why
        return
    # Every Python frame appears exactly once and in order; of the native ones only the interpreter's own may go, one evaluation a run.
    assert pythons(merged.frames) == list(left)
    assert is_part_of(natives(merged.frames), list(taken))
    kept = {id(frame) for frame in natives(merged.frames)}
    gone = [frame for frame in taken if id(frame) not in kept]
    assert all(is_interpreter(frame) for frame in gone)
    assert sum(map(is_evaluation, gone)) == min(sum(map(is_evaluation, taken)), len(runs(left)))


@given(stacks(), st.data())
def test_a_cut_stack_begins_as_the_whole_one(stack: Stacks, data):
    taken = stack.native[: data.draw(st.integers(0, len(stack.native)))]
    merged = merge(taken, stack.python, native_cut=True)
    if not stack.python or not taken:
        return
    cut = merged.frames
    assert cut is not None
    same = next((at for at, (ours, whole) in enumerate(zip(cut, stack.merged, strict=False)) if ours != whole), len(cut))
    # From the cut on only Python frames follow.
    assert all(isinstance(frame, PythonFrame) for frame in cut[same:])
