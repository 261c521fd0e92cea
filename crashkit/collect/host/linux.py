"""Kernel interfaces missing in Python's standard library, through ctypes: prctl(2), signalfd(2), inotify(7), pidfd info."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Optional

_libc = ctypes.CDLL(None, use_errno=True)

# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
PR_SET_PTRACER = 0x59616D61
PR_SET_PTRACER_ANY = ctypes.c_ulong(-1).value

# linux/inotify.h
IN_CLOSE_WRITE = 0x008
IN_MOVED_TO = 0x080
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_Q_OVERFLOW = 0x4000
_IN_ONLYDIR = 0x01000000

_AT_FDCWD = -100

# linux/fanotify.h
_FAN_CLOSE_WRITE = 0x08
_FAN_EVENT_ON_CHILD = 0x08000000
_FAN_CLOEXEC, _FAN_NONBLOCK = 0x01, 0x02
_FAN_MARK_ADD, _FAN_MARK_ONLYDIR = 0x01, 0x08

# linux/falloc.h: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_PUNCH_HOLE = 0x01 | 0x02

# linux/pidfd.h, since Linux 6.13; the exit status of a process that is reaped already since 6.15
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_INFO_SIZE = 64
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO_SIZE << 16) | (0xFF << 8) | 11


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def prctl(option: int, argument: int | bytes) -> None:
    """Call prctl(2). Raises OSError."""
    value: object = ctypes.c_char_p(argument) if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    _check(_libc.prctl(option, value, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)))


def punch_hole(descriptor: int, at: int, length: int) -> None:
    """Give the disk space of this part of a file back; it then reads as zeros. Raises OSError where the file system cannot."""
    _check(_libc.fallocate(descriptor, _PUNCH_HOLE, ctypes.c_int64(at), ctypes.c_int64(length)))


class SignalInfo(NamedTuple):
    """A signal that was read from a signalfd."""

    number: int
    code: int
    pid: int
    """Pid of the sender; 0 for the kernel (a terminal)."""


def signalfd(signals: Iterable[int]) -> int:
    """A non-blocking descriptor to read these signals from; the caller must block them. Raises OSError."""
    # The kernel's sigset_t is 64 bits; glibc's signalfd takes its own of 128 bytes.
    mask = sum(1 << (number - 1) for number in signals)
    return _check(_libc.signalfd(-1, struct.pack("<Q120x", mask), os.O_NONBLOCK | os.O_CLOEXEC))


def read_signal(descriptor: int) -> Optional[SignalInfo]:
    """The next pending signal, or None, without blocking; `struct signalfd_siginfo` of signalfd(2).

    One at a time: the kernel drops a pending SIGTSTP on SIGCONT and the other way round (kernel/signal.c, prepare_signal), but not
    what was read already.
    """
    try:
        data = os.read(descriptor, 128)
    except BlockingIOError:
        return None
    number, _, code, pid = struct.unpack_from("=IiiI", data)
    return SignalInfo(number, code, pid)


class Inotify:
    """Directory events by inotify(7)."""

    def __init__(self) -> None:
        self.descriptor = _check(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def watch(self, directory: str, mask: int) -> int:
        """Watch a directory and return the number of the watch; the same directory keeps its number. Raises OSError."""
        return _check(_libc.inotify_add_watch(self.descriptor, os.fsencode(directory), mask | _IN_ONLYDIR))

    def events(self) -> Iterator[tuple[int, int, str]]:
        """The pending events, without blocking: watch number, mask, name in the directory."""
        while True:
            try:
                data = os.read(self.descriptor, 65536)
            except BlockingIOError:
                return
            at = 0
            while at + 16 <= len(data):
                number, mask, _, length = struct.unpack_from("=iIII", data, at)
                name = data[at + 16 : at + 16 + length].split(b"\0", 1)[0]
                yield number, mask, os.fsdecode(name)
                at += 16 + length


class WrittenFiles:
    """Files of some directories as they are closed after writing, even if their names are gone by then: fanotify(7)."""

    def __init__(self) -> None:
        """Raises OSError, in particular without CAP_SYS_ADMIN."""
        self.descriptor = _check(_libc.fanotify_init(_FAN_CLOEXEC | _FAN_NONBLOCK, os.O_RDONLY | os.O_CLOEXEC))

    def watch(self, directory: str) -> None:
        """Also watch this directory. Raises OSError."""
        mask = ctypes.c_uint64(_FAN_CLOSE_WRITE | _FAN_EVENT_ON_CHILD)
        _check(_libc.fanotify_mark(self.descriptor, _FAN_MARK_ADD | _FAN_MARK_ONLYDIR, mask, _AT_FDCWD, os.fsencode(directory)))

    def closed(self) -> Iterator[int]:
        """Descriptors of the files that were closed, without blocking; the caller closes them."""
        while True:
            try:
                data = os.read(self.descriptor, 4096)
            except OSError:  # no more, or a file that could not be opened: then the rest comes next time
                return
            at = 0
            while at + 24 <= len(data):
                length, _, descriptor = struct.unpack_from("=I12si", data, at)
                if descriptor >= 0:  # else events were dropped
                    yield descriptor
                at += length


def pidfd_exit_status(descriptor: int) -> Optional[int]:
    """The wait status of a process that any process has reaped; None if it still runs or the kernel is older than 6.15."""
    buffer = bytearray(_PIDFD_INFO_SIZE)
    struct.pack_into("<Q", buffer, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None
    mask, exit_code = struct.unpack_from("<Q", buffer)[0], struct.unpack_from("<i", buffer, 60)[0]
    return int(exit_code) if mask & _PIDFD_INFO_EXIT else None
