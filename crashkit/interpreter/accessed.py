"""The array in a variable to whose memory, as it describes it, an address belongs: numpy and torch do not look before they access it.

Else the buffers in variables that end below the address: native code goes on where they end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, Optional, Protocol

import msgspec

from crashkit.interpreter.arrays import Extent
from crashkit.interpreter.objects import HEAP_TYPE, LIST, TUPLE, Objects
from crashkit.interpreter.view import TimeUp, Unreadable

_MOST_ITEMS = 32
"""Of a list, or attributes of an instance."""
_MOST_BASES = 8
_SECONDS = 1.0
"""Memory that is damaged, or made for it, can take long to look through."""


_MOST_BELOW = 4
_FARTHEST = 1 << 30
"""Bytes between the end of a buffer and the address."""


class Extents(Protocol):
    """What knows the memory of some kinds of objects."""

    def extent(self, address: int, kind: int) -> Optional[Extent]:
        """The memory of the object of this type; None for any other kind of object. Raises Unreadable."""


class Place(NamedTuple):
    """A variable, by its frame."""

    frame: int
    """Its number in the stack, innermost first."""
    name: str
    """As the program would write it: `view`, `self.image`, `batch[3]`."""


class Accessed(msgspec.Struct, frozen=True):
    """An array, and where it is known."""

    place: Place
    extent: Extent
    owner: Optional[Extent]
    """The array whose memory it is a view of."""


def accessed(objects: Objects, arrays: Extents, variables: Iterable[tuple[Place, int]], address: int) -> Optional[Accessed]:
    """The first of these variables, each with the address of its object, whose array reaches to this address; None if there is none.

    One that reaches beyond the array whose memory it is a view of goes before others.
    """
    address = int(address)  # a range goes through all of its numbers to find one of a derived type
    found = None
    with suppress(TimeUp), objects.within(_SECONDS):
        for place, value in variables:
            for name, one in ((place.name, value), *_inside(objects, place.name, value)):
                with suppress(Unreadable):
                    extent = arrays.extent(one, objects.type_of(one))
                    if extent is None or address not in extent.addresses:
                        continue
                    owner = _owner(objects, arrays, extent.base)
                    now = Accessed(place._replace(name=name), extent, owner)
                    if owner is not None and address not in owner.addresses:
                        return now
                    found = found or now
    return found


def below(objects: Objects, buffers: Extents, variables: Iterable[tuple[Place, int]], address: int) -> list[Accessed]:
    """The buffers in these variables that end at most a gigabyte below this address, the nearest first, four at most.

    A view counts as the memory that it is a view of, and memory that several variables show as the first of them.
    """
    address = int(address)
    found: dict[int, Accessed] = {}
    with suppress(TimeUp), objects.within(_SECONDS):
        for place, value in variables:
            for name, one in ((place.name, value), *_inside(objects, place.name, value)):
                with suppress(Unreadable):
                    extent = buffers.extent(one, objects.type_of(one))
                    if extent is None or not extent.addresses:
                        continue
                    owner = _owner(objects, buffers, extent.base)
                    end = max(extent.addresses.stop, owner.addresses.stop if owner is not None else 0)
                    if end <= address < end + _FARTHEST:
                        found.setdefault(end, Accessed(place._replace(name=name), extent, owner))
    return [found[end] for end in sorted(found, reverse=True)[:_MOST_BELOW]]


def _inside(objects: Objects, name: str, value: int) -> Iterator[tuple[str, int]]:
    """The items of a list or tuple, or the attributes of an instance."""
    with suppress(Unreadable):
        flags = objects.flags(objects.type_of(value))
        if flags & (LIST | TUPLE):
            items, _ = objects.items(value, _MOST_ITEMS)
            yield from ((f"{name}[{index}]", item) for index, item in enumerate(items))
        elif flags & HEAP_TYPE:
            for item in islice(objects.attributes(value), _MOST_ITEMS):
                yield f"{name}.{objects.text(item.key)}", item.value


def _owner(objects: Objects, arrays: Extents, base: int) -> Optional[Extent]:
    """The array that owns the memory; None if something else does. What as_strided returns is a view of an object with a `base`."""
    found = None
    with suppress(Unreadable):
        for _ in range(_MOST_BASES):
            if not base:
                return found
            found = arrays.extent(base, objects.type_of(base))
            base = found.base if found is not None else objects.attribute(base, "base") or 0
    return None
