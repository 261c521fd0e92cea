"""Finds the files of the crashed process's modules on the machine that analyses the core.

Paths in a core are untrusted: they may be anything, and inside a sysroot their links are resolved in that root.
A file is used only if its build-id matches the core's.
"""

from __future__ import annotations

import copy
import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Optional

import msgspec

from crashkit import isolation
from crashkit.elf.file import alternate_debug_file, has_debug_symbols, holds_code, read_build_id
from crashkit.evidence.file_tree import FileTree, PathMap
from crashkit.gdb_files import DEBUG_ROOT

_DELETED = " (deleted)"
_NO_FILES = ("/dev/", "/proc/", "/sys/")
_MAX_SEARCHED_FILES = 5000
_DEBUGINFOD_DEADLINE = 90


class ModuleFile(msgspec.Struct, frozen=True, dict=True):
    """The result of the search for one module's file."""

    state: str
    """found (build-ids agree), unverified (a file exists, but the core does not contain the build-id),
    mismatch (the file is a different build), missing."""
    path: Optional[Path] = None
    """The file to load; None for mismatch and missing."""
    debug: Optional[Path] = None
    """The separate debug file with the same build-id."""
    detail: Optional[str] = None
    """What is wrong, in one line."""
    hint: Optional[str] = None
    other: Optional[Path] = None
    """For mismatch: the file of the different build."""


class Finder:
    """Searches for module files, in this order.

    - `extra_dirs`, if the build-id is known: folders with `.build-id/xx/yyyy.debug`, the same tree, or loose files
    - `path_maps`: (prefix in the core, folder here), the longest prefix first
    - `sysroot`: the crashed system's root folder; without one, the path itself
    - `extra_dirs`, if the build-id is not known
    - debuginfod, if enabled: only if the build-id is known and nothing else was found

    `working_folder` is that of the process, by which relative names of sources count; "" where it is not known.
    """

    def __init__(
        self,
        sysroot: Optional[Path] = None,
        path_maps: Sequence[tuple[str, Path]] = (),
        extra_dirs: Sequence[Path] = (),
        debuginfod: bool = False,
        working_folder: str = "",
    ) -> None:
        self.working_folder = working_folder
        self.tree = FileTree(sysroot, tuple(PathMap(*pair) for pair in path_maps))
        self.extra_dirs = tuple(extra_dirs)
        self.debuginfod = debuginfod

    def of_process_in(self, folder: str) -> Finder:
        """The same for a process with this working folder."""
        found = copy.copy(self)
        found.working_folder = folder
        return found

    def find(self, path: str, build_id: Optional[str]) -> ModuleFile:
        """The file of the module that the core names `path`; `build_id` in hexadecimal, None if the core does not contain it."""
        path = path.removesuffix(_DELETED)
        other: Optional[tuple[Path, Optional[str]]] = None
        for candidate in self._candidates(path, build_id):
            if not _is_file(candidate):
                continue
            if build_id is None:
                return ModuleFile("unverified", candidate, debug=self._debug_file(path, read_build_id(candidate), candidate))
            there = read_build_id(candidate)
            if there == build_id:
                return ModuleFile("found", candidate, debug=self._debug_file(path, build_id, candidate))
            other = other or (candidate, there)
        if build_id and (fetched := self._fetch("executable", build_id)):
            return ModuleFile("found", fetched, debug=self._debug_file(path, build_id, fetched))
        debug = self._debug_file(path, build_id, None)
        if other:
            detail = f"{other[0]} is a different build: its build-id is {other[1] or 'missing'}, the core has {build_id}"
            return ModuleFile("mismatch", debug=debug, detail=detail, hint=_hint(path), other=other[0])
        return ModuleFile("missing", debug=debug, detail=f"{path} is not on this machine", hint=_hint(path))

    def shared_debug_file(self, debug: Path) -> Optional[Path]:
        """The file that a debug file shares with others (dwz), if there is one and it is here."""
        build_id = alternate_debug_file(debug)
        if build_id is None:
            return None
        found = (place for place in self._debug_candidates("", build_id) if _is_file(place) and read_build_id(place) == build_id)
        return next(found, None)

    def given_folders(self) -> list[Path]:
        """The folders whose files are the crashed system's, not this machine's."""
        given = [self.tree.sysroot, *(pair.after for pair in self.tree.maps), *self.extra_dirs]
        return [folder for folder in given if folder is not None]

    def source(self, path: str) -> Optional[Path]:
        """The file at `path` of the crashed system (Python source, libpython.py), whose build cannot be verified."""
        return next((place for place in self._places(path.removesuffix(_DELETED)) if _is_file(place)), None)

    def folder(self, path: str) -> Optional[Path]:
        """The folder at `path` of the crashed system."""
        return next((place for place in self._places(path) if place.is_dir()), None)

    def _places(self, path: str) -> Iterator[Path]:
        """Local paths for a path of the crashed system: through the path maps first, then without them."""
        if path.startswith(_NO_FILES):
            return
        trees = (self.tree, FileTree(self.tree.sysroot)) if self.tree.maps else (self.tree,)
        yield from filter(None, (tree.locate(path) for tree in trees))

    def _candidates(self, path: str, build_id: Optional[str]) -> Iterator[Path]:
        if build_id is None:
            yield from self._places(path)
        for folder in self.extra_dirs:
            yield from filter(None, (FileTree(folder).locate(path),))
        name = PurePosixPath(path).name
        yield from (file for file in self._loose_files if file.name == name)
        if build_id is not None:
            yield from (file for file in self._loose_builds.get(build_id, ()) if holds_code(file))
            yield from self._places(path)

    def _debug_file(self, path: str, build_id: Optional[str], module: Optional[Path]) -> Optional[Path]:
        """The separate debug file of this build."""
        if not build_id:
            return None
        for candidate in self._debug_candidates(path, build_id):
            if candidate != module and _is_file(candidate) and read_build_id(candidate) == build_id and has_debug_symbols(candidate):
                return candidate
        if not self.debuginfod or (module is not None and has_debug_symbols(module)):
            return None
        return self._fetch("debuginfo", build_id)

    def _debug_candidates(self, path: str, build_id: str) -> Iterator[Path]:
        by_id = f"/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
        for name in (DEBUG_ROOT + by_id, f"{DEBUG_ROOT}{path}.debug"):
            yield from self._places(name)
        yield Path(DEBUG_ROOT + by_id)
        for place in self._places(path):
            yield place.parent / (place.name + ".debug")
            yield place.parent / ".debug" / (place.name + ".debug")
        for folder in self.extra_dirs:
            yield from filter(None, (FileTree(folder).locate(name) for name in (by_id, DEBUG_ROOT + by_id)))
        yield from self._loose_builds.get(build_id, ())

    @cached_property
    def _loose_files(self) -> list[Path]:
        """Every file below the extra folders, the nearest first, bounded."""
        files: list[Path] = []
        for top in self.extra_dirs:
            for folder, _, names in os.walk(top):
                files.extend(Path(folder, name) for name in sorted(names))
                if len(files) > _MAX_SEARCHED_FILES:
                    return files[:_MAX_SEARCHED_FILES]
        return files

    @cached_property
    def _loose_builds(self) -> dict[str, list[Path]]:
        builds: dict[str, list[Path]] = {}
        for file in self._loose_files:
            if build_id := read_build_id(file):
                builds.setdefault(build_id, []).append(file)
        return builds

    def _fetch(self, kind: str, build_id: str) -> Optional[Path]:
        """Ask the debuginfod servers of this user (DEBUGINFOD_URLS); the client caches downloads."""
        client = isolation.find_program("debuginfod-find") if self.debuginfod else None
        if not client:
            return None
        command = [client, kind, build_id]
        try:
            done = isolation.run(command, _DEBUGINFOD_DEADLINE, keep=("DEBUGINFOD_",))
        except (OSError, subprocess.TimeoutExpired):
            return None
        fetched = Path(done.stdout.strip())
        return fetched if done.returncode == 0 and _is_file(fetched) and read_build_id(fetched) == build_id else None


def _hint(path: str) -> str:
    name = PurePosixPath(path).name
    return f"provide the crashed system's files: --sysroot DIR, --path-map FROM=TO, or a folder that contains its {name}"


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False
