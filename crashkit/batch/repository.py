"""Where a file that a crashed process names lies in a repository that is checked out here, maybe elsewhere than the process saw it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Optional

_INSTALLED = ("site-packages", "dist-packages")
_ROOTS = ("", "src", "lib", "python")
"""Folders of a repository that may hold its packages."""


class Repository:
    """A checked-out repository."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.find = lru_cache(maxsize=4096)(self._find)

    def _find(self, file: str, own: bool) -> Optional[str]:
        """The path below the root; None if the file is not the repository's.

        A container or a build folder sees the repository elsewhere, and a package may have been installed from it: then the longest end
        of the path counts that is a file of the repository. For a file name alone that is too little, unless it is the user's code.
        """
        path = PurePosixPath(file)
        if not path.parts or ".." in path.parts or "\0" in file:
            return None
        if path.is_absolute() and path.is_relative_to(self.root.as_posix()):
            inside = path.relative_to(self.root.as_posix())
            return inside.as_posix() if self._is_ours(inside) else None
        installed = [index for index, part in enumerate(path.parts) if part in _INSTALLED]
        if not own and not installed:
            return None
        parts = path.parts[installed[-1] + 1 :] if installed else path.parts[1 if path.is_absolute() else 0 :]
        for start in range(len(parts)):
            end = PurePosixPath(*parts[start:])
            if len(end.parts) == 1 and (installed or not own):
                return None
            if installed and start:
                return None
            for folder in _ROOTS:
                if self._is_ours(PurePosixPath(folder) / end):
                    return (PurePosixPath(folder) / end).as_posix()
        return None

    def _is_ours(self, inside: PurePosixPath) -> bool:
        """A file of the repository itself: not of a virtual environment that lies in it."""
        if any(part in (*_INSTALLED, ".git", "node_modules") for part in inside.parts):
            return False
        try:
            return (self.root / inside).is_file()
        except (OSError, ValueError):
            return False
