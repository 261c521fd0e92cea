"""Opens files in places that may be hostile: only regular files are opened, and in a crash folder links are not followed."""

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
    _require_regular(os.stat(path, dir_fd=folder, follow_symlinks=False), path)  # to open a device may already do something
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        _require_regular(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _require_regular(status: os.stat_result, path: Union[Path, str]) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def open_real(path: Path) -> BinaryIO:
    """Open a file for reading that may be a link to a regular file. Raises OSError for everything else; never blocks on it."""
    return open_regular(Path(os.path.realpath(path, strict=True)))


def is_regular(path: Path) -> bool:
    """Whether `path` is a regular file; False for a link."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
