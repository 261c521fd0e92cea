"""What is the same of every frame: who owns it, and where the dicts are in which its code looks up names.

Sources: Include/internal/pycore_frame.h, pycore_interpframe_structs.h (3.14) and Include/frameobject.h.
"""

from __future__ import annotations

from crashkit.interpreter.objects import Objects

OWNED_BY_THREAD, OWNED_BY_GENERATOR, OWNED_BY_OBJECT, OWNED_BY_C, LAST_OWNER = range(5)
"""`enum _frameowner`: from `OWNED_BY_C` on a frame runs no Python code."""
TAGS = 7
"""Bits of a reference (3.14, `_PyStackRef`) that are not of the address."""


def globals_at(objects: Objects) -> int:
    """The offset of the pointer to the variables of its module (`f_globals`)."""
    return _behind_code(objects, 3 if objects.version >= (3, 12) else -3 if objects.version >= (3, 11) else 2)


def builtins_at(objects: Objects) -> int:
    """The offset of the pointer to the built-in names (`f_builtins`)."""
    return _behind_code(objects, 4 if objects.version >= (3, 12) else -2 if objects.version >= (3, 11) else 1)


def locals_at(objects: Objects) -> int:
    """The offset of the pointer to the variables of code that keeps them in a dict (`f_locals`)."""
    return globals_at(objects) + (2 if objects.version >= (3, 11) else 1) * objects.view.word_size


def _behind_code(objects: Objects, words: int) -> int:
    return objects.layout.frame.code + words * objects.view.word_size
