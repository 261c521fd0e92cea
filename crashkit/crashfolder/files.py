"""Opens files of a crash folder, which may be hostile: links are not followed, and only regular files are opened."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Optional, Union


def create(path: Union[Path, str], folder: Optional[int] = None) -> BinaryIO:
    """Create a file with mode 0600 for writing. Raises FileExistsError if the name exists, even as a link.

    A relative path starts at the descriptor `folder`.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600, dir_fd=folder), "wb")


def open_regular(path: Union[Path, str], folder: Optional[int] = None) -> BinaryIO:
    """Open a file for reading. Raises OSError, also for links, FIFOs and devices; never blocks on them.

    A relative path starts at the descriptor `folder`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def is_regular(path: Path) -> bool:
    """Whether `path` is a regular file; False for a link."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
