"""The Python files that an interpreter had imported, from `sys.modules`: their packages count as loaded, on a stack or not."""

from __future__ import annotations

from contextlib import suppress
from typing import Optional

from crashkit.interpreter.objects import TEXT, Objects
from crashkit.interpreter.view import Unreadable

_MOST_MODULES = 20_000
_MOST_NAMES = 16
"""Of a module's `__dict__`: the import system puts `__file__` there before the module's code runs."""
_LONGEST = 4096


def loaded_files(objects: Objects, interpreter: int) -> list[str]:
    """`__file__` of the modules of this interpreter, one for each package at the top: as many as can be read."""
    modules: list[tuple[str, int]] = []
    with suppress(Unreadable):
        for item in objects.dictionary(objects.view.word(interpreter + objects.layout.interpreter.modules), _MOST_MODULES):
            with suppress(Unreadable):
                modules.append((objects.text(item.key, _LONGEST), item.value))
    found: dict[str, str] = {}
    # The names of variables are interned: one str each for all modules.
    names: dict[int, bool] = {}
    # A package comes behind its parts, because the import system puts it there when it is done. It stands for all of them.
    for name, module in sorted(modules, key=lambda one: "." in one[0]):
        top = name.partition(".")[0]
        # A namespace package has no file of its own: those of its parts count, which may be of several distributions.
        if top not in found and name not in found:
            with suppress(Unreadable):
                file = _file(objects, module, names)
                if file is not None:
                    found[name] = file
    return list(found.values())


def _file(objects: Objects, module: int, names: dict[int, bool]) -> Optional[str]:
    """`names`: which of the names that were met are `__file__`."""
    for one in objects.dictionary(objects.view.word(module + objects.layout.module.dictionary), _MOST_NAMES):
        if one.key not in names:
            names[one.key] = objects.text(one.key, len("__file__") + 1) == "__file__"
        if names[one.key] and objects.flags(objects.type_of(one.value)) & TEXT:
            return objects.text(one.value, _LONGEST)
    return None
