"""CPython's own gdb script, `libpython.py`: how to find the one for the crashed interpreter.

It is never copied: it belongs to one version of CPython and is installed beside it. It is run, and the core names its path: so only
root and this user may be able to change it, because a core can name a path that anyone can write to.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Optional

from crashkit.errors import DebuggerError
from crashkit.evidence.interpreter import Interpreter
from crashkit.evidence.module_files import Finder, ModuleFile

_AUTO_LOAD = "/usr/share/gdb/auto-load"


def find_script(interpreter: Interpreter, executable: Optional[str], files: Mapping[str, ModuleFile], finder: Finder) -> Optional[Path]:
    """The script made for this interpreter, or None.

    Raises DebuggerError if the only one found can be written by other users.
    """
    refused = None
    for path in _candidates(interpreter, executable, files, finder):
        try:
            resolved = path.resolve(strict=True)
            if not resolved.is_file():
                continue
            if is_trusted(resolved):
                return resolved
        except (OSError, RuntimeError):
            continue
        refused = refused or path
    if refused is not None:
        message = f"{refused} was not run: users other than root and you can write to it"
        raise DebuggerError(message, f"If you trust it, pass --libpython {refused}")
    return None


def is_trusted(path: Path) -> bool:
    """Whether only root and this user can change the file at this path, which contains no symbolic links.

    A user who can write to a folder can replace any file in it, but in a sticky folder (/tmp) only their own.
    Raises OSError.
    """
    return not _others_may_write(path.stat()) and not any(_others_may_replace_in(folder.stat()) for folder in path.parents)


def _others_may_replace_in(folder: os.stat_result) -> bool:
    if folder.st_mode & stat.S_ISVTX:
        return folder.st_uid not in (0, os.geteuid())
    return _others_may_write(folder)


def _others_may_write(status: os.stat_result) -> bool:
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_own_group(status.st_gid)


def _is_own_group(gid: int) -> bool:
    """root's, or this user's private one: of the same name and with no other members, as most distributions make them."""
    if gid == 0:
        return True
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _candidates(interpreter: Interpreter, executable: Optional[str], files: Mapping[str, ModuleFile], finder: Finder) -> Iterator[Path]:
    names = [name for name in (interpreter.module.path, executable) if name]
    if executable and interpreter.version:
        program = f"python{interpreter.version}{'t' if interpreter.free_threaded else ''}"
        names.append(str(PurePosixPath(executable).parent / program))
        # A library in PREFIX/lib has its script beside PREFIX/bin/pythonX.Y.
        prefix = PurePosixPath(interpreter.module.path).parent.parent
        names.append(str(prefix / "bin" / program))
    for name in names:
        for place in (f"{name}-gdb.py", f"{_AUTO_LOAD}{name}-gdb.py"):
            found = finder.source(place)
            if found:
                yield found
        file = files.get(name)
        if file and file.path:
            resolved = Path(os.path.realpath(file.path))
            yield resolved.parent / (resolved.name + "-gdb.py")
            yield Path(f"{_AUTO_LOAD}{resolved}-gdb.py")
