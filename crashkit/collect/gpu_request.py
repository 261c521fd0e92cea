"""Asks CUDA's driver for the GPU core of a process that hangs: it writes one when a MiB comes through the pipe that it made for that.

With driver 580 the process then ends by SIGABRT: ask only where it is to end anyway, and once its own core is taken.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import stat
import time
from pathlib import Path
from typing import Optional

from crashkit.collect.host import cuda
from crashkit.collect.host.snapshot import read_stat, snapshot

_MIB = 1 << 20
_PATIENCE = 10.0
"""Seconds for the driver to read what asks it."""
_LONGEST = 60.0
"""Seconds for a core to be written: some of 14 MB were there after one."""
_BEGINS = 10.0
"""Seconds for it to begin."""
_PAUSE = 0.05


def ask(folder: Path, pid: int) -> None:
    """Have the driver of the process write its GPU core into the run's folder for them, and wait for it, for a minute at most.

    Nothing is asked of a process without a pipe there that it reads: one without CUDA, or whose user chose another place for the pipe.
    """
    seen = snapshot(pid)
    if seen is None:
        return
    pipe = _opened(folder, seen.namespace_pid)
    if pipe is None:
        return
    try:
        cuda.note_asked(folder, pid, seen.start)
        with contextlib.suppress(OSError, ValueError):
            # Its own core was taken while it lived: the kernel need not write another one.
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, resource.prlimit(pid, resource.RLIMIT_CORE)[1]))
        if not _write(pipe):
            return
    finally:
        os.close(pipe)
    began = time.monotonic()
    while time.monotonic() < began + _LONGEST:
        now = read_stat(pid)
        if now is None or now.start != seen.start or now.state in "ZX":
            return
        there = bool(cuda.dumps(folder, seen.namespace_pid))
        if (there or time.monotonic() > began + _BEGINS) and not cuda.dumping(folder):
            return
        time.sleep(_PAUSE)


def _opened(folder: Path, pid: int) -> Optional[int]:
    """The pipe of a process, if it is one and somebody reads it."""
    for path in cuda.pipes(folder, pid):
        with contextlib.suppress(OSError):
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            found = os.fstat(pipe)
            if stat.S_ISFIFO(found.st_mode):
                return pipe
            os.close(pipe)
    return None


def _write(pipe: int) -> bool:
    """Write a MiB, as fast as it is read; whether all of it, or so much that the reader closed the pipe, was taken."""
    poll = select.poll()
    poll.register(pipe, select.POLLOUT)
    left, until = _MIB, time.monotonic() + _PATIENCE
    zeros = bytes(1 << 16)
    while left and time.monotonic() < until:
        poll.poll(_PAUSE * 1000)
        try:
            left -= os.write(pipe, zeros[:left])
        except BlockingIOError:
            continue
        except BrokenPipeError:
            return left < _MIB
    return not left
