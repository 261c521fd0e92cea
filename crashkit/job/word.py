"""What one piece of evidence says of one process of a job: between the readers of evidence and `join`."""

from __future__ import annotations

from typing import NamedTuple, Optional

from crashkit.model import JobPlace, Thread

SERVICES = ("docker compose", "foreman", "honcho", "overmind")
"""Launchers of services, which have names and do not need each other as ranks do. They tell of each end as they see it."""

LISTINGS = ("docker", "podman", "kubernetes", "slurm")
"""Who lists processes that ended. They need not belong together, and the order of a list is none of time."""


class Who(NamedTuple):
    """A process as far as a line, a file's name or a launcher's summary identifies it."""

    rank: Optional[int] = None
    local_rank: Optional[int] = None
    """On its host. Of a job on one host, it is the rank."""
    pid: Optional[int] = None
    host: Optional[str] = None
    name: Optional[str] = None
    attempt: Optional[int] = None
    """Set where the evidence names it, as torchrun's folders do."""
    world: Optional[int] = None
    """How many ranks its job has, as its environment tells."""

    @property
    def is_known(self) -> bool:
        """Whether anything identifies it."""
        return (self.rank, self.local_rank, self.pid, self.name) != (None, None, None, None)


class Word(NamedTuple):
    """One thing that is said of a process, by itself, by another one, or by its launcher."""

    who: Who
    kind: str
    """exception, fatal (a signal's dump), stood (a stack without an error), exit, stopped (by the launcher), first (the launcher calls it
    the first failure), watchdog (NCCL's, of a collective), progress (last enqueued and completed), call (where a collective was called),
    given-up (NCCL's monitor ends the process after a time-out), pair (a send or receive was called),
    absent (a rank that did not come, as another one says), differs (a call that another rank saw), killed (by the kernel), alive,
    lives (its launcher tells how others ended, and nothing of it)."""
    path: str = ""
    line: int = 0
    text: str = ""
    number: Optional[int] = None
    """exit: its status; fatal: the signal; watchdog, progress and differs: the collective's sequence number."""
    completed: Optional[int] = None
    operation: Optional[str] = None
    sizes: tuple[tuple[int, ...], ...] = ()
    thread: Optional[Thread] = None
    """The stack that was said with it."""
    where: Optional[JobPlace] = None
    time: Optional[str] = None
    at: Optional[float] = None
    """Seconds since 1970, by the clock of the host, as `crashkit run` saw it."""
    launcher: Optional[str] = None
    """exit: which launcher says it, to tell restarts from several launchers."""
    main: Optional[Thread] = None
    """fatal: the main thread's stack, where the thread that failed has no Python frame."""
    group: Optional[str] = None
    """progress: the process group, as sequence numbers are of one."""

    unsure: bool = False
    """exit: whether the status may mean something else."""

    @property
    def has_stack(self) -> bool:
        """Whether a stack was said with it."""
        return self.thread is not None or self.main is not None
