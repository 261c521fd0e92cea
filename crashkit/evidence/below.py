"""Cores in the subfolders of a folder that somebody named as evidence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from crashkit.crashfolder.files import open_regular
from crashkit.elf.headers import ET_CORE, of_file, read_header
from crashkit.evidence.input import compression_of

DEEPEST = 4
"""Levels of folders: `cores/app/2026-11-22/core.1234`."""
MOST_ENTRIES = 5000
_HEAD = 16


class Below(msgspec.Struct, frozen=True):
    """The cores that were found, by name."""

    cores: tuple[Path, ...]
    all_seen: bool
    """False where there are more entries or deeper folders than are looked at."""


def cores_below(folder: Path) -> Below:
    """Cores in the subfolders of the folder, compressed ones by their names; links are not followed. Never raises."""
    found: list[Path] = []
    seen, deeper = 0, False
    level = [folder]
    for depth in range(DEEPEST + 1):
        below: list[Path] = []
        for each in level:
            for entry in _entries(each):
                seen += 1
                if seen > MOST_ENTRIES:
                    return Below(tuple(sorted(found)), False)
                if entry.is_dir(follow_symlinks=False):
                    below.append(Path(entry.path))
                elif depth and entry.is_file(follow_symlinks=False) and _is_core(Path(entry.path)):
                    found.append(Path(entry.path))
        level, deeper = below, bool(below)
    return Below(tuple(sorted(found)), not deeper)


def is_core(path: Path) -> bool:
    """Whether a file is a core, or a compressed one by its name. Never raises."""
    return path.is_file() and _is_core(path)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError:
        return


def _is_core(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            if "core" in path.name.lower() and compression_of(file.read(_HEAD)) is not None:
                return True
            header = read_header(of_file(file))
    except OSError:
        return False
    return header is not None and header.kind == ET_CORE
