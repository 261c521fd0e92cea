"""Options that keep gdb from loading anything on its own, and the scripts that run inside it."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from crashkit import isolation

SAFE_START = (
    *("-nx", "-q"),
    # No scripts beside programs and libraries, no pretty-printers, no server of debug info, no libraries before we say so.
    *("-iex", "set auto-load no", "-iex", "set debuginfod enabled off", "-iex", "set auto-solib-add off"),
)

DEBUG_ROOT = "/usr/lib/debug"
"""Where debug files lie on a machine, gdb's `debug-file-directory` (gdb manual, "Separate Debug Files")."""

_CUDA_GDB = ("cuda-gdb", "/usr/local/cuda/bin/cuda-gdb")
"""NVIDIA's gdb, which images with CUDA have where they have no other: it reads CPU cores as gdb does."""


def gdb_program(name: str = "gdb") -> Optional[str]:
    """The path of that gdb; where there is no `gdb`, of cuda-gdb. None if there is neither."""
    names = (name, *_CUDA_GDB) if name == "gdb" else (name,)
    return next(filter(None, map(isolation.find_program, names)), None)


def gdb_file(name: str) -> Optional[Path]:
    """The file of this name in `gdb_scripts`, inside the package or, in a checkout, next to it; None if it is missing."""
    package = Path(__file__).resolve().parent
    folders = (package / "gdb_scripts", package.parent / "gdb_scripts")
    return next((folder / name for folder in folders if (folder / name).is_file()), None)
