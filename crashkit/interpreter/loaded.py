"""The Python files that an interpreter had imported, from `sys.modules`: their packages count as loaded, on a stack or not."""

from __future__ import annotations

from collections.abc import Iterator

from crashkit.interpreter.objects import TEXT, Item, Objects
from crashkit.interpreter.view import Unreadable

_MOST_MODULES = 20_000
_MOST_NAMES = 16
"""Of a module's `__dict__`: the import system puts `__file__` there before the module's code runs."""
_LONGEST = 4096


def loaded_files(objects: Objects, interpreter: int) -> list[str]:
    """`__file__` of the modules of this interpreter, one for each package at the top: as many as can be read."""
    found: dict[str, str] = {}
    # The names of variables are interned: one str each for all modules.
    names: dict[int, bool] = {}
    try:
        for item in objects.dictionary(objects.view.word(interpreter + objects.layout.interpreter.modules), _MOST_MODULES):
            # A namespace package has no file of its own: those of its parts count.
            for top, file in _file(objects, item, found, names):
                found[top] = file
    except Unreadable:
        pass
    return list(found.values())


def _file(objects: Objects, item: Item, known: dict[str, str], names: dict[int, bool]) -> Iterator[tuple[str, str]]:
    """`names`: which of the names that were met are `__file__`."""
    try:
        name = objects.text(item.key, _LONGEST)
        top = name.partition(".")[0]
        # The parts of a namespace package may be of several distributions.
        key = name if top not in known and "." in name else top
        if key in known or top in known:
            return
        for one in objects.dictionary(objects.view.word(item.value + objects.layout.module.dictionary), _MOST_NAMES):
            if one.key not in names:
                names[one.key] = objects.text(one.key, len("__file__") + 1) == "__file__"
            if names[one.key] and objects.flags(objects.type_of(one.value)) & TEXT:
                yield key, objects.text(one.value, _LONGEST)
    except Unreadable:
        return
