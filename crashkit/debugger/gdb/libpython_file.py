"""CPython's own gdb script, `libpython.py`: where it is for the interpreter that crashed.

It is never copied: it belongs to one version of CPython and lies beside it. It is run, and where it lies is what the core says: so
it must belong to root or to this user, as a core can name a path where anybody may write.
"""

from __future__ import annotations

import os
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
            status = path.stat()
        except OSError:
            continue
        if not stat.S_ISREG(status.st_mode):
            continue
        if status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH:
            return path
        refused = refused or path
    if refused is not None:
        message = f"{refused} was not run: others than root and this user may write it"
        raise DebuggerError(message, f"If you trust it: --libpython {refused}")
    return None


def _candidates(interpreter: Interpreter, executable: Optional[str], files: Mapping[str, ModuleFile], finder: Finder) -> Iterator[Path]:
    names = [name for name in (interpreter.module.path, executable) if name]
    if executable and interpreter.version:
        program = f"python{interpreter.version}{'t' if interpreter.free_threaded else ''}"
        names.append(str(PurePosixPath(executable).with_name(program)))
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
            yield resolved.with_name(resolved.name + "-gdb.py")
            yield Path(f"{_AUTO_LOAD}{resolved}-gdb.py")
