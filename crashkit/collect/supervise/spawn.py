"""Start a process that inherits what we were started with: signal mask and dispositions, group, terminal, descriptors.

`subprocess` is not suitable: the child would inherit our blocked signals.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from crashkit.collect.host import linux

NOT_FOUND = 127
NOT_RUNNABLE = 126

# Python ignores these from its start (Python/pylifecycle.c, _Py_InitializeMain); the command gets the default.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class SpawnError(Exception):
    """The command could not be executed; `status` is the exit status of a shell in this case."""

    def __init__(self, command: str, number: int) -> None:
        super().__init__(f"cannot run {command!r}: {os.strerror(number)}")
        self.status = NOT_FOUND if number == errno.ENOENT else NOT_RUNNABLE


def spawn(
    argv: Sequence[str],
    environment: Mapping[str, str],
    mask: set[signal.Signals],
    descriptors: Mapping[int, int],
    prepare: Callable[[], None] = lambda: None,
    forked: Callable[[int], None] = lambda pid: None,
) -> int:
    """Start `argv` and return its pid. It gets `descriptors[n]` as descriptor n and inherits all others.

    `prepare` runs in the child before it executes the command, `forked` here with its pid.
    The child is killed when we die, even of SIGKILL. Raises SpawnError if the command cannot be executed.
    """
    parent = os.getpid()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(NOT_RUNNABLE)
            prepare()
            for target, source in descriptors.items():
                os.dup2(source, target)
            for number in _IGNORED_BY_PYTHON:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.execvpe(argv[0], list(argv), dict(environment))
        except OSError as error:
            os.write(writer, (error.errno or errno.EIO).to_bytes(4, "little"))
        finally:
            os._exit(NOT_RUNNABLE)
    os.close(writer)
    forked(pid)
    with open(reader, "rb", buffering=0) as pipe:
        failure = pipe.read(4)
    if failure:
        os.waitpid(pid, 0)
        raise SpawnError(argv[0], int.from_bytes(failure, "little"))
    return pid
