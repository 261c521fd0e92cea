"""A job in words and as a picture, for all formats. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

import msgspec

from crashkit.job.sentences import place, what_happened, who
from crashkit.job.sentences import ranks as ranks
from crashkit.model import Crash, Job, JobCause, JobPlace, JobProcess

ROLES = {
    "root-cause": "failed first",
    "failed": "also failed",
    "lost-peer": "lost a peer",
    "stopped": "stopped by the launcher",
    "waited": "left no message",
    "ended": "ended normally",
}
CONFIDENCE = {"certain": "for certain", "likely": "probably", "possible": "possibly"}
REPEATED = frozenset({"job-rank-failed"})
"""Findings that say what the answer says."""
_LAUNCHERS = {"deepspeed": "DeepSpeed", "slurm": "SLURM", "mpi": "MPI", "torch": "torch"}
_MOST_BANDS = 64
MOST_ROWS = 200
"""Rows of the table; report.json has all of them."""

WIDTH = 720
"""Of the picture, in its own units."""
_LEFT, _RIGHT, _ROW, _GAP, _AXIS = 150, 20, 18, 4, 22
_ROOM = WIDTH - _LEFT - _RIGHT
_SHORTEST, _LONGEST = 0.001, 1e9
"""Seconds between the first and the last end that are worth a picture. No job runs for thirty years: such times are not what they say."""


class Band(NamedTuple):
    """Processes next to each other that ended alike."""

    first: JobProcess
    last: JobProcess
    size: int
    role: str
    text: str
    """What happened to them."""
    ended: Optional[tuple[float, float]] = None
    """The first and the last of them, in seconds since 1970."""

    @property
    def label(self) -> str:
        """`rank 3`, `ranks 4 to 1023`, or a name."""
        if self.first.rank is None or self.last.rank is None:
            return self.first.name or (f"process {self.first.pid}" if self.first.pid is not None else "a process")
        text = f"rank {self.first.rank}" if self.size == 1 else f"ranks {self.first.rank} to {self.last.rank}"
        return text if self.first.attempt is None else f"{text}, start {self.first.attempt + 1}"


class Bar(msgspec.Struct, frozen=True):
    """One row of the picture."""

    label: str
    role: str
    y: int
    width: int
    text: str
    is_first: bool
    from_: int = 0
    """Where the bar grows pale: the first of several processes has ended there."""


class Picture(msgspec.Struct, frozen=True):
    """Ranks against time, or the collectives that they reached; where neither is known, only how each ended."""

    height: int
    bars: tuple[Bar, ...]
    ticks: tuple[tuple[int, str], ...]
    """Place and number of a collective on the axis."""
    axis: str
    left: int = _LEFT
    width: int = WIDTH
    row: int = _ROW


def headline(job: Job) -> tuple[str, str]:
    """Who, and what it did: `rank 1`, `failed first: ValueError: bad sample`."""
    cause = job.root_cause
    if cause is None or cause.what is None:
        return "JOB", "the evidence does not show which process failed first"
    if is_collective(job):
        own = f"{who(cause)} "
        return (who(cause), cause.what.removeprefix(own)) if cause.what.startswith(f"{own}never") else ("JOB", cause.what)
    said = "" if cause.confidence == "certain" else f"{CONFIDENCE.get(cause.confidence or '', '')} ".lstrip()
    if cause.what.startswith(own := f"{who(cause)} "):
        return who(cause), f"{said}{cause.what.removeprefix(own)}"
    return who(cause), f"{said}failed first: {cause.what}"


def is_collective(job: Job) -> bool:
    """Whether what failed first is a collective rather than a process."""
    return job.root_cause is not None and any(what_happened(one, job.processes) == job.root_cause.what for one in job.collectives)


def sentence(job: Job) -> str:
    """The answer in one sentence."""
    name, text = headline(job)
    if name == "JOB":
        return f"{text[:1].upper()}{text[1:]}."
    at = place(job.root_cause.where) if job.root_cause is not None and not is_collective(job) else ""
    return f"{name[:1].upper()}{name[1:]} {text}" + (f" ({at})." if at else ".")


def described(job: Job) -> str:
    """`torchrun, 8 ranks, started twice`."""
    kind = _LAUNCHERS.get(job.kind or "", job.kind)
    ranked = any(process.rank is not None for process in job.processes)
    size = f"{job.world_size:,} {'ranks' if ranked else 'processes'}" if job.world_size else None
    starts = f"started {job.attempts} times" if job.attempts and job.attempts > 2 else "started twice" if job.attempts else None
    return ", ".join(part for part in (kind, size, starts) if part)


def full_place(where: Optional[JobPlace]) -> str:
    """`fail /srv/train.py:37`, to open in an editor."""
    if where is None:
        return ""
    line = f"{where.file}:{where.line}" if where.file and where.line else where.file or ""
    return " ".join(part for part in (where.function, line) if part)


def known_by(cause: JobCause) -> Optional[str]:
    """How it is known: `certain: it is the only one that failed by itself`."""
    return ": ".join(filter(None, (cause.confidence, cause.because))) or None


def further(job: Job) -> list[str]:
    """What failed besides: in this start, or in others."""
    found = []
    for cause in job.also:
        at = place(cause.where)
        start = f"start {cause.attempt + 1}: " if cause.attempt is not None else ""
        found.append(f"{start}{who(cause)}" + (f": {cause.what}" if cause.what else "") + (f" ({at})" if at else ""))
    return found


def place_in_job(crash: Crash) -> Optional[str]:
    """Which of the job the process was that the answer is about: `rank 1 of torchrun, 2 ranks, failed first`."""
    cause = crash.job.root_cause if crash.job is not None else None
    if crash.job is None or cause is None or crash.process is None or cause.pid is None or crash.process.pid != cause.pid:
        return None
    return f"{who(cause)} of {described(crash.job)}, failed first"


def followed(job: Job) -> list[str]:
    """What became of the others: `ranks 0 and 2 lost a peer (train_step train.py:59)`."""
    named = frozenset(job.root_cause.ranks) if job.root_cause is not None and is_collective(job) else frozenset[int]()
    groups: dict[tuple[str, str], list[int]] = {}
    for process in job.processes:
        if process.role not in ("root-cause", "failed") and process.rank is not None and process.rank not in named:
            at = place(process.where)
            groups.setdefault((ROLES.get(process.role or "", process.role or "ended"), at), []).append(process.rank)
    return [f"{ranks(several)}: {said}" + (f" ({at})" if at else "") for (said, at), several in groups.items()]


def bands(processes: Sequence[JobProcess]) -> list[Band]:
    """Neighbours of the same fate together; what failed first stands alone."""
    found: list[Band] = []
    for process in processes:
        text = _fate(process)
        role = process.role or "waited"
        last = found[-1] if found else None
        joins = (
            last is not None
            and (last.role, last.text) == (role, text)
            and last.last.rank is not None
            and process.rank == last.last.rank + 1
            and process.attempt == last.last.attempt
            and process.sequence == last.last.sequence
        )
        if joins and last is not None:
            found[-1] = last._replace(last=process, size=last.size + 1, ended=_span(last.ended, process.at))
        else:
            found.append(Band(process, process, 1, role, text, _span(None, process.at)))
    return found


def _span(known: Optional[tuple[float, float]], at: Optional[float]) -> Optional[tuple[float, float]]:
    if at is None:
        return known
    return (min(known[0], at), max(known[1], at)) if known is not None else (at, at)


def _fate(process: JobProcess) -> str:
    parts = [ROLES.get(process.role or "", process.role or "")]
    if process.role in ("root-cause", "failed", "lost-peer") and process.what:
        parts.append(_short(process.what))
    at = place(process.where)
    return ": ".join(part for part in parts if part) + (f" ({at})" if at else "")


def _short(text: str) -> str:
    """Without the addresses of peers, which differ from rank to rank."""
    cut = text.split("[127.", 1)[0] if "closed by peer" in text or "reset by peer" in text else text
    return cut if len(cut) <= 100 else cut[:100] + "…"


def pictures(job: Job) -> list[Picture]:
    """The pictures that what is known allows; at least one. Of many different fates, the first and those that failed."""
    several = bands(job.processes)
    if not several:
        return []
    if len(several) > _MOST_BANDS:
        important = [one for one in several if one.role in ("root-cause", "failed")]
        others = [one for one in several if one.role not in ("root-cause", "failed")]
        chosen = {id(one) for one in [*important, *others][:_MOST_BANDS]}
        several = [one for one in several if id(one) in chosen]
    found = [one for one in (_against_collectives(several), _against_time(several)) if one is not None]
    return found or [_drawn(several, [(_ROOM, _ROOM)] * len(several), (), "how each process ended")]


def _against_collectives(several: Sequence[Band]) -> Optional[Picture]:
    numbers = [one.first.sequence for one in several if one.first.sequence is not None and one.first.sequence >= 0]
    if not numbers:
        return None
    first, last = min(numbers), max(numbers)
    start = max(0, first - max(1, (last - first) // 4))
    if last == start:
        return None

    def across(number: Optional[int]) -> int:
        return _ROOM * (max(start, number if number is not None else start) - start) // (last - start)

    ticks = tuple((_LEFT + across(number), f"#{number}") for number in _marks(start, last))
    return _drawn(several, [(across(one.first.sequence),) * 2 for one in several], ticks, "the collectives that they reached")


def _against_time(several: Sequence[Band]) -> Optional[Picture]:
    """Seconds before and after the first that is known to have failed."""
    spans = [one.ended for one in several if one.ended is not None]
    if not spans:
        return None
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    if not _SHORTEST <= last - first <= _LONGEST:
        return None  # they ended at once, as far as the clock tells
    zero = next((one.ended[0] for one in several if one.role == "root-cause" and one.ended is not None), first)
    start = first - (last - first) / 4

    def across(at: float) -> int:
        return round(_ROOM * (at - start) / (last - start))

    step = _step((last - start) / 6)
    marks = [zero + step * number for number in range(math.ceil((start - zero) / step), math.floor((last - zero) / step) + 1)]
    ticks = tuple((_LEFT + across(at), f"{at - zero:+.3g} s" if abs(at - zero) > step / 2 else "0 s") for at in marks)
    widths = [(across(one.ended[0]), across(one.ended[1])) if one.ended is not None else (_ROOM, _ROOM) for one in several]
    return _drawn(several, widths, ticks, "time, by the clock of their host")


def _drawn(several: Sequence[Band], widths: Sequence[tuple[int, int]], ticks: tuple[tuple[int, str], ...], axis: str) -> Picture:
    bars = tuple(
        Bar(one.label, one.role, index * (_ROW + _GAP), max(3, width), one.text, one.role == "root-cause", max(3, begin))
        for index, (one, (begin, width)) in enumerate(zip(several, widths, strict=True))
    )
    return Picture(len(bars) * (_ROW + _GAP) + _AXIS, bars, ticks, axis)


def _step(least: float) -> float:
    """1, 2 or 5 times a power of ten, at least this much."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)


def _marks(first: int, last: int) -> Iterable[int]:
    """At most seven, so that long numbers have room."""
    return range(first, last + 1, max(1, -(-(last - first) // 6)))


def answers(crash: Crash) -> bool:
    """Whether the job is the answer: a core's own fault is, where it is of the process that failed first.

    Who never came to a collective is aborted by NCCL's monitor later on: that is no fault of its own.
    """
    job = crash.job
    if job is None or job.root_cause is None:
        return False
    if crash.source is None or crash.source.kind not in ("core", "gpu-core", "folder"):
        return True
    if crash.process is None or crash.process.pid != job.root_cause.pid:
        return True
    return is_collective(job) and crash.failed_gpu is None
