"""Files of a crash folder, which may be hostile: no link is followed, and nothing but regular files is opened."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def create(path: Path) -> BinaryIO:
    """A new file, 0600. Raises FileExistsError where anything has that name, a link included."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb")


def open_regular(path: Path) -> BinaryIO:
    """For reading. Raises OSError, also for links, FIFOs and devices; never blocks on one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def is_regular(path: Path) -> bool:
    """Whether there is a regular file; a link is none."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
