"""Recognises a thread that waits for Python's global interpreter lock, by its native frames. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from crashkit.model import Frame, NativeFrame
from crashkit.naming.functions import libc_name, plain
from crashkit.regex import regex

ACQUIRES = regex(
    r"take_gil|PyEval_(?:RestoreThread|AcquireThread|AcquireLock)|_?PyEval_AcquireLock|PyGILState_Ensure|_PyThreadState_Attach"
)
"""Functions that return when the thread holds the GIL. Some are exported, so that a stripped interpreter has their names."""

INTERPRETER = regex(r"(^|/)(python[\d.]*[a-z]*|libpython[\d.]+[a-z]*\.so[\d.]*)$")
"""Files that contain CPython."""

# drop_gil waits until another thread, for which it gave up the GIL, has taken it (Python/ceval_gil.c, FORCE_SWITCHING).
_FOR_GIL = regex(rf"{ACQUIRES.pattern}|drop_gil|PyCOND_\w+|eval_frame_handle_pending|_Py_HandlePending")
_WAITS = regex(r"pthread_cond_(?:timed|clock)?wait\w*")
_DEPTH = 16


def waits_for_gil(frames: Sequence[Frame]) -> bool:
    """Whether these frames, innermost first, wait for the GIL.

    In a stripped interpreter `take_gil` has no name, but nothing else in CPython waits for a condition.
    """
    waits = False
    for frame in frames[:_DEPTH]:
        if not isinstance(frame, NativeFrame):
            break
        name = plain(frame.function or "")
        if ACQUIRES.fullmatch(name):
            return True
        if not waits:
            waits = _WAITS.fullmatch(libc_name(name).lstrip("_")) is not None
        elif frame.module and INTERPRETER.search(frame.module):
            return not name or _FOR_GIL.fullmatch(name) is not None
        elif not _WAITS.fullmatch(libc_name(name).lstrip("_")) and not _FOR_GIL.fullmatch(name):
            break
    return False
