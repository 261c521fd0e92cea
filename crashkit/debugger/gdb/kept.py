"""What gdb computed of this machine's own files, kept for the next analysis: indexes of debug info, and bytecode of Python scripts.

It lies in `$XDG_CACHE_HOME/crashkit/gdb`, which gdb believes and partly runs: only a folder counts that belongs to this user, and to
which nobody else can write. Where there is none, nothing is kept. gdb knows an index by a build-id, which any file may claim; here each
file has a folder of its own, named after its inode and the time when that last changed.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Optional

_INDEX = ".gdb-index"
_MOST_FILES = 16
"""Files of which indexes are kept: those used last. The index of an interpreter has 2 MB."""
_AGAIN = 86400.0
"""Seconds until a file without debug info is looked at again."""


def cache_folder() -> Optional[Path]:
    """The folder, made if need be; None where it cannot be, or is not this user's alone."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not base.startswith("/"):  # a relative one is invalid, says the XDG Base Directory Specification
        home = os.environ.get("HOME", "")
        base = f"{home}/.cache" if home.startswith("/") else ""
    if not base or not base.isprintable():
        return None
    outer = Path(base) / "crashkit"
    inner = outer / "gdb"
    try:
        for folder in (outer, inner):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
    except OSError:
        return None
    return inner if os.access(inner, os.W_OK) else None


def index_folder(cache: Path, file: Path) -> Optional[Path]:
    """Where indexes of this very file are kept, those of its separate debug file included; None if the file is gone."""
    try:
        status = file.stat()
    except OSError:
        return None
    return cache / f"{status.st_dev:x}-{status.st_ino:x}-{status.st_size:x}-{status.st_ctime_ns:x}"


def has_index(folder: Path) -> bool:
    """Whether there is one."""
    try:
        found = any(place.suffix == _INDEX for place in folder.iterdir())
        if found:
            os.utime(folder)
    except OSError:
        return False
    return found


def is_wanted(folder: Path) -> bool:
    """Whether indexes are to be kept there. An empty folder says that there were none to keep: debug info may be installed later."""
    try:
        return not any(folder.iterdir()) and folder.stat().st_mtime < time.time() - _AGAIN
    except OSError:
        return True


def bytecode_folder(cache: Path) -> Path:
    """For the Python inside gdb, as `sys.pycache_prefix`."""
    return cache / "bytecode"


def forget_old(cache: Path) -> None:
    """Remove what was used longest ago, and what a gdb that was killed left."""
    with suppress(OSError):
        folders = [place for place in cache.iterdir() if place != bytecode_folder(cache)]
        for place in sorted(folders, key=lambda place: place.lstat().st_mtime, reverse=True)[_MOST_FILES:]:
            shutil.rmtree(place, ignore_errors=True)
