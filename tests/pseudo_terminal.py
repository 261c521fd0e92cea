"""Programs on a terminal of their own."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path


def start(
    command: Sequence[str], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None, columns: int = 80
) -> tuple[subprocess.Popen[bytes], int]:
    """The process, and the descriptor from which to read what it shows, and to which to write what is typed."""
    ours, theirs = pty.openpty()
    resize(ours, 24, columns)
    try:
        # Not pty.fork: Python warns of it in a process with threads, as each worker of pytest-xdist is.
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
    finally:
        os.close(theirs)
    return process, ours


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # A shell without job control has what it starts in the background ignore it, and so would all that the tests start.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
