"""What the interpreter said in its fatal error, from the arguments of the functions that print it. Pure.

The core has it also where nobody kept what the process wrote, and where faulthandler crashed itself while it printed the stacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Optional

from crashkit.model import Thread
from crashkit.naming.machinery import is_fatal_error
from crashkit.regex import regex

ReadText = Callable[[int], Optional[str]]
"""The string at an address of the process; None if it cannot be read."""

_POINTER = regex(r"^(0x[0-9a-f]+)")
_QUOTED = regex(r'"((?:[^"\\]|\\.)*)"(\.\.\.)?')
_LONGEST = 1000


def fatal_error(thread: Thread, read: ReadText) -> Optional[str]:
    """`Fatal Python error: PyThreadState_Get: no current thread`; None if the thread did not raise one, or its words are lost."""
    for frame in thread.natives():
        if not is_fatal_error(frame.function or ""):
            continue
        # Python/pylifecycle.c: `fatal_error(..., prefix, msg, ...)`, then a function with `func` and `msg`, or with `msg` alone.
        message = _text(frame.args.get("msg"), read)
        if message:
            prefix = _text(frame.args.get("prefix") or frame.args.get("func"), read)
            return f"Fatal Python error: {prefix}: {message}" if prefix else f"Fatal Python error: {message}"
    return None


def _text(argument: Optional[str], read: ReadText) -> Optional[str]:
    """An argument as gdb prints it, `0x7f13 "the first wor"...`: the whole string, or as much as gdb shows."""
    pointer = _POINTER.match(argument or "")
    if argument is None or pointer is None:
        return None
    address = int(pointer[1], 16)
    whole = read(address) if address else None
    if whole:
        return whole[:_LONGEST]
    shown = _QUOTED.search(argument)
    return re.sub(r"\\(.)", r"\1", shown[1]) + ("…" if shown[2] else "") if shown else None
