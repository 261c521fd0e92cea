"""Recognises a thread that failed inside Python's garbage collector: the Python line there only happened to set it off. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crashkit.model import Frame, NativeFrame, PythonFrame, Thread
from crashkit.naming.functions import plain
from crashkit.naming.machinery import handler_end

# Modules/gcmodule.c, from 3.13 on Python/gc.c. `collect` and the like are too common to be told without their module.
# `_PyObject_GC_New`, `_PyObject_GC_UNTRACK` and the like are not among them: they only make, enter or remove one object.
_COLLECTS = re.compile(
    r"gc_collect\w*|_?PyGC_Collect\w*|_Py_RunGC|collect_generations|collect_with_callback|deduce_unreachable|delete_garbage"
    r"|finalize_garbage|handle_weakrefs|move_unreachable|subtract_refs|update_refs|visit_(?:decref|reachable|move)|untrack_(?:tuples|dicts)"
)
# These only look at objects: what fails in them is an object's type or reference, not the code of a finalizer.
_VISITS = re.compile(
    r"deduce_unreachable|move_unreachable|subtract_refs|update_refs|visit_(?:decref|reachable|move)|untrack_(?:tuples|dicts)"
)
_TRAVERSES = re.compile(r"_?(?:(?P<plain>[a-z]\w*?)_?traverse)")


def visited(frames: Sequence[Frame]) -> str | None:
    """What the collector was looking at when it failed: `list`, by the function that visits its members; `object` where that has no name.

    None where it did not fail while it looked at objects: it did not run, or it ran finalizers.
    """
    container = "object"
    for frame in frames[handler_end(frames) :]:
        if isinstance(frame, PythonFrame):
            return None
        if isinstance(frame, NativeFrame):
            name = plain(frame.function or "")
            if _VISITS.fullmatch(name) and not name.startswith("visit_"):
                return container
            if (traversed := _TRAVERSES.fullmatch(name)) is not None:
                container = _CONTAINERS.get(traversed["plain"], traversed["plain"])
            elif _COLLECTS.fullmatch(name) and not _VISITS.fullmatch(name):
                return None
    return None


_CONTAINERS = {"subtype": "object", "func": "function", "meth": "method", "gen": "generator", "tb": "traceback"}


def is_collection(function: str) -> bool:
    """Whether a function of this name collects garbage, rather than makes an object."""
    return _COLLECTS.fullmatch(function) is not None


def in_collector(thread: Thread) -> bool:
    """Whether the garbage collector ran between the failure and the innermost Python frame.

    A finalizer written in Python (`__del__`) is a Python frame within the collection: it is what failed.
    """
    names: list[str] = []
    for frame in thread.frames[handler_end(thread.frames) :]:
        if isinstance(frame, PythonFrame):
            break
        if isinstance(frame, NativeFrame):
            names.append(plain(frame.function or ""))
            if is_collection(names[-1]):
                return True
    # Of what runs the collector nothing has a name in a stripped interpreter; there the interpreter's own record counts.
    return (not names or "" in names) and collects_by_record(thread)


def collects_by_record(thread: Thread) -> bool:
    """Whether the interpreter says that this thread was collecting, and no finalizer written in Python ran."""
    return bool(thread.collecting) and all(frame.function != "__del__" for frame in thread.pythons())
