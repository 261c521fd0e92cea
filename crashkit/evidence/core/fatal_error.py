"""What the interpreter said in its fatal error, also where it is stripped: from what the functions that print it were called with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

import msgspec

from crashkit.arch import Architecture
from crashkit.evidence.core.arguments import Read, argument
from crashkit.evidence.core.walk import Frame
from crashkit.regex import regex

ReadText = Callable[[int], Optional[str]]
"""The string at an address of the process; None if it cannot be read."""

_LONGEST = 1000
_CONVERSION = regex(r"%[-+ #0]{0,5}\d{0,9}(?:\.\d{1,9})?(?:ll|[hlzjt])?[diouxXcspR]")


class _Arguments(msgspec.Struct, frozen=True):
    """The registers of a function's arguments (Python/pylifecycle.c)."""

    function: Optional[str]
    message: str


_FUNCTIONS = {
    "Py_FatalError": _Arguments(None, "rdi"),
    "_Py_FatalErrorFunc": _Arguments("rdi", "rsi"),
    "_Py_FatalErrorFormat": _Arguments("rdi", "rsi"),
}


def fatal_error(
    frames: Sequence[Frame], functions: Sequence[Optional[str]], read: Read, text: ReadText, arch: Architecture
) -> Optional[str]:
    """`Fatal Python error: PyThreadState_Get: no current thread`; None if the frames show no fatal error, or its words are lost.

    What `_Py_FatalErrorFormat` puts into its format is lost: `…` stands for it.
    """
    for index, name in enumerate(functions):
        known = _FUNCTIONS.get(name or "")
        if known is None:
            continue
        message = _string(argument(frames, index, known.message, read, arch), text)
        if message:
            if name == "_Py_FatalErrorFormat":
                message = _CONVERSION.sub("…", message).replace("%%", "%")
            function = _string(argument(frames, index, known.function, read, arch), text) if known.function else None
            return f"Fatal Python error: {function}: {message}" if function else f"Fatal Python error: {message}"
    return None


def _string(address: Optional[int], text: ReadText) -> Optional[str]:
    found = text(address) if address else None
    if not found or not found.replace("\n", " ").replace("\t", " ").isprintable():
        return None
    return found[:_LONGEST]
