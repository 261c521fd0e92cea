"""The variables of code that keeps them in a dict, not in its frame: a module's, that of `exec()`, a notebook's cell, a class's body."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress

from crashkit.interpreter.frame_fields import locals_at
from crashkit.interpreter.frames import FrameState, Variable
from crashkit.interpreter.objects import DICTIONARY, TYPE, Objects
from crashkit.interpreter.view import Unreadable

_MOST_NAMES = 2000
_LONGEST_NAME = 200
_DEFINED = {"module", "function", "builtin_function_or_method"}
"""Types of what a program imports or defines, which is seldom what it works on."""


def dict_variables(objects: Objects, frame: FrameState, type_name: Callable[[int], str], most: int) -> list[Variable]:
    """The `most` that were set last, without what was imported and defined; none of a function's frame."""
    if frame.code is None or frame.code.is_function:
        return []
    found: deque[Variable] = deque(maxlen=most)
    with suppress(Unreadable):
        contents = objects.view.word(frame.address + locals_at(objects))
        if not contents or not objects.flags(objects.type_of(contents)) & DICTIONARY:
            return []
        for item in objects.dictionary(contents, _MOST_NAMES):
            with suppress(Unreadable):
                kind = objects.type_of(item.value)
                name = objects.text(item.key, _LONGEST_NAME)
                if not name.startswith("__") and not objects.flags(kind) & TYPE and type_name(kind) not in _DEFINED:
                    found.append(Variable(name, item.value, False))
    return list(found)
