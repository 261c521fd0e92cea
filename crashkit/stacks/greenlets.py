"""Where a greenlet's part of a thread's native stack ends. Pure.

A greenlet begins on the C stack just below whoever first switched to it (`g_initialstub`, src/greenlet/TUserGreenlet.cpp). What lies above
that belongs to other greenlets, and the interpreter does not count it to this one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from crashkit.debugger.contract import NativeStack
from crashkit.model import NativeFrame
from crashkit.naming.functions import plain
from crashkit.stacks.merge import is_evaluation

_BEGINS = re.compile(r"(?:greenlet::(?:refs::)?\w{1,40}::)?(?:g_initialstub|inner_bootstrap)")
_SWITCHES = re.compile(r"(?:greenlet::(?:refs::)?\w{1,40}::)?g_switch")
"""Compilers may put `g_initialstub` into it."""


def of_greenlet(walk: NativeStack) -> NativeStack:
    """The stack up to where the greenlet that the thread runs began; the whole one if it runs none."""
    for part in ("frames", "outer"):
        frames: tuple[NativeFrame, ...] = getattr(walk, part)
        end = _end(frames)
        if end is not None:
            inner = walk._replace(frames=frames[:end], outer=(), between=None) if part == "frames" else walk._replace(outer=frames[:end])
            return inner._replace(cut=False)
    return walk


def _end(frames: Sequence[NativeFrame]) -> int | None:
    evaluated = False
    for index, frame in enumerate(frames):
        name = plain(frame.function or "")
        if _BEGINS.fullmatch(name):
            while index + 1 < len(frames) and _BEGINS.fullmatch(plain(frames[index + 1].function or "")):
                index += 1
            return index + 1
        # A switch without Python code inside it goes to another greenlet.
        if evaluated and _SWITCHES.fullmatch(name):
            return index + 1
        evaluated = evaluated or is_evaluation(frame)
    return None
