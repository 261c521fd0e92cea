"""A folder of the store that one process works on, and the lock that says so.

The lock is a file, locked with flock(2). The kernel releases it when the process ends, however it ends; and unlike a pid, it means the
same in every PID namespace, and on NFS on every host. A folder with a lock file that nobody holds was abandoned: whoever takes the lock
may finish the work. A folder without the file is finished.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import BinaryIO, Optional

from crashkit.crashfolder.files import create

LOCK = ".lock"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Work:
    """A folder that is ours as long as we live.

    It is used through its descriptor, so that a store which was moved or swapped for a link misleads nobody.
    """

    def __init__(self, path: Path, descriptor: int, lock: int) -> None:
        self.path = path
        """Where it was when we opened it: for messages and other programs."""
        self.descriptor = descriptor
        self._lock = lock

    @property
    def kind(self) -> str:
        """run, crash or enabled: the first part of a hidden name; empty for a published crash."""
        return self.path.name[1:].partition("-")[0] if self.path.name.startswith(".") else ""

    def create(self, name: str) -> BinaryIO:
        """Create a file of the folder, as `files.create` does. Raises OSError."""
        return create(name, self.descriptor)

    def write(self, name: str, data: bytes) -> None:
        """Create a file with these contents. Raises OSError; what was written by then stays."""
        with self.create(name) as file:
            file.write(data)

    def names(self) -> list[str]:
        """All names in the folder, sorted. Raises OSError."""
        return sorted(os.listdir(self.descriptor))

    def stat(self, name: str) -> Optional[os.stat_result]:
        """What a name is, without following links; None if it is not there. Raises OSError if that cannot be found out."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self.descriptor)

    def done(self) -> None:
        """Nothing is left to do here: remove the lock file and close."""
        self.remove(LOCK)
        self.close()

    def close(self) -> None:
        """Close it, if it is open. Unless another process of ours still has it open, anybody may now go on."""
        for descriptor in (self._lock, self.descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock = self.descriptor = -1


def begin(parent: int, path: Path) -> Work:
    """Make a folder, locked; `parent` is the descriptor of the one that it lies in.

    Raises OSError; FileNotFoundError or BlockingIOError if somebody who looks for abandoned folders was between: try again.
    """
    os.mkdir(path.name, 0o700, dir_fd=parent)
    folder = os.open(path.name, _FOLDER, dir_fd=parent)
    try:
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except OSError:
        os.close(folder)
        with contextlib.suppress(OSError):
            os.rmdir(path.name, dir_fd=parent)
        raise
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Where the file system has no locks, nobody else can take this one either: nothing is ever recovered, but nothing is lost.
        if error.errno == errno.EWOULDBLOCK:
            os.close(lock)
            os.close(folder)
            raise
    made = Work(path, folder, lock)
    if not os.fstat(lock).st_nlink:
        made.close()
        raise FileNotFoundError(errno.ENOENT, "the lock file was removed", str(path))
    return made


def claim(parent: int, path: Path, unmarked: bool = False) -> Optional[Work]:
    """Take over a folder; None if somebody works on it, nothing is left to do, or it is no folder.

    With `unmarked`, also one without a lock file.
    """
    try:
        folder = os.open(path.name, _FOLDER, dir_fd=parent)
    except OSError:
        return None
    lock = -1
    with contextlib.suppress(OSError):
        lock = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if unmarked else 0), 0o600, dir_fd=folder)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_nlink:  # else its owner was done between our two calls
            return Work(path, folder, lock)
    for descriptor in (lock, folder):
        if descriptor >= 0:
            os.close(descriptor)
    return None
