"""Recognises a thread that failed inside Python's garbage collector: the Python line there only happened to set it off. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crashkit.model import Frame, NativeFrame, PythonFrame
from crashkit.naming.functions import plain
from crashkit.naming.machinery import handler_end

# Modules/gcmodule.c, from 3.13 on Python/gc.c. `collect` and the like are too common to be told without their module.
_COLLECTS = re.compile(
    r"gc_collect\w*|_?PyGC_Collect\w*|_Py_RunGC|_PyObject_GC_\w*|collect_generations|collect_with_callback|deduce_unreachable|delete_garbage"
    r"|finalize_garbage|handle_weakrefs|move_unreachable|subtract_refs|update_refs|visit_(?:decref|reachable|move)|untrack_(?:tuples|dicts)"
)
# These make the object that sets it off.
_ALLOCATES = re.compile(r"_?PyObject_GC_(?:New\w*|Alloc|Malloc|Track|UnTrack|Del|Resize|Link)")


def in_collector(frames: Sequence[Frame]) -> bool:
    """Whether the garbage collector ran between the failure and the innermost Python frame.

    A finalizer written in Python (`__del__`) is a Python frame within the collection: it is what failed.
    """
    for frame in frames[handler_end(frames) :]:
        if isinstance(frame, PythonFrame):
            return False
        if isinstance(frame, NativeFrame):
            name = plain(frame.function or "")
            if _COLLECTS.fullmatch(name) and not _ALLOCATES.fullmatch(name):
                return True
    return False
