"""Stops every thread of a live process for a moment, through ptrace(2), and reads its registers.

PTRACE_SEIZE and PTRACE_INTERRUPT stop a thread without a signal that the process could notice; whatever becomes of us, the kernel lets
go of the threads when the tracing thread ends. A signal that arrives in between is delivered when the thread continues.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Optional

from crashkit.elf.notes import NT_PRSTATUS
from crashkit.errors import EvidenceError
from crashkit.memory import ptrace

_PATIENCE = 1.0
"""Seconds for all threads to stop. One in an uninterruptible system call cannot."""
_PAUSE = 0.0002
_MOST_ROUNDS = 100


class Stopped:
    """The threads of a process, or `only` those of them, stopped: use as a context manager, within one thread.

    Raises EvidenceError if there is no such process or if tracing it is not permitted; the message says what right is missing.
    """

    def __init__(self, pid: int, only: Optional[Collection[int]] = None) -> None:
        self.pid = pid
        self._only = only
        self._signals: dict[int, int] = {}
        """By tid of a stopped thread: the signal to deliver when it continues, or 0."""
        self.unstopped: tuple[int, ...] = ()
        """Threads in a system call that nothing interrupts: they wait for a disk or a driver."""
        self.stopped_at = time.monotonic()

    def __enter__(self) -> Stopped:
        try:
            self._stop_all()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    @property
    def threads(self) -> Sequence[int]:
        """The stopped threads, the main thread first."""
        return sorted(self._signals, key=lambda tid: (tid != self.pid, tid))

    def registers(self, tid: int, kind: int = NT_PRSTATUS) -> bytes:
        """A set of a stopped thread's registers as in a core's note of that type; empty if there is none."""
        return ptrace.registers(tid, kind)

    def _stop_all(self) -> None:
        self.unstopped = tuple(sorted(stop_threads(self.pid, self._signals, self._seize, reap, self._only)))
        if not self._signals:
            why = "its threads are in system calls that cannot be interrupted" if self.unstopped else "it has ended"
            raise EvidenceError(f"cannot stop process {self.pid}: {why}", "Look at /proc/PID/stack and /proc/PID/wchan as root.")

    def _seize(self, tid: int) -> None:
        try:
            ptrace.seize(tid)
        except OSError as error:
            if error.errno != errno.ESRCH and not _has_ended(self.pid, tid):
                raise EvidenceError(f"cannot stop process {self.pid}: {error.strerror}", missing_right(self.pid)) from error
            raise

    def _release(self) -> None:
        for tid, number in self._signals.items():
            with suppress(OSError):
                ptrace.let_go(tid, number)
        self._signals = {}
        # A thread that never stopped cannot be detached from: the kernel does that when this thread ends.


def stop_threads(
    pid: int,
    stopped: dict[int, int],
    trace: Callable[[int], None],
    reap: Callable[[set[int]], tuple[int, int]],
    only: Optional[Collection[int]] = None,
) -> set[int]:
    """Stop the threads of a process, or `only` those of them, that do not stand yet, and return those that nothing interrupts.

    `stopped` gets them: by tid, the signal that each is to get when it continues, or 0. `trace` is called with each before it is
    interrupted; an OSError from it says that the thread is ending. `reap` says which of some threads has stopped or ended, and its status.
    """
    ends = time.monotonic() + _PATIENCE
    asked, still = set(stopped), set[int]()
    # A thread that still runs may make new ones: once a look finds none, all are there.
    for _ in range(_MOST_ROUNDS):
        new = {tid for tid in threads(pid) if tid not in asked and (only is None or tid in only)}
        if not new:
            break
        asked |= new
        waiting = set()
        for tid in sorted(new):
            with suppress(OSError):
                trace(tid)
                waiting.add(tid)
                ptrace.interrupt(tid)
        while waiting:
            tid, status = reap(waiting)
            if tid:
                waiting.discard(tid)
                if os.WIFSTOPPED(status):
                    stopped[tid] = ptrace.delivered(status)
            elif time.monotonic() > ends:
                break
            else:
                time.sleep(_PAUSE)
                # Nobody is told that a main thread has ended before all others have.
                for ended in [tid for tid in waiting if _has_ended(pid, tid)]:
                    waiting.discard(ended)
                    reap({ended})
        still |= waiting
    return still


def reap(waiting: set[int]) -> tuple[int, int]:
    """One of these threads that has stopped or ended, and its status as waitpid(2) says it; (0, 0) if none has."""
    for tid in waiting:
        with suppress(ChildProcessError):
            found, status = os.waitpid(tid, ptrace.WALL | os.WNOHANG)
            if found:
                return found, status
    return 0, 0


def threads(pid: int) -> list[int]:
    """The threads of a process by their tids; none if it has ended."""
    with suppress(OSError):
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
    return []


def facts(tid: int) -> Iterator[tuple[str, str]]:
    """What /proc/TID/status says, see proc(5); nothing if the thread has ended."""
    with suppress(OSError), open(f"/proc/{tid}/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        for line in file:
            name, _, value = line.partition(":")
            yield name, value.strip()


def _has_ended(pid: int, tid: int) -> bool:
    """Whether the thread is on its way out: a tracer is refused by then (`ptrace_attach`, kernel/ptrace.c)."""
    try:
        state = Path(f"/proc/{pid}/task/{tid}/stat").read_bytes().rpartition(b") ")[2][:1]
    except OSError:
        return True
    return state in (b"Z", b"X", b"x")


def missing_right(pid: int) -> str:
    """What keeps us from tracing the process, and what to try, in one line."""
    status = dict(facts(pid))
    tracer = status.get("TracerPid", "0")
    if tracer not in ("", "0"):
        return f"Process {tracer} already traces it (a debugger, strace): end that first."
    if status.get("Uid", "").split()[:1] not in ([], [str(os.geteuid())]) and os.geteuid() != 0:
        return "It belongs to another user: run as that user, or as root."
    scope = ""
    with suppress(OSError), open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:  # noqa: PTH123
        scope = file.read().strip()
    if scope == "3":
        return "kernel.yama.ptrace_scope is 3: nobody may trace a process until the next reboot."
    if scope in ("1", "2"):
        return f"kernel.yama.ptrace_scope is {scope}: run as root, or `sysctl -w kernel.yama.ptrace_scope=0` (as root)."
    return "CAP_SYS_PTRACE is missing; for a container: `docker run --cap-add SYS_PTRACE`, or `kubectl debug --profile=sysadmin`."
