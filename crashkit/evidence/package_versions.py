"""Versions of the packages that a process had loaded, from the metadata beside the very files that it used; nothing is imported.

A package that is merely installed is not told: it may be another environment's, or have nothing to do with the crash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.crashfolder.files import open_real

_IN_PACKAGES = re.compile(r"^(?P<folder>.*/(?:site|dist)-packages)/(?P<name>[^/]+)")
_TOP_LEVEL, _RECORD, _TORCH = "top_level.txt", "RECORD", Path("torch", "version.py")
_AT_START = frozenset({"_distutils_hack"})
"""What a `.pth` file imports into every process of an environment: it tells nothing of the package that it came with."""
_MOST_METADATA = 2000
_DEEPEST = 6
"""How many folders a file can be below the one that its package is in, where that has no known name."""
_MOST_TEXT = 1 << 16
_MOST_RECORD = 1 << 24

Locate = Callable[[str], Optional[Path]]
"""Where a file of the crashed system is on this machine."""


def package_paths(files: Iterable[str]) -> tuple[str, ...]:
    """What the files are part of: a package's folder or a single module, `/venv/lib/python3.11/site-packages/torch`."""
    found = (match[0] for path in files if (match := _IN_PACKAGES.match(path)))
    return tuple(dict.fromkeys(found))


def package_versions(files: Iterable[str], locate: Locate = Path) -> dict[str, str]:
    """Versions, by distribution name (lower case, hyphens), of the packages that contain these files; with torch, that of its `cuda`."""
    found: dict[str, str] = {}
    for _, here, module, distribution in _used(files, locate):
        if distribution is not None:
            found.setdefault(distribution.name, distribution.version)
        if module == "torch" and (cuda := _cuda(here)) is not None:
            found.setdefault("cuda", cuda)
    return found


def metadata_files(files: Iterable[str], locate: Locate = Path) -> dict[str, Path]:
    """The files from which `package_versions` knows the versions, by their paths in the crashed system: for another machine."""
    found: dict[str, Path] = {}
    for folder, here, module, distribution in _used(files, locate):
        told = _told(distribution.entry) if distribution is not None else None
        for file in (told, here / _TORCH if module == "torch" else None):
            if file is not None and file.is_file():
                found[f"{folder}/{file.relative_to(here)}"] = file
    return found


class _Distribution(NamedTuple):
    name: str
    """Lower case, hyphens."""
    version: str
    entry: Path
    """Its folder of metadata, or, of old ones, its file."""


def _used(files: Iterable[str], locate: Locate) -> Iterator[tuple[str, Path, str, Optional[_Distribution]]]:
    """The folder that holds each package (there and here), the module's name, and the distribution that it is of."""
    names: dict[str, dict[str, None]] = {}
    for path in files:
        for folder, name in _places(path):
            names.setdefault(folder, {})[name] = None
    for folder, within in names.items():
        here = locate(folder)
        if here is None:
            continue
        for name in within:
            # `_cffi_backend.cpython-311-x86_64-linux-gnu.so`; `numpy.libs` has what numpy brought with it.
            module = name.partition(".")[0]
            if module in _AT_START:
                continue
            found = _distributions(here).get(module) or _distributions(here).get(_normal(module))
            if found is not None or folder.endswith("-packages"):
                yield folder, here, module, found


def _places(path: str) -> Iterator[tuple[str, str]]:
    """Where the package may lie that the file is of, and its name there: `pip install --target` puts it into any folder."""
    if match := _IN_PACKAGES.match(path):
        yield match["folder"], match["name"]
        return
    parts = path.split("/")
    for depth in range(len(parts) - 1, max(1, len(parts) - 1 - _DEEPEST), -1):
        yield "/".join(parts[:depth]), parts[depth]


@lru_cache(maxsize=64)
def _distributions(folder: Path) -> dict[str, _Distribution]:
    """By the names of the modules that each distribution installed here."""
    found: dict[str, _Distribution] = {}
    try:
        metadata = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith((".dist-info", ".egg-info")))[:_MOST_METADATA]
    except OSError:
        return found
    for one in metadata:
        name, _, version = one.rpartition(".")[0].partition("-")
        if not version:
            continue
        # An egg-info's name goes on with the Python version: `name-1.0-py3.11.egg-info`.
        told = _Distribution(_normal(name), re.sub(r"-py\d.*$", "", version), folder / one)
        for module in (name, told.name, told.name.replace("-", "_"), *_top_levels(told.entry)):
            found.setdefault(module, told)
    return found


def _told(entry: Path) -> Optional[Path]:
    """What tells the modules of a distribution, or else any file that lets its folder be: the folder's name has the version."""
    files = (entry / _TOP_LEVEL, entry / _RECORD, entry / "METADATA", entry / "PKG-INFO", entry)
    return next((file for file in files if file.is_file()), None)


def _top_levels(entry: Path) -> list[str]:
    try:
        return _beginning(entry / _TOP_LEVEL).split()
    except OSError:
        return _recorded(entry)


def _recorded(entry: Path) -> list[str]:
    """The first parts of the files in RECORD, for build tools that write no top_level.txt."""
    try:
        lines = _beginning(entry / _RECORD, _MOST_RECORD).splitlines()
    except OSError:
        return []
    return sorted({line.partition(",")[0].partition("/")[0].partition(".")[0] for line in lines if not line.startswith((".", "/"))} - {""})


def _beginning(path: Path, most: int = _MOST_TEXT) -> str:
    """The beginning of a file of which nobody knows who made it. Raises OSError, also where it is no regular file."""
    with open_real(path) as file:
        return file.read(most).decode("utf-8", "replace")


def _normal(name: str) -> str:
    """As PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _cuda(folder: Path) -> Optional[str]:
    """The CUDA that torch was built for; its wheel's version has it only in the local part (+cu130)."""
    try:
        text = _beginning(folder / _TORCH)
    except OSError:
        return None
    match = re.search(r"^cuda\b[^=]*= '([\d.]+)'", text, re.MULTILINE)
    return match.group(1) if match else None
