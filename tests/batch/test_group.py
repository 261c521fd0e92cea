"""Equal crashes stand in one group, the worst first; almost equal ones say what differs."""

from __future__ import annotations

from crashkit.batch.group import grouped
from crashkit.report.index.document import Entry, Index


def entry(number: int, fingerprint: str | None, *frames: str, signal: str = "SIGSEGV", **facts: object) -> Entry:
    return Entry(number=number, fingerprint=fingerprint, fingerprint_version=2, frames=frames, signal=signal, **facts)  # type: ignore[arg-type]


def numbers(index: Index) -> list[tuple[int, ...]]:
    return [group.crashes for group in index.groups]


def test_groups_worst_first() -> None:
    """Those that failed by themselves before those that were ended, the frequent before the rare."""
    entries = (entry(1, "k", signal="SIGKILL"), entry(2, "k", signal="SIGKILL"), entry(3, "a"), entry(4, "b"), entry(5, "b"))
    assert numbers(grouped(Index(entries=entries))) == [(4, 5), (3,), (1, 2)]


def test_new_ones_stand_first() -> None:
    before = grouped(Index(entries=(entry(1, "b"), entry(2, "gone"))))
    index = grouped(Index(entries=(entry(3, "a"), entry(4, "b"), entry(5, "b"))), before)
    assert numbers(index) == [(3,), (4, 5)] and [group.before for group in index.groups] == [0, 1]
    assert [gone.key for gone in index.gone] == ["2:gone"]


def test_a_crash_without_a_fingerprint() -> None:
    """Equal by what is said of it; one that could not be analyzed is like no other."""
    entries = (
        entry(1, None, what="A"),
        entry(2, None, what="A"),
        entry(3, None, what="X", failed="no"),
        entry(4, None, what="X", failed="no"),
    )
    index = grouped(Index(entries=entries))
    assert sorted(numbers(index)) == [(1, 2), (3,), (4,)]
    again = grouped(Index(entries=entries[1:]), index)
    assert [(group.crashes, group.before) for group in again.groups] == [((3,), 0), ((4,), 0), ((2,), 2)] and again.gone == ()


def test_fingerprints_of_another_version_are_others() -> None:
    other = Entry(number=2, fingerprint="a", fingerprint_version=3, signal="SIGSEGV")
    assert numbers(grouped(Index(entries=(entry(1, "a"), other)))) == [(1,), (2,)]


def test_the_best_told_crash_represents_its_group() -> None:
    entries = (entry(1, "a", missing=3), entry(2, "a", missing=0))
    assert numbers(grouped(Index(entries=entries))) == [(2, 1)]


def test_near_ones_say_what_differs() -> None:
    one, other, far = (
        entry(1, "a", "memcpy", "parse", "main"),
        entry(2, "b", "strlen", "parse", "main", python="3.13.0"),
        entry(3, "c", "x", "y"),
    )
    index = grouped(Index(entries=(one, other, far)))
    near = {group.key: [(one.group, one.differs) for one in group.near] for group in index.groups}
    assert near == {
        "2:a": [("2:b", ("frame: strlen, here memcpy", "Python: 3.13.0, here none"))],
        "2:b": [("2:a", ("frame: memcpy, here strlen", "Python: none, here 3.13.0"))],
        "2:c": [],
    }
