"""The crashed system's files on the machine that analyses the core.

Its root folder (`--sysroot`) and prefixes of its paths (`--path-map FROM=TO`) are mapped to local folders, like mounts. Links
among these files refer to paths of the crashed system: they are resolved there and never lead outside.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Optional

import msgspec

from crashkit.limits import LONGEST_PATH, MOST_PATH_PARTS

_MAX_LINKS = 40


class PathMap(msgspec.Struct, frozen=True):
    """A prefix of the crashed system's paths, and the local folder that contains these files."""

    before: str
    after: Path

    def parts(self) -> tuple[str, ...]:
        """The components of `before`, without slashes."""
        return _parts(self.before)


class FileTree(msgspec.Struct, frozen=True):
    """Maps paths of the crashed system to paths on this machine."""

    sysroot: Optional[Path] = None
    """None: the crashed system is this machine."""
    maps: tuple[PathMap, ...] = ()

    def locate(self, path: str) -> Optional[Path]:
        """The local path for the crashed system's absolute `path`, with links resolved; the file need not exist.

        None for a relative path, a path with a null byte, a path longer than files have (`limits`), and a loop of links.
        """
        if not path.startswith("/") or "\0" in path or len(path) > LONGEST_PATH:
            return None
        if self.sysroot is None and not self.maps:
            return Path(path)
        if len(_parts(path)) > MOST_PATH_PARTS:
            return None
        done, todo = self._start(_parts(path))
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                del done[-1:]
                continue
            try:
                target = str(self._here([*done, part]).readlink())
            except (OSError, ValueError):
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS or len(target) + len(todo) > LONGEST_PATH:
                return None
            rest = [*_parts(target), *reversed(todo)]
            done, todo = self._start(rest) if target.startswith("/") else (done, rest[::-1])
        return self._here(done)

    def _start(self, parts: list[str] | tuple[str, ...]) -> tuple[list[str], list[str]]:
        """Parts that need no look because a map names them, and the rest in reverse."""
        mapped = self._map(parts)
        known = len(mapped.parts()) if mapped else 0
        return list(parts[:known]), list(parts[known:])[::-1]

    def _map(self, parts: list[str] | tuple[str, ...]) -> Optional[PathMap]:
        fitting = [pair for pair in self.maps if tuple(parts[: len(pair.parts())]) == pair.parts()]
        return max(fitting, key=lambda pair: len(pair.parts()), default=None)

    def _here(self, parts: list[str]) -> Path:
        mapped = self._map(parts)
        if mapped:
            return mapped.after.joinpath(*parts[len(mapped.parts()) :])
        return (self.sysroot or Path("/")).joinpath(*parts)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in PurePosixPath(path).parts if part.strip("/"))
