"""Recognises the loader of a program that PyInstaller packed into one file: it unpacks the program, starts it as its child, and waits.

If a signal ends the child, the loader sends itself the same one (bootloader/src/pyi_main.c, `pyi_main_onefile_parent`). Its core says
nothing of the crash, and replaces the child's where both are called `core`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from crashkit.crashfolder.files import open_regular
from crashkit.evidence.core.describe import Scene
from crashkit.model import SoftError

# At the end of the archive that is appended to the loader (PyInstaller/archive/readers.py, CArchiveReader).
_COOKIE = b"MEI\014\013\012\013\016"
_END = 8192


def core_of_loader(scene: Scene) -> Optional[SoftError]:
    """What to say if the core is such a loader's; None for any other."""
    signal, process = scene.crash.signal, scene.crash.process
    main = process.executable if process is not None else None
    file = scene.files.get(main) if main else None
    if signal is None or signal.reason not in ("raised", "abort") or scene.interpreter is not None or file is None or file.path is None:
        return None
    if not is_packed(file.path):
        return None
    message = f"this is the core of a PyInstaller loader, which sent itself the {signal.name} that had ended the program, its child"
    hint = "Get the child's core: crashkit run -- the program, or give each core a name of its own (sysctl kernel.core_uses_pid=1)."
    return SoftError(stage="evidence", message=message, hint=hint)


def is_packed(path: Path) -> bool:
    """Whether a program of PyInstaller ends the file. Never raises."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _END))
            return _COOKIE in file.read(_END)
    except OSError:
        return False
