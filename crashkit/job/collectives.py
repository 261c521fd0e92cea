"""The collectives that went wrong: from flight recorders, else from watchdogs, else from where each rank stood. Pure.

Of each process group, the first sequence number counts at which a rank is missing or calls something else than the others: what comes
later follows from it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Optional

from msgspec.structs import replace

from crashkit.job.operations import of_frames, operation
from crashkit.job.recording import Entry, Recording
from crashkit.model import JobCall, JobCollective, JobPlace, PythonFrame

MOST_OF_A_CALL = 8
"""Ranks of one call that are listed by rank."""
MOST_CALLS = 64
MOST_FRAMES = 30
LATE_BY = 1_000_000_000
"""Nanoseconds, and LATE_TIMES the time of the fastest: a rank that took both longer is late."""
LATE_TIMES = 10


class Seen(NamedTuple):
    """A call of one rank."""

    rank: int
    operation: Optional[str] = None
    sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    state: Optional[str] = None
    where: Optional[JobPlace] = None
    frames: tuple[PythonFrame, ...] = ()


_SAME_ON_ALL: tuple[tuple[str, Callable[[Seen], object]], ...] = (
    ("operation", lambda seen: seen.operation),
    ("sizes", lambda seen: seen.sizes),
    ("dtypes", lambda seen: seen.dtypes),
)
# Each rank may give another amount, or none but the root gives something.
_SIZES_MAY_DIFFER = frozenset(
    {"all_to_all", "all_to_all_single", "scatter", "gather", "coalesced", "all_gather_v", "reduce_scatter_v", "new_window"}
)


def collective(
    seen: Iterable[Seen], members: Iterable[int], known: Iterable[int], group: Optional[str] = None, sequence: Optional[int] = None
) -> Optional[JobCollective]:
    """The problem with one collective; None if all members came and called the same. `known`: ranks of which it would be known."""
    by_rank = {one.rank: one for one in seen}
    everyone = set(members) | set(by_rank)
    missing = sorted(everyone & set(known) - set(by_rank))
    calls, differs = _calls(list(by_rank.values()))
    if not missing and not differs:
        return None
    differing = sorted(rank for call in calls[1:] for rank in call.ranks) if differs else []
    return JobCollective(
        group=group or None,
        sequence=sequence,
        # Who calls something else is late for this one as well: the difference explains more.
        problem="mismatch" if differs else "missing",
        operation=calls[0].operation if calls else None,
        missing=tuple(missing),
        unknown=tuple(sorted(everyone - set(by_rank) - set(known))),
        differing=tuple(differing),
        differs=tuple(differs),
        calls=tuple(calls[:MOST_CALLS]),
        ranks={str(rank): replace(call, ranks=()) for call in calls[:MOST_CALLS] for rank in call.ranks[:MOST_OF_A_CALL]},
    )


def _calls(seen: Sequence[Seen]) -> tuple[list[JobCall], list[str]]:
    """The different calls, that of most ranks first, and in what they differ."""
    compared = [
        (name, key) for name, key in _SAME_ON_ALL if name == "operation" or not any(one.operation in _SIZES_MAY_DIFFER for one in seen)
    ]
    differs = [name for name, key in compared if len({value for one in seen if (value := key(one)) not in (None, ())}) > 1]
    groups: defaultdict[object, list[Seen]] = defaultdict(list)
    for one in sorted(seen, key=lambda one: one.rank):
        groups[tuple(key(one) for name, key in compared if name in differs)].append(one)
    ordered = sorted(groups.values(), key=lambda members: (-len(members), members[0].rank))
    return [call for members in ordered for call in _same(members)], differs


def _same(members: Sequence[Seen]) -> list[JobCall]:
    """One call, in the words of its first rank."""
    first = next((one for one in members if one.frames), None) or next((one for one in members if one.where), members[0])
    return [
        JobCall(
            operation=first.operation,
            sizes=first.sizes,
            dtypes=first.dtypes,
            state=first.state,
            where=first.where,
            frames=first.frames[:MOST_FRAMES],
            ranks=tuple(one.rank for one in members),
        )
    ]


# Flight recorders


class _Problem(NamedTuple):
    collective: JobCollective
    came: dict[int, int]
    """When each rank came to it, in nanoseconds of that rank's own clock."""
    is_pair: bool = False

    def may_hold(self, other: _Problem) -> bool:
        """Whether a rank that the other one misses waits in this one. Who went past the other one to this one was not held by it before."""
        if not set(other.collective.missing) & set(self.came):
            return False
        return not any(when > other.came[rank] for rank, when in self.came.items() if rank in other.came)


def of_recordings(recordings: Sequence[Recording]) -> list[JobCollective]:
    """What went wrong in each process group, causes first.

    Who is missing in one group because it waits in another one follows from that. Where two wait for each other, a send or receive without
    its other side comes first: all ranks agree on collectives. The times of hosts decide only after that.
    """
    found: list[_Problem] = []
    known = {recording.rank for recording in recordings}
    for (name, told), group in _groups(recordings).items():
        # Gloo's dumps do not name the members: whoever came to it once is one.
        members = told or tuple(sorted(group))
        described = next((entry.description for entries in group.values() for entry in entries if entry.description), None)
        problem = _of_group(described or name, members, group, known, {one.rank: one.is_whole for one in recordings})
        found += [problem] if problem else []
        found += _of_pairs(described or name, members, group, known)

    def order(problem: _Problem) -> tuple[bool, bool, int]:
        follows = any(one.may_hold(problem) for one in found if one is not problem)
        return follows, not problem.is_pair, min(filter(None, problem.came.values()), default=0)

    return [one.collective for one in sorted(found, key=order)]


def _groups(recordings: Sequence[Recording]) -> dict[tuple[str, tuple[int, ...]], dict[int, list[Entry]]]:
    """The entries by group and rank. Groups of one name and other ranks (split_group) are several."""
    found: defaultdict[tuple[str, tuple[int, ...]], dict[int, list[Entry]]] = defaultdict(dict)
    for recording in recordings:
        for name in recording.groups:
            # A member that came to nothing is a member, too.
            if name:
                found[name, recording.members(name)].setdefault(recording.rank, [])
        for entry in recording.entries:
            members = recording.members(entry.group)
            found[entry.group, members].setdefault(recording.rank, []).append(entry)
    return found


def _of_group(
    group: str, members: Sequence[int], entries: Mapping[int, Sequence[Entry]], known: Iterable[int], whole: Mapping[int, bool]
) -> Optional[_Problem]:
    by_rank = {rank: _by_sequence(several) for rank, several in entries.items()}
    every = sorted({sequence for rank in by_rank.values() for sequence in rank})
    # What a ring buffer has lost is not missing.
    starts = [min(several) for rank, several in by_rank.items() if several and not whole.get(rank, True)]
    unfinished: Optional[_Problem] = None
    before: Mapping[int, int] = {}
    for sequence in every:
        if starts and sequence < max(starts):
            continue
        there = {rank: several[sequence] for rank, several in by_rank.items() if sequence in several}
        came = {rank: several[0].created or 0 for rank, several in there.items()}
        for position in range(max(map(len, there.values()))):
            seen = [_seen(rank, several[position]) for rank, several in there.items() if position < len(several)]
            wrong = collective(seen, members, set(known) & set(members or known), group, sequence)
            if wrong is not None:
                return _Problem(wrong, came)
        states = {entry.is_completed for several in there.values() for entry in several}
        if unfinished is None and False in states:
            late = _late({rank: when - before[rank] for rank, when in came.items() if when and before.get(rank)})
            unfinished = _Problem(_unfinished(group, sequence, there, True in states, late), came)
        before = came
    return unfinished


def _late(gaps: Mapping[int, int]) -> list[int]:
    """Who took much longer than others since the last collective; each rank's time is by its own clock."""
    fastest = min(gaps.values(), default=0)
    return sorted(rank for rank, gap in gaps.items() if gap > fastest * LATE_TIMES and gap - fastest > LATE_BY)


def _by_sequence(entries: Iterable[Entry]) -> dict[int, list[Entry]]:
    found: defaultdict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        if not entry.is_p2p:
            found[entry.sequence].append(entry)
    return dict(found)


def _seen(rank: int, entry: Entry) -> Seen:
    sizes, dtypes = entry.sizes, entry.dtypes
    return Seen(rank, entry.operation, sizes, dtypes, entry.state, of_frames(entry.frames), entry.frames)


def _unfinished(group: str, sequence: int, there: Mapping[int, Sequence[Entry]], differs: bool, late: Sequence[int]) -> JobCollective:
    """All came and called the same, and on some it did not end."""
    waiting = sorted(rank for rank, several in there.items() if not all(entry.is_completed for entry in several))
    calls = _same([_seen(rank, there[rank][0]) for rank in waiting])
    return JobCollective(
        group=group,
        sequence=sequence,
        problem="unfinished",
        operation=calls[0].operation,
        differing=tuple(waiting if differs else late),
        differs=("state",) if differs else ("time",) if late else (),
        calls=tuple(calls),
        ranks={str(rank): replace(call, ranks=()) for call in calls for rank in call.ranks[:MOST_OF_A_CALL]},
    )


def _of_pairs(group: str, members: Sequence[int], entries: Mapping[int, Sequence[Entry]], known: Iterable[int]) -> list[_Problem]:
    """Sends and receives: the n-th send from one rank to another belongs to the n-th receive there."""
    sides: defaultdict[tuple[int, int], dict[str, list[Entry]]] = defaultdict(lambda: {"send": [], "recv": []})
    for several in entries.values():
        for entry in several:
            if entry.is_p2p and entry.peers is not None and entry.operation in ("send", "recv"):
                sides[entry.peers][entry.operation].append(entry)
    found = []
    for (source, target), pair in sides.items():
        ranks = {side: members[at] if at < len(members) else at for side, at in (("send", source), ("recv", target))}
        if not set(ranks.values()) <= set(known):
            continue
        for position in range(max(len(pair["send"]), len(pair["recv"]))):
            there = {side: several[position] for side, several in pair.items() if position < len(several)}
            wrong = _pair(group, position + 1, ranks, there, {ranks[side]: entries[ranks[side]][-1] for side in there})
            if wrong is not None:
                found.append(_Problem(wrong, {ranks[side]: entry.created or 0 for side, entry in there.items()}, is_pair=True))
                break
    return found


def _pair(
    group: str, number: int, ranks: Mapping[str, int], there: Mapping[str, Entry], last: Mapping[int, Entry]
) -> Optional[JobCollective]:
    calls = {side: _same([_seen(ranks[side], entry)])[0] for side, entry in there.items()}
    sizes = {entry.sizes if side == "send" else entry.output_sizes for side, entry in there.items()}
    missing = tuple(ranks[side] for side in ("send", "recv") if side not in there)
    # An operation that ended needs nobody. A rank's last one that it did not see end may be shown as completed: NCCL waits for the peer
    # before it records the CUDA events of the operation, and CUDA takes an event that was never recorded for one that has passed.
    ended = all(entry.retired or (entry.is_completed and entry is not last[ranks[side]]) for side, entry in there.items())
    if (missing and ended) or (not missing and len(sizes) == 1):
        return None
    return JobCollective(
        group=group,
        sequence=number,
        problem="missing" if missing else "mismatch",
        operation=f"{next(iter(there))} {ranks['send']}->{ranks['recv']}",
        missing=missing,
        differing=() if missing else tuple(ranks.values()),
        differs=() if missing else ("sizes",),
        calls=tuple(calls.values()),
        ranks={str(ranks[side]): replace(call, ranks=()) for side, call in calls.items()},
    )


# Watchdogs


class Progress(NamedTuple):
    """What a watchdog says of one rank."""

    enqueued: Optional[int] = None
    completed: Optional[int] = None
    timed_out: Optional[int] = None
    """Sequence number of the collective that it waited for."""
    seen: Optional[Seen] = None
    group: Optional[str] = None
    """The process group of these numbers."""
    elsewhere: Optional[Seen] = None
    """A send or receive in which it may have been instead."""
    later: Optional[int] = None
    """The last one that it is known to have enqueued at all; `enqueued` is of the time-out."""


def of_watchdogs(told: Mapping[int, Progress], members: Iterable[int]) -> Optional[JobCollective]:
    """The collective that timed out first: who was not there, or called something else."""
    waited = [one for one in told.values() if one.timed_out is not None]
    if not waited:
        return None
    # Sequence numbers are of a group. Where several groups timed out, that of most ranks counts: its problem is the best known.
    group = Counter(one.group for one in waited).most_common(1)[0][0]
    told = {rank: one for rank, one in told.items() if one.group == group or None in (one.group, group)}
    sequence = min(one.timed_out for one in told.values() if one.timed_out is not None)
    came, known = [], set()
    for rank, one in told.items():
        reached = max((number for number in (one.enqueued, one.timed_out) if number is not None), default=None)
        if reached is None:
            continue
        known.add(rank)
        if reached >= sequence:
            came.append(one.seen if one.seen is not None and one.timed_out == sequence else Seen(rank))
        elif one.elsewhere is not None:
            came.append(one.elsewhere)
    name = _described(group)
    found = collective(came, members, known, name, sequence)
    if found is not None:
        late = found.problem == "missing" and all((told[rank].later or 0) >= sequence for rank in found.missing)
        return replace(found, differs=("time",)) if late else found
    calls, _ = _calls([one for one in came if one.operation])
    ended = {rank for rank, one in told.items() if one.completed is not None and one.completed >= sequence}
    return JobCollective(
        group=name,
        unknown=tuple(sorted(set(members) - known)),
        sequence=sequence,
        problem="unfinished",
        operation=calls[0].operation if calls else None,
        differing=tuple(sorted({one.rank for one in came} - ended)) if ended else (),
        differs=("state",) if ended else (),
        calls=tuple(calls),
    )


def _described(group: Optional[str]) -> Optional[str]:
    """`default_pg` for `0(default_pg)`."""
    name, _, description = (group or "").partition("(")
    return description.rstrip(")") or name or None


# Where ranks stood


def of_stands(stands: Sequence[Seen], silent: Sequence[int]) -> Optional[JobCollective]:
    """From the errors of ranks that waited for others: if all were at one line, those that said nothing did not come.

    Ranks at different lines called different collectives, or the same one with other data.
    """
    if not stands:
        return None
    places = Counter((one.operation, _key(one.where)) for one in stands)
    if len(places) > 1:
        groups: defaultdict[object, list[Seen]] = defaultdict(list)
        for one in stands:
            groups[one.operation, _key(one.where)].append(one)
        calls = [call for several in sorted(groups.values(), key=lambda s: (-len(s), s[0].rank)) for call in _same(several)]
        operations = {one.operation for one in stands}
        return JobCollective(
            problem="mismatch",
            operation=calls[0].operation,
            missing=(),
            differing=tuple(sorted(rank for call in calls[1:] for rank in call.ranks)),
            differs=("operation",) if len(operations) > 1 else ("place",),
            calls=tuple(calls[:MOST_CALLS]),
            ranks={str(rank): replace(call, ranks=()) for call in calls[:MOST_CALLS] for rank in call.ranks[:MOST_OF_A_CALL]},
        )
    if not silent:
        return None
    return collective(stands, [*silent, *(one.rank for one in stands)], [*silent, *(one.rank for one in stands)])


def _key(place: Optional[JobPlace]) -> Optional[tuple[Optional[str], Optional[int]]]:
    return (place.file, place.line) if place is not None else None


def named(name: Optional[str]) -> Optional[str]:
    """A collective's name as Python has it."""
    return operation(name) if name else None
