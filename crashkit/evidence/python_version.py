"""The full version of CPython: from the memory of the process, or from the file of its interpreter. Needs no symbols.

`Py_GetVersion` keeps its text ("3.13.5 (main, Jun 25 2025, 18:55:22) [GCC 14.2.0]") in the interpreter's own memory, built from a
literal ("3.13.5") in its file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from crashkit.crashfolder.files import open_real

if TYPE_CHECKING:  # `crashkit run` asks for versions, too: what reads a core would take a third of its start
    from crashkit.evidence.core.core import Core
    from crashkit.evidence.core.modules import LoadedModule

_MOST_BYTES = 64 << 20
_RELEASE = rb"(%s\.\d{1,3}(?:(?:a|b|rc)\d{1,2})?\+?)"
_INSIDE = tuple(bytes([character]) for character in b"0123456789.")
"""What stands before a number that is part of another one."""
_ANY_MINOR = rb"[23]\.\d{1,2}"
_TEXT = _RELEASE + rb"(?: \|[^()\0]{1,60})? \([^()\0]{1,80}\) \n?\[\w"
_LITERAL = _RELEASE + rb"(?: \|[^()\0]{1,60})?\0"
"""Anaconda's distribution adds its name: "3.11.7 | packaged by conda-forge |"."""


def version_in_core(core: Core, interpreter: LoadedModule, minor: Optional[str]) -> Optional[str]:
    """The full version from the process's memory; None if not found or ambiguous. `minor`: such as 3.13, if known."""
    end, room = interpreter.end, _MOST_BYTES
    for mapped in core.space:
        if not interpreter.base <= mapped.start <= end or room <= 0:
            continue
        end = max(end, mapped.end)  # variables without an initial value lie behind what was mapped of the file
        found = set()
        for start, data in core.scan(mapped.start, min(mapped.end, mapped.start + room)):
            room -= len(data)
            for text in _texts(_TEXT, minor, data):
                found.add(text[1])
                core.read(start + text.start(), len(text[0]))
        if len(found) == 1:
            return found.pop().decode("ascii")
    return None


def version_in_file(path: Path, minor: Optional[str]) -> Optional[str]:
    """The full version from the interpreter's file; None if not found or ambiguous. `minor`: such as 3.13, if known."""
    from crashkit.elf.file import open_elf  # as late as possible, for the same reason

    elf = open_elf(path)
    constants = elf.section(".rodata") if elf else None
    try:
        with open_real(path) as file:
            if constants:
                file.seek(constants.offset)
            return _only(_LITERAL, minor, file.read(min(constants.size, _MOST_BYTES) if constants else _MOST_BYTES))
    except (OSError, OverflowError, ValueError):
        return None


def _only(pattern: bytes, minor: Optional[str], data: bytes) -> Optional[str]:
    """The only version found in the bytes; None if there is none or more than one."""
    found = {text[1] for text in _texts(pattern, minor, data)}
    return found.pop().decode("ascii") if len(found) == 1 else None


def _texts(pattern: bytes, minor: Optional[str], data: bytes) -> Iterator[re.Match[bytes]]:
    wanted = re.escape(minor).encode("ascii", "replace") if minor else _ANY_MINOR
    found = re.finditer(pattern % wanted, data)
    # Not as part of the pattern: a search for what begins with a known text is ten times as fast.
    return (text for text in found if data[max(text.start() - 1, 0) : text.start()] not in _INSIDE)
