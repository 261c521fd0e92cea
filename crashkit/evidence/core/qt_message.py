"""What Qt said in the fatal message by which it ended the process, from what its function was called with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

from crashkit.arch import Architecture
from crashkit.evidence.core.arguments import Read, argument
from crashkit.evidence.core.walk import Frame
from crashkit.regex import regex

ReadText = Callable[[int], Optional[str]]
"""The string at an address of the process; None if it cannot be read."""

_LONGEST = 1000
# qtbase, src/corelib/global/qlogging.h: the format is the first argument, after `this` in the method.
_FORMATS = {"_ZNK14QMessageLogger5fatalEPKcz": 1, "_Z6qFatalPKcz": 0}
_CONVERSION = regex(r"%[-+ #0]{0,5}\d{0,9}(?:\.(?:\d{1,9}|\*))?(?:ll|[hlzjt])?[diouxXeEfFgGcsp]")


def qt_message(
    frames: Sequence[Frame], functions: Sequence[Optional[str]], read: Read, text: ReadText, arch: Architecture
) -> Optional[str]:
    """`QWidget: Must construct a QApplication before a QWidget`; None if Qt said nothing.

    `…` stands for what was put into the format.
    """
    for index, name in enumerate(functions):
        position = _FORMATS.get(name or "")
        if position is None or position >= len(arch.argument_registers):
            continue
        address = argument(frames, index, arch.argument_registers[position], read, arch)
        said = text(address) if address else None
        if said and said.replace("\n", " ").replace("\t", " ").isprintable():
            return _CONVERSION.sub("…", said).replace("%%", "%")[:_LONGEST]
    return None
