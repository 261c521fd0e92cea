"""What needs no process: cycles, the depth of a stack of values, words, and a manifest that anyone may have written."""

from __future__ import annotations

import dis
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashkit.collect.live_core import Wanted
from crashkit.collect.living import Spent, share
from crashkit.collect.python_memory import merged
from crashkit.interpreter.locks import depth_at
from crashkit.stacks.living import Living, OpenFile, as_json, of_json
from crashkit.stacks.waits import cycles


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ({}, set()),
        ({1: 2}, set()),
        ({1: 1}, {1}),
        ({1: 2, 2: 1, 3: 1}, {1, 2}),
        ({4: 3, 3: 1, 1: 2, 2: 3}, {1, 2, 3}),
        ({1: 2, 2: 1, 3: 4, 4: 3, 5: 6}, {1, 2, 3, 4}),
    ],
)
def test_cycles(edges: dict[int, int], expected: set[int]) -> None:
    assert cycles(edges) == expected


@given(st.dictionaries(st.integers(0, 12), st.integers(0, 12)))
def test_on_a_cycle_is_what_comes_back_to_itself(edges: dict[int, int]) -> None:
    def returns(start: int) -> bool:
        at: int | None = start
        for _ in edges:
            at = edges.get(at) if at is not None else None
            if at == start:
                return True
        return False

    assert cycles(edges) == {tid for tid in edges if returns(tid)}


def test_ten_thousand_threads_in_a_row() -> None:
    began = time.process_time()
    assert cycles({tid: tid + 1 for tid in range(10_000)}) == set()
    assert time.process_time() - began < 0.5


def nested(a: object, b: object) -> None:
    with a:  # type: ignore[attr-defined]
        print(1)
        with b:  # type: ignore[attr-defined]
            print(2)
    try:
        print(3)
    finally:
        print(4)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 has no table of exception handlers")
def test_depth_by_the_table_is_what_dis_says() -> None:
    table = nested.__code__.co_exceptiontable
    entries = list(dis.Bytecode(nested).exception_entries)
    assert len(entries) > 3 and max(entry.depth for entry in entries) > 2
    for offset in range(0, len(nested.__code__.co_code), 2):
        expected = next((entry.depth for entry in entries if entry.start <= offset < entry.end), 0)
        assert depth_at(table, offset // 2) == expected, offset


def test_a_manifest_keeps_what_a_live_process_told() -> None:
    seen = Living(
        {7: 0.5},
        {3: OpenFile("socket", "127.0.0.1:80 to 127.0.0.1:90", 12)},
        (8, 9),
        frozenset((7,)),
        {8: "process 8 (cat): it runs"},
        frozenset((3, 5)),
    )
    assert of_json(as_json(seen)) == seen


def test_a_process_that_is_no_number() -> None:
    seen = of_json({"processor": {}, "files": {"3": ["pipe", "x", "<script>"]}, "children": []})
    assert seen is not None and seen.files[3].process is None


@pytest.mark.parametrize(
    "told", [None, 3, {}, {"processor": 1}, {"processor": {}, "files": {"x": 1}, "children": []}, {"files": {}, "children": {}}]
)
def test_one_that_somebody_else_wrote(told: object) -> None:
    assert of_json(told) is None


def test_a_busy_machine_makes_nobody_busy() -> None:
    """A thread that sleeps again as soon as it was looked at may have waited long for a processor until then."""
    second = 1_000_000_000
    before = Spent(5 * second, 7 * second)
    assert share(before, Spent(before.ran + 100_000, before.ready + second // 2), 1.0) < 0.001
    assert share(before, Spent(before.ran + second // 20, before.ready + second // 2), 1.0) == pytest.approx(0.55)
    assert share(before, Spent(before.ran + 2 * second, before.ready), 1.0) == 1.0


RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 15)).map(lambda pair: (pair[0], sum(pair))), max_size=12)


@given(RANGES)
def test_each_byte_is_wanted_once(ranges: list[tuple[int, int]]) -> None:
    wanted, known = Wanted(), set[int]()
    for start, end in ranges:
        new = [place for one, other in wanted.new(start, end) for place in range(one, other)]
        assert sorted(new) == sorted(set(range(start, end)) - known)
        known.update(range(start, end))


@given(RANGES, st.integers(1, 3))
def test_merged_ranges_hold_all(ranges: list[tuple[int, int]], most: int) -> None:
    apart = [(start << 12, end << 12) for start, end in ranges]
    found = merged(apart, most)
    assert len(found) <= most and found == sorted(found)
    assert all(any(start <= one and other <= end for start, end in found) for one, other in apart)
