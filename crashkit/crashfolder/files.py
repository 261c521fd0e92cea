"""Opens files in places that may be hostile: only regular files are opened, and in a crash folder links are not followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Container
from pathlib import Path, PurePath
from typing import BinaryIO, Optional, Union

_MOST_STEPS = 4096
"""Parts of a path, with those of the links on it: more is a loop."""


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
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise
    except OSError:
        return open_regular(Path(os.path.realpath(path, strict=True)))


def open_owned(path: Path, owners: Container[int]) -> tuple[BinaryIO, Path]:
    """Open a regular file for reading that belongs to one of these users (ids); also its path behind all links.

    A link, of the file or of a folder on the way, is followed only if root made it or whoever owns the file: nobody can have another
    user's file opened. Raises OSError.
    """
    real, makers = _resolved(path)
    file = open_regular(real)
    status = os.fstat(file.fileno())
    if status.st_uid in owners and makers <= {0, status.st_uid} and not is_planted(status, real):
        return file, real
    file.close()
    raise PermissionError(errno.EACCES, "it belongs to another user", str(path))


def _resolved(path: Path) -> tuple[Path, set[int]]:
    """The path without links, and the users that made those. Raises OSError."""
    done, todo = Path("/"), [*reversed(path.absolute().parts[1:])]
    makers: set[int] = set()
    for _ in range(_MOST_STEPS):
        if not todo:
            return done, makers
        part = todo.pop()
        if part == "..":
            done = done.parent
            continue
        here = done / part
        status = os.lstat(here)
        if not stat.S_ISLNK(status.st_mode):
            done = here
            continue
        makers.add(status.st_uid)
        target = PurePath(os.readlink(here))
        done = Path("/") if target.is_absolute() else done
        todo += [one for one in reversed(target.parts) if one != "/"]
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def is_planted(status: os.stat_result, real: Path) -> bool:
    """Whether it is a second name that another user gave to a file that is not theirs, where `fs.protected_hardlinks` allows that."""
    return status.st_nlink > 1 and real.parent.stat().st_uid not in (0, os.geteuid(), status.st_uid)


def is_regular(path: Path) -> bool:
    """Whether `path` is a regular file; False for a link."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
