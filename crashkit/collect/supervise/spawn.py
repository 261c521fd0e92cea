"""Start a process that inherits what we were started with: signal mask and dispositions, group, terminal, descriptors.

`subprocess` is not suitable: the child would inherit our blocked signals.
"""

from __future__ import annotations

import errno
import os
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence

from crashkit.collect.host import linux

NOT_FOUND = 127
NOT_RUNNABLE = 126

# Python ignores these from its start (Python/pylifecycle.c, _Py_InitializeMain); the command gets the default.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class SpawnError(Exception):
    """The command could not be executed; `status` is the exit status of a shell in this case, `hint` says what to try."""

    def __init__(self, command: str, number: int) -> None:
        super().__init__(f"cannot run {command!r}: {os.strerror(number)}")
        self.status = NOT_FOUND if number == errno.ENOENT else NOT_RUNNABLE
        self.hint = _advice(command, number)


def _advice(command: str, number: int) -> str:
    """What to try instead. A shell would look for a name without a slash in PATH, too."""
    quoted = shlex.quote(command)
    # Unlike pathlib's, these do not raise for a folder that may not be read, or a name that is too long.
    is_file = os.path.isfile(command)
    if os.path.isdir(command):
        return "It is a folder: pass a program."
    if is_file and command.endswith(".py"):
        return f"Pass its interpreter, too: crashkit run -- python3 {quoted}"
    if number == errno.ENOENT and is_file:
        here = f"it is not in PATH: crashkit run -- ./{quoted}"
        return f"The file is there, but {'the interpreter in its first line is not.' if '/' in command else here}"
    if number in (errno.ENOENT, errno.ENAMETOOLONG):
        words = command.split()
        return f"Pass the words without quotes: crashkit run -- {command}" if len(words) > 1 else "Check its name, and PATH."
    if number == errno.ENOEXEC:
        return "It is no program of this machine, and its first line names no interpreter (#!)."
    return f"It is not executable: chmod +x {quoted}" if is_file else "Check its permissions."


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
