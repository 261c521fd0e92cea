"""What happened to a job, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Optional

from crashkit.model import JobCall, JobCause, JobCollective, JobPlace, JobProcess

_MOST = 4


def ranks(numbers: Iterable[int]) -> str:
    """`rank 3`, `ranks 0 and 2`, `ranks 0 to 6, 8 and 9`, `1,020 ranks (0 to 510, 512 to 1020, ...)`."""
    ordered = sorted(set(numbers))
    if not ordered:
        return "no rank"
    parts = [
        part
        for first, last in spans(ordered)
        for part in ((f"{first} to {last}",) if last > first + 1 else (str(first), str(last))[: 1 + last - first])
    ]
    if len(parts) > _MOST:
        return f"{len(ordered):,} ranks ({', '.join(parts[:_MOST])}, ...)"
    shown = ", ".join(parts[:-1]) + f" and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"rank {shown}" if len(ordered) == 1 else f"ranks {shown}"


def spans(ordered: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of numbers without a gap."""
    if not ordered:
        return []
    gaps = [index for index, (one, other) in enumerate(pairwise(ordered), 1) if other != one + 1]
    starts = [0, *gaps]
    ends = [*gaps, len(ordered)]
    return [(ordered[start], ordered[end - 1]) for start, end in zip(starts, ends, strict=True)]


def place(where: Optional[JobPlace], function: bool = True) -> str:
    """`load_batch data.py:88`."""
    if where is None or not where.file:
        return (where.function or "") if where is not None and function else ""
    line = f"{where.file.rpartition('/')[2]}:{where.line}" if where.line else where.file.rpartition("/")[2]
    return f"{where.function} {line}" if function and where.function and where.function != "<module>" else line


def what_happened(one: JobCollective, stood: Iterable[JobProcess] = ()) -> str:
    """The problem of a collective in one sentence, without a full stop. `stood`: the processes of the job."""
    number = f" #{one.sequence}" if one.sequence is not None else ""
    if one.problem == "missing":
        at = place(one.calls[0].where if one.calls else None)
        late = "was too late for" if len(one.missing) == 1 else "were too late for"
        came = late if "time" in one.differs else "never reached"
        text = f"{ranks(one.missing)} {came} {_other_side(one.operation)}{one.operation or 'collective'}{number}" + (
            f" ({at})" if at else ""
        )
        standing = [
            f"{'it' if len(one.missing) == 1 else f'rank {process.rank}'} was in {place(process.where)}"
            for process in stood
            if process.rank in one.missing and process.where is not None
        ]
        return "; ".join([text, *standing[:2]])
    if one.problem == "mismatch":
        calls = [f"{ranks(call.ranks)} called {_call(call, one)}" for call in one.calls[:3]]
        more = f" and {len(one.calls) - 3} more calls" if len(one.calls) > 3 else ""
        return f"at{number} " * bool(number) + " and ".join([", ".join(calls[:-1]), calls[-1]] if len(calls) > 1 else calls) + more
    if one.differs == ("time",):
        return f"{ranks(one.differing)} reached {one.operation or 'collective'}{number} late, but it did not finish"
    who = f": not on {ranks(one.differing)}" if one.differing else ""
    if one.unknown:
        return f"{one.operation or 'collective'}{number} did not finish; it is not known whether {ranks(one.unknown)} reached it"
    return f"all ranks reached {one.operation or 'collective'}{number}, but it did not finish{who}"


def _other_side(operation: Optional[str]) -> str:
    """Who is missing from a receive was to send."""
    side, _, peers = (operation or "").partition(" ")
    other = {"recv": "send", "send": "receive"}.get(side) if "->" in peers else None
    return f"the {other} that belongs to " if other else ""


def _call(call: JobCall, one: JobCollective) -> str:
    parts = [call.operation or "something"]
    if "sizes" in one.differs and call.sizes:
        parts.append("of " + ", ".join("x".join(map(str, size)) or "one number" for size in call.sizes[:3]))
    if "dtypes" in one.differs and call.dtypes:
        parts.append(f"of {', '.join(call.dtypes[:3])}")
    at = place(call.where, function=False)
    return " ".join(parts) + (f" ({at})" if at else "")


def who(cause: JobCause) -> str:
    """`rank 1`, `ranks 0 and 1`, `trainer-1`, `process 4711`."""
    if cause.rank is not None:
        return f"rank {cause.rank}"
    if cause.ranks:
        return ranks(cause.ranks)
    return cause.name or (f"process {cause.pid}" if cause.pid is not None else "an unnamed process")


def failed_first(cause: JobCause) -> str:
    """`rank 1 failed first: ValueError: bad sample (fail train.py:37)`."""
    at = place(cause.where)
    if cause.what is not None and cause.what.startswith(f"{who(cause)} "):
        return cause.what + (f" ({at})" if at else "")
    return f"{who(cause)} failed first: {cause.what or 'the reason is unknown'}" + (f" ({at})" if at else "")
