"""Stops every thread of a live process for a moment, through ptrace(2), and reads its registers.

PTRACE_SEIZE and PTRACE_INTERRUPT stop a thread without a signal that the process could notice; whatever becomes of us, the kernel lets
go of the threads when the tracing thread ends. A signal that arrives in between is delivered when the thread continues.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Optional

from crashkit.errors import EvidenceError

NT_PRSTATUS = 1
# include/uapi/linux/ptrace.h
_DETACH, _GETREGSET, _SEIZE, _INTERRUPT = 17, 0x4204, 0x4206, 0x4207
_EVENT_STOP = 128
_WALL = 0x40000000
"""include/uapi/linux/wait.h: also wait for threads, which are children of another kind."""
_LARGEST_SET = 4096
_PATIENCE = 1.0
"""Seconds for all threads to stop. One in an uninterruptible system call cannot."""
_PAUSE = 0.0002
_MOST_ROUNDS = 100


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Stopped:
    """The threads of a process, or `only` those of them, stopped: use as a context manager, within one thread.

    Raises EvidenceError if there is no such process or if tracing it is not permitted; the message says what right is missing.
    """

    def __init__(self, pid: int, only: Optional[Collection[int]] = None) -> None:
        self.pid = pid
        self._only = only
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.restype = ctypes.c_long
        self._libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
        self._signals: dict[int, int] = {}
        """By tid of a stopped thread: the signal to deliver when it continues, or 0."""
        self._seized: list[int] = []
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
        buffer = ctypes.create_string_buffer(_LARGEST_SET)
        vector = _Vector(ctypes.addressof(buffer), _LARGEST_SET)
        if self._libc.ptrace(_GETREGSET, tid, kind, ctypes.addressof(vector)) < 0:
            return b""
        return buffer.raw[: vector.length]

    def _stop_all(self) -> None:
        # A thread that still runs may make new ones: once a look finds none, all are there.
        ends = time.monotonic() + _PATIENCE
        for _ in range(_MOST_ROUNDS):
            new = [tid for tid in _tids(self.pid) if tid not in self._seized and (self._only is None or tid in self._only)]
            if not new:
                break
            for tid in new:
                if self._libc.ptrace(_SEIZE, tid, 0, 0) < 0:
                    if (number := ctypes.get_errno()) != errno.ESRCH and not _has_ended(self.pid, tid):
                        raise EvidenceError(f"cannot stop process {self.pid}: {os.strerror(number)}", missing_right(self.pid))
                    continue
                self._seized.append(tid)
                self._libc.ptrace(_INTERRUPT, tid, 0, 0)
            self._await([tid for tid in new if tid in self._seized], ends)
        self.unstopped = tuple(tid for tid in self._seized if tid not in self._signals)
        if not self._signals:
            why = "its threads are in system calls that cannot be interrupted" if self.unstopped else "it has ended"
            raise EvidenceError(f"cannot stop process {self.pid}: {why}", "Look at /proc/PID/stack and /proc/PID/wchan as root.")

    def _await(self, tids: Sequence[int], ends: float) -> None:
        for tid in tids:
            while True:
                try:
                    found, status = os.waitpid(tid, _WALL | os.WNOHANG)
                except ChildProcessError:
                    self._seized.remove(tid)
                    break
                if found and os.WIFSTOPPED(status):
                    event, number = status >> 16, os.WSTOPSIG(status)
                    self._signals[tid] = 0 if event == _EVENT_STOP or number == signal.SIGTRAP else number
                    break
                if found:
                    self._seized.remove(tid)
                    break
                if time.monotonic() > ends:
                    break
                time.sleep(_PAUSE)

    def _release(self) -> None:
        for tid, number in self._signals.items():
            self._libc.ptrace(_DETACH, tid, 0, number)
        self._signals = {}
        # A thread that never stopped cannot be detached from: the kernel does that when this thread ends.


def _has_ended(pid: int, tid: int) -> bool:
    """Whether the thread is on its way out: a tracer is refused by then (`ptrace_attach`, kernel/ptrace.c)."""
    try:
        state = Path(f"/proc/{pid}/task/{tid}/stat").read_bytes().rpartition(b") ")[2][:1]
    except OSError:
        return True
    return state in (b"Z", b"X", b"x")


def _tids(pid: int) -> list[int]:
    with suppress(OSError):
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
    return []


def missing_right(pid: int) -> str:
    """What keeps us from tracing the process, and what to try, in one line."""
    status = _status(pid)
    tracer = status.get("TracerPid", "0")
    if tracer not in ("", "0"):
        return f"Process {tracer} traces it already (a debugger, strace): end that first."
    if status.get("Uid", "").split()[:1] not in ([], [str(os.geteuid())]) and os.geteuid() != 0:
        return "It belongs to another user: run as that user, or as root."
    scope = ""
    with suppress(OSError), open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:  # noqa: PTH123
        scope = file.read().strip()
    if scope == "3":
        return "kernel.yama.ptrace_scope is 3: nobody may trace a process until the next reboot."
    if scope in ("1", "2"):
        return f"kernel.yama.ptrace_scope is {scope}: run as root, or `sysctl -w kernel.yama.ptrace_scope=0` (as root)."
    return "The right CAP_SYS_PTRACE is missing; for a container: `docker run --cap-add SYS_PTRACE`, or `kubectl debug --profile=sysadmin`."


def _status(pid: int) -> dict[str, str]:
    with suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        pairs = (line.partition(":") for line in file)
        return {name: value.strip() for name, _, value in pairs}
    return {}
