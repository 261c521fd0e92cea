"""CPython's own gdb script, `libpython.py`: how to find the one for the crashed interpreter.

It is never copied: it belongs to one version of CPython and is installed beside it. It is code that gdb runs, so only one of this
machine is taken: not from files that came with the crash, which belong to whoever unpacked them, and not from where a group or
everybody can write.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Optional

import msgspec

from crashkit import isolation
from crashkit.evidence.interpreter import Interpreter
from crashkit.evidence.module_files import Finder

_AUTO_LOAD = "/usr/share/gdb/auto-load"
_PREFIXES = ("/usr", "/usr/local")
_LONGEST_LINE = 256
_VERSION = re.compile(r"python(\d+\.\d+)")


class Choice(msgspec.Struct, frozen=True):
    """The script to run, and one that was refused."""

    script: Optional[Path] = None
    refused: Optional[Path] = None
    reason: str = ""
    """Why it was refused."""


def find_script(interpreter: Interpreter, executable: Optional[str], finder: Finder, foreign: Sequence[Path] = ()) -> Choice:
    """The script of this machine for this interpreter. What lies in the finder's folders or in `foreign` came with the crash.

    Where another machine crashed, the version in the script's name must be the interpreter's.
    """
    refused: Optional[Path] = None
    reason = ""
    came_with_it = _here([*finder.given_folders(), *foreign])
    names = _names(interpreter, executable)
    for path in (*_of_crashed_system(names, finder), *_of_this_machine(names, interpreter)):
        try:
            resolved = path.resolve(strict=True)
            if not resolved.is_file() or not _fits(resolved, path, interpreter, bool(came_with_it)) or _is_for_a_shell(resolved):
                continue
            if any(one.is_relative_to(folder) for one in (path, resolved) for folder in came_with_it):
                why = "files that came with the crash are not run"
            elif not is_trusted(resolved):
                why = "it or a folder above it is writable by others, or belongs to another user"
            else:
                return Choice(resolved, refused, reason)
        except (OSError, RuntimeError, ValueError):
            continue
        if refused is None:
            refused, reason = path, why
    return Choice(None, refused, reason)


def is_trusted(path: Path) -> bool:
    """Whether only root and this user can change or replace the file at this path, which contains no symbolic links. Raises OSError.

    Neither it nor any folder above may be writable by a group or by everybody, /tmp included: its sticky bit keeps others from
    replacing a file, but what lies there was often unpacked from somewhere.
    """
    return all(_only_root_and_we_write(one.stat()) for one in (path, *path.parents))


def _only_root_and_we_write(status: os.stat_result) -> bool:
    # An access control list that lets others write shows in the bits of the group.
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _here(folders: Sequence[Path]) -> list[Path]:
    """These folders as they are named and as they are resolved; `/` is this machine, unless it has another name (/proc/PID/root)."""
    named = [folder.absolute() for folder in folders if folder.absolute() != Path("/")]
    return [*named, *(folder for folder in (Path(os.path.realpath(one)) for one in named) if folder != Path("/"))]


def _names(interpreter: Interpreter, executable: Optional[str]) -> list[str]:
    """Paths in the crashed system of what a script may be named after."""
    names = [name for name in (interpreter.module.path, executable) if name]
    if executable and (program := _program(interpreter)):
        names.append(str(PurePosixPath(executable).parent / program))
        # A library in PREFIX/lib has its script beside PREFIX/bin/pythonX.Y.
        names.append(str(PurePosixPath(interpreter.module.path).parent.parent / "bin" / program))
    return names


def _program(interpreter: Interpreter) -> Optional[str]:
    return f"python{interpreter.version}{'t' if interpreter.free_threaded else ''}" if interpreter.version else None


def _of_crashed_system(names: Sequence[str], finder: Finder) -> Iterator[Path]:
    """Scripts where the core says, in the folders that stand for the crashed system."""
    for name in names:
        for place in (f"{name}-gdb.py", f"{_AUTO_LOAD}{name}-gdb.py"):
            found = finder.source(place)
            if found:
                yield found.absolute()


def _of_this_machine(names: Sequence[str], interpreter: Interpreter) -> Iterator[Path]:
    program = _program(interpreter)
    installed = [f"{prefix}/bin/{program}" for prefix in (*_PREFIXES, sys.base_prefix)] if program else []
    in_path = isolation.find_program(program) if program else None
    for name in (*names, *filter(None, [in_path]), *installed):
        if name.startswith("/") and "\0" not in name:
            for one in dict.fromkeys((name, os.path.realpath(name))):
                yield Path(f"{one}-gdb.py")
                yield Path(f"{_AUTO_LOAD}{one}-gdb.py")


def _is_for_a_shell(script: Path) -> bool:
    """pyenv puts a program of its own in the path for everything beside an interpreter, this script too. Raises OSError."""
    with script.open("rb") as file:
        first = file.readline(_LONGEST_LINE)
    return first.startswith(b"#!") and b"python" not in first


def _fits(script: Path, found_as: Path, interpreter: Interpreter, is_other_machine: bool) -> bool:
    """Whether the version in its name is the interpreter's; a name without one counts only where this machine crashed."""
    versions = [found[1] for found in (_VERSION.search(path.name) for path in (script, found_as)) if found]
    if not versions or interpreter.version is None:
        return not is_other_machine
    return versions[0] == interpreter.version
