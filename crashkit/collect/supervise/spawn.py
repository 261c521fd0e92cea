"""Start a process with everything that this one was started with: signal mask and dispositions, group, terminal, descriptors.

`subprocess` would not do: it leaves our blocked signals to the child and cannot raise limits in it.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from crashkit.collect.host import linux

NOT_FOUND = 127
NOT_RUNNABLE = 126

# Python ignores these at its start (Python/pylifecycle.c, _Py_InitializeMain); the command shall have the default.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class SpawnError(Exception):
    """The command could not be executed; `status` is what a shell would exit with."""

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
    """The pid of `argv`, started with `descriptors[n]` as its descriptor n, all others as ours, after `prepare` ran in it.

    `forked` is called here with the pid before the command is executed.

    It is killed when we are: a signal that we cannot pass on reaches it all the same. Raises SpawnError.
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
