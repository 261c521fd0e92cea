"""Frames of 3.6 to 3.10 that nothing leads to, because the state of their thread or a frame further in is lost.

Each is an object in the heap, names the one outwards of it, and says whether it runs (`f_executing`, Include/frameobject.h; `f_state` in
3.10). Those that do are on some stack, whoever can say whose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice

from crashkit.interpreter.objects import Objects
from crashkit.interpreter.search import MOST_FOR_STACKS, places_of
from crashkit.interpreter.view import Unreadable

_MOST_FRAMES, _MOST_PLACES = 65536, 1 << 20
"""Frames that run, and places that point to their type."""
_LAST_INSTRUCTION = 1 << 28


def running_chains(objects: Objects, is_mapped: Callable[[int], bool], types: Collection[int], known: Collection[int]) -> list[list[int]]:
    """The addresses of running frames besides the known ones, chain by chain, innermost first. `types` is where their type is."""
    view, layout = objects.view, objects.layout.frame
    if layout.runs is None or not types or view.word_size != 8:
        return []
    outwards: dict[int, int] = {}
    for place in islice(places_of(view, tuple(types), MOST_FOR_STACKS), _MOST_PLACES):
        frame = place - objects.layout.object.type
        try:
            if frame not in known and _is_running(objects, is_mapped, frame):
                outwards[frame] = view.word(frame + layout.previous)
        except Unreadable:
            continue
        if len(outwards) >= _MOST_FRAMES:
            break
    chains = []
    for head in sorted(set(outwards).difference(outwards.values())):
        chain: dict[int, None] = {}
        address = head
        # Two may name the same one if one of them is damaged: the first has it.
        while address in outwards:
            chain[address] = None
            address = outwards.pop(address)
        chains.append(list(chain))
    return chains


def _is_running(objects: Objects, is_mapped: Callable[[int], bool], frame: int) -> bool:
    """Whether an object that has the type of frames is one that runs. Raises Unreadable."""
    view, layout = objects.view, objects.layout.frame
    code, previous = view.word(frame + layout.code), view.word(frame + layout.previous)
    return (
        objects.is_alive(frame)
        and view.byte(frame + (layout.runs or 0)) == (0 if objects.version >= (3, 10) else 1)
        and 0 <= view.int32(frame + layout.instruction) < _LAST_INSTRUCTION
        and code % 8 == 0
        and is_mapped(code)
        and (previous == 0 or is_mapped(previous))
    )
