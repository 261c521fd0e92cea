"""Adds the job to the crash of the process that failed first. Pure."""

from __future__ import annotations

from typing import Optional

from msgspec.structs import replace

from crashkit.job.classes import PEER, is_launchers, of_exception
from crashkit.job.join import Joined
from crashkit.model import Crash, JobCause, LogLine, Process, Signal, Thread
from crashkit.naming.own_code import python_frames
from crashkit.naming.signals import SIGKILL, signal_name

# What a launcher says of a process; its pid tells of which.
_OF_A_PROCESS = frozenset({"launcher-child", "launcher-signal", "sigterm-banner", "process-end", "exit-status"})
_OF_COLLECTIVES = frozenset({"nccl-timeout", "nccl-last", "nccl-heartbeat", "gloo-timeout", "nccl-error", "nccl-remote"})
_SHELL = 128


def with_job(crash: Crash, joined: Joined, pid: Optional[int] = None) -> Crash:
    """The crash with its job. Where no core shows it, it becomes that of the process that failed first: its stack, its end, its lines.

    `pid`: whose the stack is for certain, as a crash folder tells. Else a log's last stack may be anybody's.
    """
    job = joined.job
    cause = job.root_cause
    crash = _without_launchers(replace(crash, job=job, log=tuple(line for line in crash.log if _is_about(line, cause))))
    if crash.source is not None and crash.source.kind in ("core", "gpu-core", "folder", "live"):
        return crash
    first = next((one for one in job.processes if one.role == "root-cause"), None)
    status = first.exit if first is not None and cause is not None and cause.rank == first.rank else None
    # A rank that did not come was only stopped: that signal is no cause.
    said = (cause.what or "") if cause is not None else ""
    number = -status if status is not None and status < 0 and said.startswith(signal_name(-status)) else 0
    thread = joined.thread
    known = crash.process or Process()
    is_its_own = pid is not None and cause is not None and pid == cause.pid
    told = crash.signal if crash.signal is not None and crash.signal.number == number else None
    # SIGKILL leaves no stack.
    threads = crash.threads if thread is not None or (is_its_own and number != SIGKILL) else ()
    if thread is not None and not _shows(crash, joined):
        threads = (replace(thread, crashed=True),)
    return replace(
        crash,
        signal=told or (Signal(number=number, name=signal_name(number)) if number else None),
        process=replace(
            known,
            pid=cause.pid if cause is not None else None,
            exit_status=_SHELL + number if number else status if status is not None and status > 0 else None,
        ),
        threads=threads,
        crashed_thread=thread.tid if thread is not None else crash.crashed_thread if threads else None,
    )


def _without_launchers(crash: Crash) -> Crash:
    """A rank that left no stack has none: the last traceback of a job's log is the launcher's."""
    kept = tuple(thread for thread in crash.threads if not _is_launchers(thread))
    if len(kept) == len(crash.threads):
        return crash
    return replace(crash, threads=kept, crashed_thread=crash.crashed_thread if any(t.tid == crash.crashed_thread for t in kept) else None)


def _is_launchers(thread: Thread) -> bool:
    innermost = next(iter(python_frames(thread)), None)
    return innermost is not None and is_launchers(innermost.file or "")


def _shows(crash: Crash, joined: Joined) -> bool:
    """Whether the crash shows this very stack already, and other threads with it."""
    thread, shown = joined.thread, crash.thread
    return thread is not None and shown is not None and shown.frames == thread.frames


def _is_about(line: LogLine, cause: Optional[JobCause]) -> bool:
    """Whether a line may tell why the job failed, rather than what followed from it."""
    if line.kind in _OF_COLLECTIVES or line.from_core:
        return True
    if line.kind == "launcher-stops" or "ChildFailedError" in line.text:
        return False
    if line.kind in _OF_A_PROCESS and cause is not None:
        pid = line.fields.get("pid")
        return pid == str(cause.pid) if pid is not None and cause.pid is not None else line.kind != "sigterm-banner"
    if line.kind == "exception":
        rank = (line.process or "").rpartition("rank")[2]
        if cause is not None and cause.rank is not None and rank.isdecimal():
            return int(rank) == cause.rank
        return of_exception(line.text) != PEER or cause is None or cause.rank is None
    return True
