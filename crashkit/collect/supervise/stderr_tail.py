"""Keep the last part of the command's stderr while passing it on to its destination.

The command's stderr stays of the same kind: a file stays the same file and is read afterwards, a terminal becomes a
pseudo-terminal of the same size, anything else becomes a pipe.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import stat
import termios
import time
from typing import Optional

KEPT = 256 * 1024
_CHUNK = 65536
_REST = 0.01
"""Seconds to wait for more output: a server that logs each request would wake us every time."""
_FATAL = b"Fatal Python error: "
_SIGN = re.compile(rb"Fatal Python error: |\[rank\d{1,9}\]: Traceback \(most|Watchdog caught collective operation timeout")
"""That a process of a job is about to end. Only an exception that nobody caught has the rank before it (torch.distributed)."""
_LONGEST_SIGN = 64


class Ring:
    """A buffer for the last `size` bytes."""

    def __init__(self, size: int = KEPT) -> None:
        self._size = size
        self._data = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Append data and drop what no longer fits."""
        self.total += len(data)
        self._data += data
        if len(self._data) > 2 * self._size:
            del self._data[: -self._size]

    def tail(self) -> bytes:
        """The last `size` bytes, or fewer."""
        return bytes(self._data[-self._size :])


class StderrTail:
    """stderr is not touched and nothing is kept; the subclasses keep its end."""

    command_stderr: Optional[int] = None
    """The descriptor that the command gets as its stderr; None if it inherits ours."""
    both: bool = False
    """Whether stdout is the same pipe: the command gets `command_stderr` for both, which preserves their order."""
    fatal_errors = 0
    """Number of fatal errors of Python interpreters seen so far."""
    signs = 0
    """How often a process of a job said that it fails."""

    def interest(self) -> Optional[tuple[int, int]]:
        """Descriptor and events to poll for before `pump`; None if there is nothing to poll."""
        return None

    @property
    def behind(self) -> bool:
        """Whether data was read and not yet passed on."""
        return False

    def rest(self) -> float:
        """Seconds without need to poll: many short lines are passed on together."""
        return 0.0

    def pump(self) -> None:
        """Pass on available data without blocking."""

    def catch_up(self) -> None:
        """Read everything written so far, so that `tail` includes it."""

    def started(self) -> None:
        """Close our copy of `command_stderr`: no further command will be started."""

    def resize(self) -> None:
        """Copy the terminal's size to the pseudo-terminal."""

    def tail(self) -> bytes:
        """The last 256 KiB at most."""
        return b""

    def forget(self) -> None:
        """Keep nothing of what was written so far: it is of another run of the command."""

    def leave(self) -> None:
        """Pass on the rest before we exit; descendants that outlive us keep a working stderr."""


class FileTail(StderrTail):
    """stderr is a regular file: the command writes to it directly, and `tail` reads its end."""

    def __init__(self, descriptor: int) -> None:
        self._path = f"/proc/self/fd/{descriptor}"
        self._start = os.fstat(descriptor).st_size

    def forget(self) -> None:
        """Read only what is written from now on."""
        with contextlib.suppress(OSError):
            self._start = os.stat(self._path).st_size

    def tail(self) -> bytes:
        """The end of what was written since the start; empty if it cannot be read."""
        try:
            with open(self._path, "rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(min(self._start, end), end - KEPT))
                return file.read(KEPT)
        except OSError:
            return b""


class RelayTail(StderrTail):
    """stderr is a terminal, a pipe, a socket or a device."""

    def __init__(self, descriptor: int, both: bool) -> None:
        self._outer = descriptor
        self._ring = Ring()
        self._seam = b""
        self._pending = b""
        self._rest_until = 0.0
        self.both = both
        self._in: Optional[int]
        self._terminal = os.isatty(descriptor)
        if self._terminal:
            self._in, self.command_stderr = os.openpty()
            mode = termios.tcgetattr(descriptor)
            mode[1] &= ~termios.OPOST  # the real terminal does that already
            mode[3] &= ~termios.ECHO
            termios.tcsetattr(self.command_stderr, termios.TCSANOW, mode)
            self.resize()
        else:
            self._in, self.command_stderr = os.pipe()
        os.set_blocking(self._in, False)
        self._out, self._chunk = _non_blocking(descriptor)

    @property
    def behind(self) -> bool:
        """Whether data was read and not yet passed on."""
        return bool(self._pending)

    def rest(self) -> float:
        """Seconds left until the next poll, after a short read."""
        return 0.0 if self._pending or self._in is None else max(0.0, self._rest_until - time.monotonic())

    def interest(self) -> Optional[tuple[int, int]]:
        """Wait to write if data is pending, else to read."""
        if self._pending:
            return self._out, select.POLLOUT
        return None if self._in is None else (self._in, select.POLLIN)

    def started(self) -> None:
        """Close our copy of the command's end, so that we see when the last writer is gone."""
        if self.command_stderr is not None:
            os.close(self.command_stderr)
            self.command_stderr = None

    def resize(self) -> None:
        """Copy the terminal's size to the pseudo-terminal; does nothing for other kinds."""
        if self._terminal and self._in is not None:
            with contextlib.suppress(OSError):
                size = fcntl.ioctl(self._outer, termios.TIOCGWINSZ, b"\0" * 8)
                fcntl.ioctl(self._in, termios.TIOCSWINSZ, size)

    def pump(self) -> None:
        """Read a chunk if none is pending, then write what the destination accepts, without blocking."""
        if not self._pending and self._in is not None:
            self._read(self._in)
        if self._pending:
            self._write()

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # EIO: no process has the other side of the terminal open any more
            data = b""
        if not data:
            self._close_in()  # what was read before is still to be passed on
            return
        self._ring.add(data)
        self.fatal_errors += (self._seam[-len(_FATAL) + 1 :] + data).count(_FATAL)
        seam = len(self._seam)
        self.signs += sum(match.end() > seam for match in _SIGN.finditer(self._seam + data))
        self._seam = data[-_LONGEST_SIGN:]
        self._pending += data
        if len(data) < _CHUNK // 4 and not self._terminal:
            self._rest_until = time.monotonic() + _REST

    def catch_up(self) -> None:
        """Read what is available, 256 KiB at most, without writing it yet."""
        for _ in range(KEPT // _CHUNK):
            if self._in is None or not select.select([self._in], [], [], 0)[0]:
                return
            self._read(self._in)

    def _write(self) -> None:
        try:
            self._pending = self._pending[os.write(self._out, self._pending[: self._chunk]) :]
        except BlockingIOError:
            pass
        except OSError:
            # The reader is gone: the command must notice it as it would without us.
            self._close()

    def _close(self) -> None:
        self._pending = b""
        self._close_in()

    def _close_in(self) -> None:
        self.started()
        if self._in is not None:
            os.close(self._in)
            self._in = None

    def tail(self) -> bytes:
        """The last 256 KiB at most, including data not yet passed on."""
        return self._ring.tail()

    def forget(self) -> None:
        """Empty the buffer; what is pending is still passed on."""
        self._ring = Ring()

    def leave(self) -> None:
        """Pass on what is left; fork a process for writers that outlive us."""
        self.started()
        while (interest := self.interest()) is not None:
            poll = select.poll()
            poll.register(*interest)
            if not poll.poll(0 if interest[1] == select.POLLIN else 1000):
                break
            self.pump()
        if self._in is not None and os.fork() == 0:
            # A daemon still has it open: a separate process passes on its output until the last writer is gone.
            os.setsid()
            for descriptor in (0, 1):
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            while (interest := self.interest()) is not None:
                poll = select.poll()
                poll.register(*interest)
                poll.poll()
                self.pump()
            os._exit(0)


def _non_blocking(descriptor: int) -> tuple[int, int]:
    """A non-blocking descriptor for the same destination, and the number of bytes to write at once.

    O_NONBLOCK on the descriptor itself would affect every process that shares it, so this opens a new file description.
    """
    with contextlib.suppress(OSError):
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), _CHUNK
    return descriptor, 256 if os.isatty(descriptor) else select.PIPE_BUF


def open_tail(keep: bool = True) -> StderrTail:
    """The tail for this process's stderr; with `keep` False, stderr is not touched."""
    try:
        error = os.fstat(2)
    except OSError:
        return StderrTail()
    if not keep:
        return StderrTail()
    if stat.S_ISREG(error.st_mode):
        return FileTail(2)
    both = False
    with contextlib.suppress(OSError):
        both = stat.S_ISFIFO(error.st_mode) and os.path.samestat(os.fstat(1), error)
    return RelayTail(2, both)
