"""ptrace(2) through ctypes, as far as it is needed to look at threads and to follow a tree of processes. A failure raises OSError.

What a tracer may ask of a thread, it may ask only while the thread stands in a stop of ptrace's.
"""

from __future__ import annotations

import ctypes
import os

from crashkit.elf.notes import NT_PRSTATUS

# include/uapi/linux/ptrace.h
_CONT, _DETACH = 7, 17
_GETSIGINFO, _GETREGSET, _SEIZE, _INTERRUPT, _LISTEN = 0x4202, 0x4204, 0x4206, 0x4207, 0x4208
FOLLOWS_ALL = 0x02 | 0x04 | 0x08 | 0x10
"""PTRACE_O_TRACEFORK, VFORK, CLONE, EXEC: children and threads are traced from their first instruction."""
EVENT_STOP = 128
WALL = 0x40000000
"""include/uapi/linux/wait.h: also wait for threads, which are children of another kind."""

_SIGINFO, _LARGEST_SET = 128, 64 << 10

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _call(request: int, tid: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, tid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def seize(tid: int, options: int = 0) -> None:
    """Trace this thread without stopping it."""
    _call(_SEIZE, tid, 0, options)


def interrupt(tid: int) -> None:
    """Stop a traced thread; it says so to waitpid(2)."""
    _call(_INTERRUPT, tid)


def go_on(tid: int, number: int = 0) -> None:
    """Let a stopped thread run, with this signal."""
    _call(_CONT, tid, 0, number)


def let_go(tid: int, number: int = 0) -> None:
    """Let a stopped thread run, with this signal, and trace it no longer."""
    _call(_DETACH, tid, 0, number)


def listen(tid: int) -> None:
    """Leave a thread in the stop that SIGSTOP brought it, until SIGCONT."""
    _call(_LISTEN, tid)


def delivered(status: int) -> int:
    """The signal that a stopped thread is about to get, by what waitpid(2) said of it; 0 if it stands for another reason."""
    return os.WSTOPSIG(status) if status >> 16 == 0 else 0


def signal_information(tid: int) -> bytes:
    """The `siginfo_t` of the signal that the stopped thread is about to get."""
    buffer = ctypes.create_string_buffer(_SIGINFO)
    _call(_GETSIGINFO, tid, 0, ctypes.addressof(buffer))
    return buffer.raw


def registers(tid: int, kind: int = NT_PRSTATUS) -> bytes:
    """A set of a stopped thread's registers as in a core's note of that type; empty if there is none."""
    buffer = ctypes.create_string_buffer(_LARGEST_SET)
    vector = _Vector(ctypes.addressof(buffer), _LARGEST_SET)
    if _libc.ptrace(_GETREGSET, tid, kind, ctypes.addressof(vector)) < 0:
        return b""
    return buffer.raw[: vector.length]
