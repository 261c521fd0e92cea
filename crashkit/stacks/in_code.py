"""Ends a native stack where the walk left code: without a module's file, a debugger takes any word for a return address. Pure."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import pairwise

from crashkit.debugger.contract import NativeStack
from crashkit.model import Mapping, NativeFrame


def within_code(stack: NativeStack, mappings: Sequence[Mapping]) -> NativeStack:
    """The stack up to the first caller that is in no executable memory. `mappings` by address; without any, the stack as it is.

    The innermost frame may be anywhere, and so may the one that a signal interrupted: to jump there may be why the process died.
    """
    code = [(int(one.start), int(one.end)) for one in mappings if "x" in (one.permissions or "")]
    starts = [start for start, _ in code]
    if not code:
        return stack

    def is_code(frame: NativeFrame) -> bool:
        at = int(frame.pc or 0) - 1
        place = bisect.bisect_right(starts, at) - 1
        return place >= 0 and at < code[place][1]

    for index, (inner, frame) in enumerate(pairwise(stack.frames), 1):
        if frame.pc is not None and inner.trust not in ("signal", "inline") and not is_code(frame):
            return stack._replace(frames=stack.frames[:index], outer=(), between=None, cut=True)
    return stack
