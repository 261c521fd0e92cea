"""Splits a log that holds more than one crash: a service that was restarted, a script that ran a program twice. Pure.

Two fatal dumps are of one process if they name a common thread: the identifiers of threads are addresses, which differ from process to
process. Only those of processes forked from one are the same, as the workers of a server: there the crashed thread stands somewhere else.
What a shell says when a program was killed ends a crash, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Optional

from crashkit.evidence.text import log_signal
from crashkit.evidence.text.prefixes import is_of_a_job, pid_of
from crashkit.model import Crash, LogLine
from crashkit.naming.signals import SIGABRT

_ENDS = frozenset({"shell", "shell-killed"})
_SHELL_SAYS = frozenset({"shell", "process-end"})


class Known(NamedTuple):
    """What a core tells of the crash that a log is about."""

    threads: frozenset[int] = frozenset()
    """The pthread identifiers of its threads."""
    tids: frozenset[int] = frozenset()
    """Their numbers, the process's own among them."""
    when: Optional[float] = None
    """When the core was written, in seconds since the epoch."""


class Dump(NamedTuple):
    """A fatal dump: the number of its first line, and the identifiers of its threads."""

    line: int
    threads: frozenset[int]
    stack: tuple[tuple[Optional[str], Optional[int]], ...] = ()
    """File and line of each Python frame of the thread that crashed."""
    process: Optional[int] = None
    """Of a report that is all that tells of this process's crash: nothing before its first line belongs to it."""

    def is_of_another(
        self, threads: frozenset[int], stack: Sequence[tuple[Optional[str], Optional[int]]], process: Optional[int] = None
    ) -> bool:
        """Whether it is of another process than the dumps before it, with these threads, of which the last one stood there."""
        if process is not None and self.process not in (None, process):
            return True
        if not threads or not self.threads:
            return False
        apart = any(one != other for one, other in zip(self.stack, stack, strict=False))
        return not threads & self.threads or (apart and threads == self.threads)


class Part(NamedTuple):
    """The lines of one crash."""

    first: int
    last: int
    threads: frozenset[int]


_LAST_LINE = 1 << 62
WHOLE = Part(1, _LAST_LINE, frozenset())
"""A text of one crash."""


def parts(lines: Sequence[LogLine], dumps: Iterable[Dump]) -> list[Part]:
    """The crashes of a log, in order; a single part where nothing shows a second one."""
    found: list[Part] = []
    first, last, threads, ended = 1, 0, frozenset[int](), False
    stack: tuple[tuple[Optional[str], Optional[int]], ...] = ()
    process: Optional[int] = None
    marks: list[tuple[int, Dump | LogLine]] = [(dump.line, dump) for dump in dumps]
    marks += [(line.line, line) for line in lines if line.line is not None]
    for number, mark in sorted(marks, key=lambda one: (one[0], isinstance(one[1], LogLine))):
        is_end = isinstance(mark, LogLine) and mark.kind in _ENDS
        another = isinstance(mark, Dump) and mark.is_of_another(threads, stack, process)
        if another or (ended and not is_end and _begins(number, marks)):
            if isinstance(mark, Dump) and mark.process is not None:
                last = number - 1
            found.append(Part(first, last, threads))
            first, threads, process, ended = last + 1, frozenset(), None, False
        if isinstance(mark, Dump):
            threads |= mark.threads
            stack = mark.stack
            process = mark.process or process
        if isinstance(mark, Dump) or is_end:
            last = number
        ended = ended or is_end
    return [*found, Part(first, _LAST_LINE, threads)]


def _begins(number: int, marks: Sequence[tuple[int, Dump | LogLine]]) -> bool:
    """Whether a crash follows: what comes after the last one may only be told about it."""
    return any(at >= number and (isinstance(mark, Dump) or mark.kind in _ENDS) for at, mark in marks)


def after_abort(lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
    """The kernel's lines about a fault that follow a process which ended by abort(), as its message and the shell say.

    The kernel logs nothing of an abort: who shows both had more than one crash.
    """
    message = next((line.line for line in lines if line.line and log_signal.aborts(line)), None)
    ends = (line.line for line in lines if line.line and line.kind in _SHELL_SAYS and log_signal.named(line.fields) == SIGABRT)
    end = next((number for number in ends if message is not None and number > message), None)
    behind = [line for line in lines if end is not None and line.line and line.line > end]
    return tuple(line for line in behind if line.kind in ("kernel-segfault", "kernel-trap"))


_OF_ONE_PROCESS = frozenset({"kernel-segfault", "kernel-trap", "asan"})


def of_process(lines: Sequence[LogLine], crash: Crash) -> tuple[LogLine, ...]:
    """The lines without those by which the kernel or a sanitizer tells the fault of another process, as the crash's core shows.

    The kernel names the thread. In a PID namespace that is another number than the core's: then the fault address decides.
    """
    if crash.source is None or crash.source.kind != "core":
        return tuple(lines)
    own = {thread.tid for thread in crash.threads} | {crash.process.pid if crash.process else None}
    matched = {line.kind for line in lines if line.kind in _OF_ONE_PROCESS and _pid(line) in own}
    return tuple(line for line in lines if line.kind not in _OF_ONE_PROCESS or _pid(line) in own or not _is_other(line, crash, matched))


def _pid(line: LogLine) -> int | None:
    text = line.fields.get("pid", "")
    return int(text) if text.isdigit() else None


def _is_other(line: LogLine, crash: Crash, matched: Collection[str | None]) -> bool:
    if line.kind in matched:
        return True
    address = line.fields.get("address") if line.kind == "kernel-segfault" else None
    return address is not None and (crash.signal is None or crash.signal.address != int(address, 16))


class Source(NamedTuple):
    """A process whose dumps are in the log."""

    who: str
    threads: frozenset[int]
    last: int
    """The line of its last dump."""


def right_source(sources: Sequence[Source], known: Known) -> Optional[Source]:
    """The process that the core is of, by its threads or its pid; else the one that died last. None where nothing tells processes apart.

    The processes of one job end together: their ranks are told as one crash.
    """
    if not any(source.who for source in sources) or any(is_of_a_job(part) for source in sources for part in source.who.split()):
        return None
    own = [source for source in sources if source.threads & known.threads]
    own = own or [source for source in sources if pid_of(source.who) in known.tids]
    return max(own or sources, key=lambda source: source.last)


def of_source(who: str, right: Source, sources: Sequence[Source], known: Known) -> bool:
    """Whether what this process wrote may be about the crash: not if it died itself, or is known to be another."""
    if who == right.who or not who:
        return True
    if any(source.who == who for source in sources):
        return False
    return pid_of(right.who) not in known.tids or pid_of(who) is None or pid_of(who) in known.tids


_NEAR, _FAR = 600, 3600


def at_another_time(times: Mapping[int, float], known: Known) -> frozenset[int]:
    """The numbers of the lines that were written long before or after the core; none where no line is from about its time.

    A core that was copied has a newer time, and a clock may be wrong.
    """
    when = known.when
    if when is None or not any(abs(time - when) <= _NEAR for time in times.values()):
        return frozenset()
    return frozenset(number for number, time in times.items() if abs(time - when) > _FAR)


def right_one(several: Sequence[Part], own: frozenset[int]) -> Part:
    """The crash of the process with these thread identifiers (those of a core); else the last one, which the log was kept for."""
    return next((part for part in reversed(several) if part.threads & own), several[-1])
