"""CPython's own gdb script, `libpython.py`: where it is for the interpreter that crashed.

It is never copied: it belongs to one version of CPython and lies beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Optional

from crashkit.evidence.interpreter import Interpreter
from crashkit.evidence.module_files import Finder, ModuleFile

_AUTO_LOAD = "/usr/share/gdb/auto-load"


def find_script(interpreter: Interpreter, executable: Optional[str], files: Mapping[str, ModuleFile], finder: Finder) -> Optional[Path]:
    """The script made for this interpreter, or None."""
    return next((path for path in _candidates(interpreter, executable, files, finder) if path.is_file()), None)


def _candidates(interpreter: Interpreter, executable: Optional[str], files: Mapping[str, ModuleFile], finder: Finder) -> Iterator[Path]:
    names = [name for name in (interpreter.module.path, executable) if name]
    if executable and interpreter.version:
        names.append(str(PurePosixPath(executable).with_name(f"python{interpreter.version}")))
        # A library in PREFIX/lib has its script beside PREFIX/bin/pythonX.Y.
        prefix = PurePosixPath(interpreter.module.path).parent.parent
        names.append(str(prefix / "bin" / f"python{interpreter.version}"))
    for name in names:
        for place in (f"{name}-gdb.py", f"{_AUTO_LOAD}{name}-gdb.py"):
            found = finder.source(place)
            if found:
                yield found
        file = files.get(name)
        if file and file.path:
            resolved = file.path.resolve()
            yield resolved.with_name(resolved.name + "-gdb.py")
            yield Path(f"{_AUTO_LOAD}{resolved}-gdb.py")
