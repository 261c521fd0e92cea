"""The object that the garbage collector or a finalizer was at: its type knows the very function that is on the stack.

`tp_traverse`, `tp_clear`, `tp_dealloc` and `tp_finalize` are called with the object. Where one of them failed, a register that its frame or
its caller's, still has points to an object whose type names that function. Where the type itself is overwritten, the collector faults on
reading `tp_traverse` or the flags from it. Offsets: Include/cpython/object.h, `PyTypeObject`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Optional

import msgspec

from crashkit.interpreter.layouts import Layout
from crashkit.interpreter.objects import TYPE, Objects
from crashkit.interpreter.view import Unreadable, View

_LONGEST_NAME = 256
_MOST_BASES = 8
_GC_HEADS = (16, 32)
"""Sizes of `PyGC_Head`, which stands before an object that the collector knows: two words since 3.7."""


class NativeState(msgspec.Struct, frozen=True):
    """One native frame: where its function begins, if that is known, and what its registers hold."""

    start: Optional[int]
    registers: Mapping[str, int]


class Visited(msgspec.Struct, frozen=True):
    """An object."""

    type: Optional[str]
    """None where the object's pointer to its type is damaged."""
    address: int


def visited(objects: Objects, frames: Sequence[NativeState], fault: Optional[int]) -> Optional[Visited]:
    """The object that the innermost of these frames were called for, innermost first; None if they show none.

    `fault` is the address whose access faulted.
    """
    view, layout = objects.view, objects.layout
    slots = _slots(layout, view.word_size)
    starts: set[int] = set()
    for index, frame in enumerate(frames):
        if frame.start is not None:
            starts.add(frame.start)
        for value in _objects(frame.registers):
            try:
                kind = view.word(value + layout.object.type)
            except Unreadable:
                continue
            if index == 0 and fault is not None and kind and fault - kind in (slots["tp_traverse"], *_flags(layout, view.word_size)):
                return Visited(None, value)
            try:
                if _is_type(view, layout, kind) and starts & set(_functions(view, layout, kind, slots.values())):
                    return Visited(objects.constants.string(view.word(kind + layout.type.name), _LONGEST_NAME), value)
            except Unreadable:
                continue
    return None


def _is_type(view: View, layout: Layout, address: int) -> bool:
    return bool(view.word(view.word(address + layout.object.type) + layout.type.flags) & TYPE)


def _functions(view: View, layout: Layout, kind: int, slots: Collection[int]) -> Iterator[int]:
    """Those of the type and of its bases: what a class of Python's adds calls its base's in a way that leaves no frame."""
    for _ in range(_MOST_BASES):
        if not kind:
            return
        yield from filter(None, (view.word(kind + slot) for slot in slots))
        kind = view.word(kind + layout.type.base)


def _flags(layout: Layout, word: int) -> range:
    """Where a type's flags are, of which compilers read single bytes."""
    return range(layout.type.flags, layout.type.flags + word)


def _slots(layout: Layout, word: int) -> dict[str, int]:
    """Where a type has the functions that are called for its objects as they are visited and freed."""
    return {
        "tp_dealloc": layout.type.name + 3 * word,
        "tp_traverse": layout.type.flags + 2 * word,
        "tp_clear": layout.type.flags + 3 * word,
        "tp_finalize": layout.type.dictionary + 13 * word,
    }


def _objects(registers: Mapping[str, int]) -> Iterator[int]:
    for value in dict.fromkeys(registers.values()):
        if value % 8 == 0 and value > 4096:
            yield value
            yield from (value + head for head in _GC_HEADS)
