"""Temporary folders that do not outlive us, or not for long: what a killed process left is removed by the next one.

A folder belongs to the process that holds its lock (flock), which the kernel releases however that process ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Optional

_PREFIX = "crashkit-scratch-"
_MOST_SWEPT = 100
"""At a time: the sweep must not delay an analysis."""


class Scratch:
    """A private temporary folder, locked: a context manager, or `close` it. Raises OSError if it cannot be made.

    It is made in `parent`, or else where temporary files belong.
    """

    def __init__(self, purpose: str, parent: Optional[Path] = None) -> None:
        swept(parent or Path(tempfile.gettempdir()))
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-", dir=parent))
            try:
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            # On a file system without locks no sweep gets one either: it leaves the folder alone.
            with suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            if os.fstat(self._lock).st_nlink and self.path.is_dir():
                _held.add(self)
                return
            # Another process took it for a leftover before it was locked.
            os.close(self._lock)

    def close(self) -> None:
        """Delete the folder with all that is in it."""
        _held.discard(self)
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            os.close(self._lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()


_held: set[Scratch] = set()


def held() -> list[Scratch]:
    """Those of this process that are not closed."""
    return list(_held)


@cache
def swept(folder: Path) -> None:
    """Sweep this folder once in the life of this process."""
    with suppress(OSError):
        sweep(folder)


def sweep(folder: Path) -> list[Path]:
    """Remove this user's scratch folders in `folder` that no process holds; returns what was removed. Never follows a link."""
    removed = []
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(_PREFIX)]
    for name in names[:_MOST_SWEPT]:
        with suppress(OSError):
            if _remove_leftover(folder / name):
                removed.append(folder / name)
    return removed


def _remove_leftover(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # rmtree does not follow links, and refuses where the folder is exchanged for one meanwhile.
        shutil.rmtree(path)
        return True
    finally:
        os.close(descriptor)
