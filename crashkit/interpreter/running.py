"""Running frames that nothing leads to, because the state of their thread or a frame further in is lost.

Up to 3.10 each frame is an object in the heap; from 3.11 on those of generators and coroutines are, as part of them. Each names the one
outwards of it, and it is known of each whether it runs (`f_executing`, Include/frameobject.h; `f_state` in 3.10; later `gi_frame_state`,
Include/internal/pycore_genobject.h and older headers). Those that do are on some stack, whoever can say whose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import Optional

from crashkit.interpreter.frame_fields import OWNED_BY_GENERATOR, TAGS, builtins_at, globals_at
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.search import MOST_FOR_STACKS, places_of
from crashkit.interpreter.view import Unreadable

_FRAME_TYPES, _GENERATOR_TYPES = ("PyFrame_Type",), ("PyGen_Type", "PyCoro_Type", "PyAsyncGen_Type")
"""The types of what a frame is, or of what contains one."""
_MOST_FRAMES, _MOST_PLACES = 65536, 1 << 20
"""Frames that run, and places that point to their type."""
_LAST_INSTRUCTION = 1 << 28


def holding_types(objects: Objects) -> tuple[str, ...]:
    """The names of the types whose objects hold frames in this version; none where their frames do not say whether they run."""
    if objects.layout.frame.runs is not None:
        return _FRAME_TYPES
    return _GENERATOR_TYPES if objects.layout.generator.state is not None else ()


def holder(objects: Objects, frame: int) -> Optional[int]:
    """The object that is the frame at this address, or that contains it; None for one on a data stack. Raises Unreadable."""
    layout = objects.layout
    if layout.frame.owner is None:
        return frame
    if layout.generator.frame is None or objects.view.byte(frame + layout.frame.owner) != OWNED_BY_GENERATOR:
        return None
    return frame - layout.generator.frame


def running_chains(objects: Objects, is_mapped: Callable[[int], bool], types: Collection[int], known: Collection[int]) -> list[list[int]]:
    """The addresses of running frames besides the known ones, chain by chain, innermost first. `types` is where the types of what holds
    them are."""
    view, layout = objects.view, objects.layout.frame
    if not types or view.word_size != 8:
        return []
    is_running = _runs if layout.runs is not None else _runs_generator
    outwards: dict[int, int] = {}
    for place in islice(places_of(view, tuple(types), MOST_FOR_STACKS), _MOST_PLACES):
        found = place - objects.layout.object.type
        frame = found + (objects.layout.generator.frame or 0)
        try:
            if frame not in known and objects.is_alive(found) and is_running(objects, found) and _is_frame(objects, is_mapped, frame):
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


def _runs(objects: Objects, frame: int) -> bool:
    """Whether an object that has the type of frames runs. Raises Unreadable."""
    view, layout = objects.view, objects.layout.frame
    state = view.byte(frame + (layout.runs or 0))
    return state == (0 if objects.version >= (3, 10) else 1) and 0 <= view.int32(frame + layout.instruction) < _LAST_INSTRUCTION


def _runs_generator(objects: Objects, generator: int) -> bool:
    """Whether an object that has the type of generators runs. Raises Unreadable."""
    view, layout = objects.view, objects.layout
    frame = generator + (layout.generator.frame or 0)
    return view.byte(generator + (layout.generator.state or 0)) == 0 and holder(objects, frame) == generator


def _is_frame(objects: Objects, is_mapped: Callable[[int], bool], frame: int) -> bool:
    """Whether what the frame at this address names may be a code object, dicts and another frame. Raises Unreadable.

    Words that equal the address of a type lie on C stacks, too, with anything behind them.
    """
    view, layout = objects.view, objects.layout.frame
    code, previous = view.word(frame + layout.code), view.word(frame + layout.previous)
    needed = [view.word(frame + at) & ~TAGS for at in (globals_at(objects), builtins_at(objects))]
    needed.append(code if layout.owner is None else code & ~TAGS)
    return all(one and one % 8 == 0 and is_mapped(one) for one in needed) and (previous == 0 or is_mapped(previous))
