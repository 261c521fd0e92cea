"""The evaluating function of an interpreter without names, found by counting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crashkit.stacks.evaluation import Walk, evaluation_starts

EVAL, COLD, VECTOR, CALL = 0x1000, 0x9000, 0x2000, 0x3000


def walk(*starts: int | None, runs: int) -> Walk:
    return Walk(starts, runs)


def test_the_innermost_function_that_counts_right() -> None:
    # _PyEval_Vector calls the evaluating function each time: both occur once a run.
    stacks = [walk(CALL, EVAL, VECTOR, None, EVAL, VECTOR, runs=2), walk(None, EVAL, VECTOR, CALL, runs=1)]
    assert evaluation_starts(stacks) == {EVAL}


def test_the_innermost_one_may_have_the_higher_address() -> None:
    stacks = [walk(CALL, VECTOR, EVAL, None, VECTOR, EVAL, runs=2), walk(None, VECTOR, EVAL, CALL, runs=1)]
    assert evaluation_starts(stacks) == {VECTOR}


def test_a_function_with_a_cold_part() -> None:
    stacks = [walk(CALL, COLD, CALL, EVAL, runs=2), walk(COLD, COLD, CALL, CALL, CALL, runs=2)]
    assert evaluation_starts(stacks) == {EVAL, COLD}


def test_nothing_fits() -> None:
    assert evaluation_starts([walk(CALL, CALL, runs=3), walk(EVAL, runs=5)]) == frozenset()


def test_too_little_to_count() -> None:
    assert evaluation_starts([walk(CALL, EVAL, runs=1)]) == frozenset()
    assert evaluation_starts([]) == frozenset()


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5)), min_size=2, max_size=6))
def test_threads_of_any_shape(shapes: list[tuple[int, int]]) -> None:
    """However many other frames stand between, and in whatever order the threads come."""
    stacks = []
    for number, (runs, others) in enumerate(shapes):
        frames: list[int | None] = []
        for run in range(runs):
            # Different ones in every place: none of them occurs as often as the evaluation everywhere.
            frames += [0x100000 + 0x1000 * number + 0x10 * run + other for other in range(others)]
            frames += [EVAL, VECTOR]
        stacks.append(Walk(tuple(frames), runs))
    expected = {EVAL} if sum(runs for runs, _others in shapes) >= 3 else set()
    assert evaluation_starts(stacks) == expected
    assert evaluation_starts(stacks[::-1]) == expected
