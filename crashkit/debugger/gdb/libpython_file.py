"""CPython's own gdb script, `libpython.py`: where it is for the interpreter that crashed.

It is never copied: it belongs to one version of CPython and lies beside it. It is run, and where it lies is what the core says: so
nobody but root and this user may be able to change it, as a core can name a path where anybody may write.
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

    Raises DebuggerError where the only one is of a user that is not trusted.
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
        message = f"{refused} was not run: others than root and this user may write it"
        raise DebuggerError(message, f"If you trust it: --libpython {refused}")
    return None


def is_trusted(path: Path) -> bool:
    """Whether nobody but root and this user can change what lies at this path, which has no symbolic links in it.

    Whoever may write a folder may replace what is in it; in a sticky one (/tmp) only what belongs to them.
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
