"""Where the files that run inside gdb lie: in the package when installed, beside it in a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Optional


def gdb_file(name: str) -> Optional[Path]:
    """The file of this name in `gdb_scripts`; None where the installation lacks it."""
    package = Path(__file__).resolve().parent
    folders = (package / "gdb_scripts", package.parent / "gdb_scripts")
    return next((folder / name for folder in folders if (folder / name).is_file()), None)
