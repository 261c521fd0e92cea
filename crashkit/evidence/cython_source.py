"""The sources of Cython's functions, where no line table names them: compiled without `emit_linenums`, with or without `-g`.

A module made by Cython has the names of its sources among its constants, for its tracebacks (`__pyx_f`, Cython/Compiler/ModuleNode.py).
The line is not known: the line table, if there is one, is that of the generated C.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Optional

from msgspec.structs import replace

from crashkit.evidence.module_files import ModuleFile
from crashkit.model import Crash, NativeFrame, Thread
from crashkit.naming.cython import cython_module, lacks_source

_LARGEST = 64 << 20
_LONGEST = 4096
_SUFFIXES = (".pyx", ".py")
_PATH = re.compile(rb"[\w./+-]+", re.ASCII)


def with_cython_sources(crash: Crash, files: Mapping[str, ModuleFile]) -> Crash:
    """The crash with the source, without a line, as the file of each frame of Cython's that has none. `files`: those of the modules."""

    @cache
    def source(module: str) -> Optional[str]:
        found = files.get(module)
        return _source(found.path, cython_module(module)) if found is not None and found.path is not None else None

    if not any(_lacking(thread) for thread in crash.threads):
        return crash
    return replace(crash, threads=tuple(_with_sources(thread, source) if _lacking(thread) else thread for thread in crash.threads))


def _lacking(thread: Thread) -> bool:
    return any(isinstance(frame, NativeFrame) and frame.module and lacks_source(frame) for frame in thread.frames)


def _with_sources(thread: Thread, source: Callable[[str], Optional[str]]) -> Thread:
    frames = []
    for frame in thread.frames:
        named = source(frame.module) if isinstance(frame, NativeFrame) and frame.module and lacks_source(frame) else None
        frames.append(replace(frame, file=named, line=None) if named is not None else frame)
    return replace(thread, frames=tuple(frames))


def _source(path: Path, name: str) -> Optional[str]:
    """The module's source, as it was named where it was compiled; None if its constants name none, or several."""
    try:
        data = path.read_bytes() if path.stat().st_size <= _LARGEST else b""
    except OSError:
        return None
    found = {text for suffix in _SUFFIXES for text in _constants(data, f"{name}{suffix}".encode())}
    return found.pop().decode() if len(found) == 1 else None


def _constants(data: bytes, name: bytes) -> Iterator[bytes]:
    """The constants that are this file's name, or a path to it."""
    at = data.find(name + b"\0")
    while at >= 0:
        begins = data.rfind(b"\0", max(0, at - _LONGEST), at) + 1
        text = data[begins : at + len(name)]
        if begins and _PATH.fullmatch(text) and text[: at - begins][-1:] in (b"", b"/"):
            yield text
        at = data.find(name + b"\0", at + 1)
