"""What gdb computed of this machine's own files, kept for the next analysis: indexes of debug info, debug files that were compressed, and
bytecode of Python scripts.

It lies in `$XDG_CACHE_HOME/crashkit/gdb`, which gdb believes and partly runs: only a folder counts that belongs to this user, and to
which nobody else can write. Where there is none, nothing is kept. gdb knows an index by a build-id, which any file may claim; here each
file has a folder of its own, named after its inode and the time when that last changed.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Optional

from crashkit.elf.decompressed import write_decompressed
from crashkit.elf.file import read_build_id

_INDEX = ".gdb-index"
_DEBUG_FILES = ".build-id"
_MOST_FILES = 16
"""Files of which indexes are kept: those used last. The index of an interpreter has 2 MB."""
_MOST_SCRIPTS = 500
"""Files of bytecode: each environment that crashkit is installed in has its own."""
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
        # Root may have the HOME of a user, whose folders are then none of root's.
        if not _stays(outer):
            return None
        _make_private(outer.parent)
        for folder in (outer, inner):
            folder.mkdir(mode=0o700, exist_ok=True)
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
        return inner if _stays(outer) and os.access(inner, os.W_OK) else None
    except OSError:
        return None


def _make_private(folder: Path) -> None:
    """Makes it and what it lies in, where missing, for this user alone whatever the umask is: others could replace what is in theirs.

    Raises OSError.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)


def _stays(folder: Path) -> bool:
    """Whether only root and this user can replace a folder of this user's at this place. Raises OSError."""
    parents = (place for place in Path(os.path.realpath(folder.parent)).joinpath(folder.name).parents if place.exists())
    return all(_keeps_entries(parent.stat()) for parent in parents)


def _keeps_entries(status: os.stat_result) -> bool:
    """Whether nobody else can rename what is in the folder: by its owner and its mode, or by its sticky bit."""
    open_to_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
    return status.st_uid in (0, os.geteuid()) and not open_to_others


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
    """Whether indexes are to be kept there. A folder without one says that there were none to keep: debug info may be installed later."""
    try:
        return not any(place.suffix == _INDEX for place in folder.iterdir()) and folder.stat().st_mtime < time.time() - _AGAIN
    except OSError:
        return True


def _debug_file(file: Path) -> Optional[Path]:
    """Where a folder of debug files has that of this file (gdb manual, "Separate Debug Files"); None without a build-id."""
    build_id = read_build_id(file)
    return Path(".build-id", build_id[:2], f"{build_id[2:]}.debug") if build_id and len(build_id) > 2 else None


def has_debug_file(folder: Path) -> bool:
    """Whether a debug file is kept beside the index, where gdb can be told of it: colons part the folders that it is told of."""
    return ":" not in str(folder) and (folder / _DEBUG_FILES).is_dir()


def keep_debug_file(folder: Path, file: Path, root: Path) -> None:
    """Keep the debug file of this file that is under `root`, if it is compressed."""
    place = _debug_file(file) if not has_debug_file(folder) else None
    if place is None or not (root / place).is_file():
        return
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        (unfinished / place).parent.mkdir(mode=0o700, parents=True)
        if write_decompressed(root / place, unfinished / place):
            folder.mkdir(mode=0o700, exist_ok=True)
            (unfinished / _DEBUG_FILES).rename(folder / _DEBUG_FILES)
    except OSError:
        return  # another analysis was faster, or there is no room
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def give_up(folders: Iterable[Path]) -> None:
    """Leave the mark that there is nothing to keep in these folders, so that the next analysis does not lose the time again."""
    with suppress(OSError):
        for folder in folders:
            folder.mkdir(mode=0o700, exist_ok=True)


def bytecode_folder(cache: Path) -> Path:
    """For the Python inside gdb, as `sys.pycache_prefix`."""
    return cache / "bytecode"


def forget_old(cache: Path) -> None:
    """Remove what was used longest ago, what a gdb that was killed left, and the bytecode of too many scripts."""
    bytecode, now = bytecode_folder(cache), time.time()
    with suppress(OSError):
        used = {place: place.lstat().st_mtime for place in cache.iterdir() if place != bytecode}
        unfinished = {place for place in used if place.suffix}
        old = sorted(used.keys() - unfinished, key=used.__getitem__, reverse=True)[_MOST_FILES:]
        for place in (*old, *(place for place in unfinished if used[place] < now - _AGAIN)):
            shutil.rmtree(place, ignore_errors=True)
        if len(list(islice(bytecode.rglob("*.pyc"), _MOST_SCRIPTS + 1))) > _MOST_SCRIPTS:
            shutil.rmtree(bytecode, ignore_errors=True)
