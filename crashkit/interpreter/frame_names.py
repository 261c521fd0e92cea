"""Where in a frame the dicts are in which its code looks up names (Include/internal/pycore_frame.h, Include/frameobject.h)."""

from __future__ import annotations

from crashkit.interpreter.objects import Objects


def globals_at(objects: Objects) -> int:
    """The offset of the pointer to the variables of its module (`f_globals`)."""
    return objects.layout.frame.code + objects.view.word_size * (
        3 if objects.version >= (3, 12) else -3 if objects.version >= (3, 11) else 2
    )


def builtins_at(objects: Objects) -> int:
    """The offset of the pointer to the built-in names (`f_builtins`)."""
    return objects.layout.frame.code + objects.view.word_size * (
        4 if objects.version >= (3, 12) else -2 if objects.version >= (3, 11) else 1
    )
