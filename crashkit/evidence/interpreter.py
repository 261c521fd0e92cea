"""Finds the module of a process that contains CPython, and its version as far as names show it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Optional

import msgspec

from crashkit.evidence.core.modules import LoadedModule
from crashkit.regex import regex

# ABI flags: t free-threaded (3.13), d debug, m pymalloc (up to 3.7).
_LIBRARY = regex(r"libpython(\d+\.\d+)([tdm]*)\.so")
_EXECUTABLE = regex(r"python(\d+(?:\.\d+)?)?([tdm]*)(?:-dbg)?$")
_EXTENSION = regex(r"\.cpython-(\d)(\d+)([tdm]*)-|\.abi3\.so$|/python(\d+\.\d+)/lib-dynload/")


class Interpreter(msgspec.Struct, frozen=True):
    """The module that contains CPython, and its version as far as names show it."""

    module: LoadedModule
    version: Optional[str]
    """Major and minor, such as 3.11."""
    free_threaded: bool

    @property
    def is_too_old(self) -> bool:
        """Whether it is Python 2, which neither libpython.py (as used here) nor PyStack can read."""
        return self.version is not None and self.version.startswith("2.")


def find_interpreter(modules: Sequence[LoadedModule], executable: Optional[str]) -> Optional[Interpreter]:
    """libpython if one is mapped; else the executable, if its name or the mapped extension modules indicate Python."""
    for module in modules:
        found = _LIBRARY.match(PurePosixPath(module.path).name)
        if found:
            return Interpreter(module, found[1], "t" in found[2])
    main = next((module for module in modules if module.path == executable), None)
    if main is None:
        return None
    version, free_threaded = _of_extensions(modules)
    found = _EXECUTABLE.match(PurePosixPath(main.path).name)
    if found:
        own = found[1] if found[1] and "." in found[1] else None
        return Interpreter(main, own or version, "t" in found[2] or free_threaded)
    return Interpreter(main, version, free_threaded) if version else None


def _of_extensions(modules: Sequence[LoadedModule]) -> tuple[Optional[str], bool]:
    for module in modules:
        found = _EXTENSION.search(module.path)
        if found and found[1]:
            return f"{found[1]}.{found[2]}", "t" in found[3]
        if found and found[4]:
            return found[4], False
    return None, False
