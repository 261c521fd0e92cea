"""Puts equal crashes into groups, the worst first, and says what almost equal ones differ in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, zip_longest
from typing import Optional

from msgspec.structs import replace

from crashkit.report.index.document import Entry, Gone, Group, Index, Near, Past

_FAULTS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS")
"""The process failed by itself: worse than to be ended from outside."""
_MOST_COMPARED = 300
"""Groups that are compared with each other, the worst ones: it takes their number squared."""
_MOST_NEAR = 5
_FAILED = "failed:"
"""How the key of a crash without a report begins."""
_SHARED = 0.5
"""Of the frames of two fingerprints, how many a pair shares that is almost equal."""


def grouped(index: Index, baseline: Optional[Index] = None) -> Index:
    """The index with its entries in groups; `baseline` says how many there were before."""
    before = {group.key: len(group.crashes) for group in baseline.groups if not group.key.startswith(_FAILED)} if baseline else {}
    members: dict[str, list[Entry]] = {}
    for entry in index.entries:
        members.setdefault(_key(entry), []).append(entry)
    groups = [
        Group(
            key=key,
            crashes=tuple(entry.number for entry in sorted(found, key=lambda one: (one.failed is not None, one.missing, one.number))),
            before=before.get(key, 0) if baseline else None,
        )
        for key, found in members.items()
    ]
    groups.sort(key=lambda group: _badness(group, members[group.key]))
    return replace(index, groups=_with_near(groups, {group.key: members[group.key][0] for group in groups}), gone=_gone(groups, baseline))


def with_past(index: Index, past: Mapping[str, Past]) -> Index:
    """The index with what the history says of groups, by their keys; those that are new by it come first."""
    groups = [replace(group, past=past.get(group.key)) for group in index.groups]
    return replace(index, groups=tuple(sorted(groups, key=lambda group: _badness(group, index.members(group)))))


def _key(entry: Entry) -> str:
    """Hashes of different versions of the algorithm cannot be compared."""
    if entry.fingerprint:
        return f"{entry.fingerprint_version or 0}:{entry.fingerprint}"
    # Without one it can only be compared by what is said of it; one without a report is like no other.
    return f"{_FAILED}{entry.number}" if entry.failed else f"text:{entry.signal or ''}:{entry.finding or entry.what}"


def _badness(group: Group, entries: Sequence[Entry]) -> tuple[bool, bool, int, str, int]:
    """Smallest first: new ones, then those that failed by themselves, then the frequent ones, then the earliest."""
    signal = entries[0].signal or ""
    fault = signal in _FAULTS or "_" in signal
    return group.known not in (None, 0), not fault, -len(entries), min(one.time or "~" for one in entries), entries[0].number


def _gone(groups: Iterable[Group], baseline: Optional[Index]) -> tuple[Gone, ...]:
    if baseline is None:
        return ()
    here = {group.key for group in groups}
    lost = [group for group in baseline.groups if group.key not in here and group.crashes and not group.key.startswith(_FAILED)]
    return tuple(Gone(key=group.key, what=baseline.entry(group.crashes[0]).what, before=len(group.crashes)) for group in lost)


def _with_near(groups: Sequence[Group], firsts: dict[str, Entry]) -> tuple[Group, ...]:
    near: dict[str, list[Near]] = {group.key: [] for group in groups}
    for one, other in combinations(groups[:_MOST_COMPARED], 2):
        left, right = firsts[one.key], firsts[other.key]
        if _similar(left, right):
            near[one.key].append(Near(group=other.key, differs=_differences(left, right)))
            near[other.key].append(Near(group=one.key, differs=_differences(right, left)))
    return tuple(replace(group, near=tuple(sorted(near[group.key], key=lambda one: len(one.differs))[:_MOST_NEAR])) for group in groups)


def _similar(left: Entry, right: Entry) -> bool:
    mine, other = set(left.frames), set(right.frames)
    return bool(mine and other) and len(mine & other) >= _SHARED * len(mine | other)


def _differences(left: Entry, right: Entry) -> tuple[str, ...]:
    """In what the other one differs: `signal: SIGABRT, not SIGSEGV`."""
    found = []
    frame = next((pair for pair in zip_longest(right.frames, left.frames) if pair[0] != pair[1]), None)
    pairs = [
        ("signal", right.signal, left.signal),
        ("frame", *(frame or (None, None))),
        ("cause", right.cause, left.cause),
        ("program", _name(right.executable), _name(left.executable)),
        ("Python", right.python, left.python),
    ]
    for what, theirs, ours in pairs:
        if theirs != ours:
            found.append(f"{what}: {theirs or 'none'}, here {ours or 'none'}")
    return tuple(found)


def _name(path: Optional[str]) -> Optional[str]:
    return path.rpartition("/")[2] if path else None
