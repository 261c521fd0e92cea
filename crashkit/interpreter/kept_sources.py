"""The source of code that is in no file, as the process kept it for its own tracebacks: in `linecache`, a list of lines for each name.

IPython and Jupyter put their cells there, attrs the methods that it makes, CPython from 3.13 on the program of `python -c` and what is
typed at its prompt. CPython 3.13.1 moved its own to `_interactive_cache` (Lib/linecache.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple, Optional

from crashkit.interpreter.objects import LIST, TEXT, TUPLE, Objects
from crashkit.interpreter.threads import module_contents
from crashkit.interpreter.view import TimeUp, Unreadable

_CACHES = ("cache", "_interactive_cache")
_SIZE, _CHANGED, _LINES, _NAME = range(4)
"""The fields of an entry. What is in no file has no time of change."""
_CELLS, _MOST_CELLS = "In", 10_000
_MOST_LINES = 20_000
_MOST_TEXT = 8 << 20
"""Characters of all texts."""
_LONGEST = 4096
_SECONDS = 2.0


class KeptSource(NamedTuple):
    """Code that is in no file."""

    lines: tuple[str, ...]
    title: Optional[str] = None
    """What IPython's tracebacks call it in place of its name: `Cell In[3]`."""


def kept_sources(objects: Objects, interpreter: int, nothing: int, wanted: Collection[str]) -> dict[str, KeptSource]:
    """The code of these names, as far as it can be read. `nothing`: the address of None.

    Several texts may have had one name, one after the other: of those, nobody knows which it was.
    """
    found: dict[str, set[tuple[str, ...]]] = {}
    left = _MOST_TEXT
    with suppress(Unreadable, TimeUp), objects.within(_SECONDS):
        contents = module_contents(objects, interpreter, "linecache")
        for cache in _CACHES if contents else ():
            place = objects.item(contents or 0, cache)
            for item in objects.dictionary(place) if place else ():
                with suppress(Unreadable):
                    name, place_of_lines = _entry(objects, item.value, nothing)
                    if name in wanted:
                        lines = tuple(_lines(objects, place_of_lines, left))
                        left -= sum(map(len, lines))
                        found.setdefault(name, set()).add(lines)
    titles = _titles(objects, interpreter) if found else {}
    known = {name: next(iter(texts)) for name, texts in found.items() if len(texts) == 1}
    return {name: KeptSource(lines, titles.get("\n".join(lines).strip())) for name, lines in known.items()}


def _titles(objects: Objects, interpreter: int) -> dict[str, str]:
    """By the cell's text: IPython keeps the cells that were run as `In` among the user's variables. Of equal ones it is the last."""
    found: dict[str, str] = {}
    with suppress(Unreadable, TimeUp), objects.within(_SECONDS):
        place = objects.item(module_contents(objects, interpreter, "__main__") or 0, _CELLS)
        is_list = place is not None and objects.flags(objects.type_of(place)) & LIST
        for index, cell in enumerate(objects.items(place or 0, _MOST_CELLS)[0] if is_list else ()):
            with suppress(Unreadable):
                if objects.flags(objects.type_of(cell)) & TEXT:
                    found[objects.text(cell).strip()] = f"Cell In[{index}]"
    return found


def _entry(objects: Objects, address: int, nothing: int) -> tuple[str, int]:
    """Its name and the address of its lines. Raises Unreadable where it is none of code that is in no file."""
    if not objects.flags(objects.type_of(address)) & TUPLE:
        raise Unreadable(f"no tuple at {address:#x}")
    fields = objects.tuple(address, _NAME + 1)
    if len(fields) <= _NAME or fields[_CHANGED] != nothing or not objects.flags(objects.type_of(fields[_NAME])) & TEXT:
        raise Unreadable(f"no text of code at {address:#x}")
    return objects.text(fields[_NAME], _LONGEST), fields[_LINES]


def _lines(objects: Objects, address: int, most: int) -> Iterator[str]:
    """Raises Unreadable, and so for a text of more characters than `most`."""
    if not objects.flags(objects.type_of(address)) & LIST:
        raise Unreadable(f"no list at {address:#x}")
    for line in objects.items(address, _MOST_LINES)[0]:
        text = objects.text(line, _LONGEST)
        most -= len(text)
        if most < 0:
            raise Unreadable(f"too many lines at {address:#x}")
        yield text.rstrip("\n")
