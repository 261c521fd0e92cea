"""Names of the parts of functions that the compiler moved elsewhere, where a module has no symbols for them: of the C++ runtime.

What throws, rethrows or ends the program is such a part of an exported function (`__cxa_rethrow`), as it is rarely executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Optional

from msgspec.structs import replace

from crashkit.arch import Architecture
from crashkit.evidence.core.modules import LoadedModule, ModuleIndex
from crashkit.model import Crash, Frame, NativeFrame
from crashkit.regex import regex
from crashkit.stacks.unwinding import Unwinding

_RUNTIME = regex(r"/libstdc\+\+\.so")
_FUNCTIONS = ("__cxa_rethrow", "__cxa_throw", "__cxa_end_catch", "__gxx_personality_v0", "__cxa_call_unexpected")
"""Exported functions that call std::terminate or throw in such a part (libstdc++-v3/libsupc++)."""


def with_moved_parts(
    crash: Crash, architecture: Architecture, modules: Sequence[LoadedModule], files: Mapping[str, Optional[Path]]
) -> Crash:
    """The crash with names for the nameless frames of the C++ runtime that are parts of its functions. `files`: those of the modules."""
    if not any(_is_nameless(frame) for thread in crash.threads for frame in thread.frames):
        return crash
    index = ModuleIndex(modules)
    unwinding = Unwinding(index, files, architecture)

    @cache
    def functions(base: int) -> dict[int, str]:
        return {start: name for name in _FUNCTIONS for start in unwinding.parts(base, name, calls_last=False)}

    def named(frame: Frame) -> Frame:
        if not isinstance(frame, NativeFrame) or frame.pc is None or not _is_nameless(frame):
            return frame
        # The byte before a return address lies in the calling function for sure.
        place = frame.pc if frame.trust == "context" else frame.pc - 1
        module, start = index.at(place), unwinding.function_start(place)
        return replace(frame, function=functions(module.base).get(start)) if module is not None and start is not None else frame

    return replace(crash, threads=tuple(replace(thread, frames=tuple(map(named, thread.frames))) for thread in crash.threads))


def _is_nameless(frame: Frame) -> bool:
    return isinstance(frame, NativeFrame) and not frame.function and _RUNTIME.search(frame.module or "") is not None
