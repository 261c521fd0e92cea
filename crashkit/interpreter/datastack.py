"""The order of a thread's frames where the links between them are lost with the C stack, of 3.11 and newer.

Frames lie one behind the other on the thread's data stack, the oldest first (`_PyThreadState_PushFrame`, Python/pystate.c). A running
generator or coroutine holds its own, and the thread's handlers of exceptions lead to these, the innermost first (`gen_send_ex2`,
Objects/genobject.c). Each frame names the one outwards of it. From 3.12 on the outermost one of an interpreter call names an entry frame
on the C stack, which grows towards lower addresses: even where the entry frames are lost, their addresses say which call came first.

The three orders have to agree, and every word of the data stack has to be some frame's. If not, there is no answer. A frame is as long as
its code object says; where that is lost, it reaches to the next one that another frame names, if nothing between them may be a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import NamedTuple, Optional

import msgspec

from crashkit.interpreter.frame_fields import OWNED_BY_C, OWNED_BY_GENERATOR, OWNED_BY_THREAD, TAGS, builtins_at
from crashkit.interpreter.layouts import Layout
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.threads import linked
from crashkit.interpreter.view import Unreadable, View

_MOST_CHUNKS, _MOST_GENERATORS, _MOST_FRAMES = 4096, 8192, 65536
_MOST_ENTRIES = 64
"""Entry frames between two others."""
_MOST_WORDS = 1 << 20
"""Of one frame."""


class Order(NamedTuple):
    """How the frames of one thread follow each other."""

    newest: int
    """Address of the thread's current frame."""
    behind: dict[int, int]
    """By the address of a lost entry frame, the frame that made this call; 0 where it is the thread's first."""


class _Chain(msgspec.Struct, frozen=True):
    """Frames that name each other, innermost first, and what the last one names."""

    frames: list[int]
    end: int


def order(objects: Objects, state: int, current: Optional[int], is_mapped: Callable[[int], bool]) -> Order:
    """The order of the frames of the thread state at this address, whose current frame may be known. Raises Unreadable."""
    layout, view = objects.layout, objects.view
    generators = _of_generators(view, layout, state)
    on_stack, whole = _on_data_stack(objects, state, _Lost(objects, is_mapped, [*([current] if current else []), *generators]))
    made = {frame for frame in on_stack if frame != current and not _has_started(objects, frame)}
    if objects.version >= (3, 13) and not made.issubset(on_stack[:1]):
        # One that is being made, or one that handles a signal before its first instruction.
        raise Unreadable("a frame of which it is not sure that it runs")
    on_stack = [frame for frame in on_stack if frame not in made]
    stacked, running = frozenset(on_stack), frozenset(generators)
    known = stacked | running
    found = _chains(known, {frame: _outwards(view, layout, frame, known) for frame in known})
    chains = _in_order(found, stacked, None if whole or not on_stack else on_stack[-1])
    frames = [frame for chain in chains for frame in chain.frames]
    left = frozenset(frames)
    if (
        not chains
        or [frame for frame in frames if frame in stacked] != on_stack
        or [frame for frame in frames if frame in running] != [frame for frame in generators if frame in left]
        or (current is not None and current != frames[0])
        or (len(chains) > 1 and objects.version < (3, 12))
        or not all(is_mapped(chain.end) for chain in chains[:-1])
    ):
        raise Unreadable("frames whose order is not sure")
    behind = {chain.end: outer.frames[0] for chain, outer in pairwise(chains)}
    return Order(frames[0], {**behind, chains[-1].end: 0} if whole else behind)


def _in_order(chains: list[_Chain], stacked: frozenset[int], oldest: Optional[int]) -> list[_Chain]:
    """The innermost first: entry frames of inner calls have lower addresses, and nothing follows what names nothing.

    `oldest` is the oldest frame on the data stack whose older part is lost: which generators belong behind it is not known. They are left
    out, with those that may.
    """
    last = next((chain for chain in chains if oldest in chain.frames), None)
    others = sorted((chain for chain in chains if chain is not last), key=lambda chain: (chain.end == 0, chain.end))
    if last is None:
        return others
    while others and stacked.isdisjoint(others[-1].frames):
        others.pop()
    return [*others, last]


class _Lost:
    """Where frames end whose code objects are lost. `starts` are the innermost frames that are known."""

    def __init__(self, objects: Objects, is_mapped: Callable[[int], bool], starts: Sequence[int]) -> None:
        self._objects, self._is_mapped, self._starts = objects, is_mapped, starts
        self._builtins_at = builtins_at(objects)
        self._named: Optional[list[int]] = None

    def end(self, frame: int, end: int) -> int:
        """The end of the frame at this address, on a part of the data stack that is used up to `end`. Raises Unreadable."""
        view, size = self._objects.view, self._objects.layout.frame.locals
        builtins = self._builtins_type(frame)
        following = min((one for one in self._named_frames() if frame < one < end), default=end)
        if any(self._may_be_frame(place, builtins) for place in range(frame + size, following - size + 1, view.word_size)):
            raise Unreadable(f"no code object of the frame at {frame:#x}")
        return following

    def _named_frames(self) -> list[int]:
        """The frames that are named by others, each by one further in, as far as their memory is there."""
        if self._named is None:
            found: dict[int, None] = {}
            for start in self._starts:
                for address in linked(self._objects.view, start, self._objects.layout.frame.previous, _MOST_FRAMES):
                    if address in found:
                        break
                    found[address] = None
            self._named = list(found)
        return self._named

    def _may_be_frame(self, place: int, builtins: int) -> bool:
        view, layout = self._objects.view, self._objects.layout.frame
        view.check_time()
        previous = view.word(place + layout.previous)
        if not self._is_mapped(view.word(place + layout.code) & ~TAGS) or (previous and not self._is_mapped(previous)):
            return False
        if layout.owner is not None and view.byte(place + layout.owner) != OWNED_BY_THREAD:
            return False
        try:
            return self._builtins_type(place) == builtins
        except Unreadable:
            return self._is_mapped(view.word(place + self._builtins_at))

    def _builtins_type(self, frame: int) -> int:
        """The type of what should be the frame's dict of built-in names. Raises Unreadable."""
        return self._objects.type_of(self._objects.view.word(frame + self._builtins_at))


def _on_data_stack(objects: Objects, state: int, lost: _Lost) -> tuple[list[int], bool]:
    """The frames on the thread's data stack, newest first, and whether these are all. Raises Unreadable."""
    view, thread, chunk = objects.view, objects.layout.thread, objects.layout.chunk
    if thread.chunk is None or thread.top is None or chunk is None:
        raise Unreadable("a version without a data stack")
    found: list[int] = []
    end: Optional[int] = view.word(state + thread.top)
    whole = False
    for part in linked(view, view.word(state + thread.chunk), chunk.previous, _MOST_CHUNKS):
        try:
            previous = view.word(part + chunk.previous)
            last = end if end is not None else part + chunk.data + view.word(part + chunk.top) * view.word_size
            # The first word of the oldest chunk is never used (`push_chunk`).
            frames = _between(objects, part + chunk.data + (0 if previous else view.word_size), last, lost)
        except Unreadable:
            if end is not None:
                raise
            return found, False
        found += reversed(frames)
        end, whole = None, previous == 0
    return found, whole


def _between(objects: Objects, start: int, end: int, lost: _Lost) -> list[int]:
    """The frames from `start` to `end`, which fill this memory. Raises Unreadable."""
    view, frame, code = objects.view, objects.layout.frame, objects.layout.code
    if code.frame_slots is None or code.stack_size is None or frame.owner is None:
        raise Unreadable("a version without a data stack")
    found: list[int] = []
    while start < end:
        view.check_time()
        executable = view.word(start + frame.code) & ~TAGS
        try:
            words = objects.constants.int32(executable + code.frame_slots) + objects.constants.int32(executable + code.stack_size)
            following = start + frame.locals + words * view.word_size
        except Unreadable:
            words, following = 0, lost.end(start, end)
        if not 0 <= words < _MOST_WORDS or view.byte(start + frame.owner) != OWNED_BY_THREAD or len(found) >= _MOST_FRAMES:
            raise Unreadable(f"no frame at {start:#x}")
        found.append(start)
        start = following
    if start != end:
        raise Unreadable(f"no frame before {end:#x}")
    return found


def _of_generators(view: View, layout: Layout, state: int) -> list[int]:
    """The frames of the generators and coroutines that the thread runs, innermost first. Raises Unreadable."""
    if layout.thread.handlers is None or layout.handler is None or layout.generator.handler is None or layout.generator.frame is None:
        raise Unreadable("a version without handlers of generators")
    distance = layout.generator.frame - layout.generator.handler
    found: list[int] = []
    handler = view.word(state + layout.thread.handlers)
    while following := view.word(handler + layout.handler.previous):
        frame = handler + distance
        if layout.frame.owner is None or view.byte(frame + layout.frame.owner) != OWNED_BY_GENERATOR or len(found) >= _MOST_GENERATORS:
            raise Unreadable(f"no running generator at {handler:#x}")
        found.append(frame)
        handler = following
    return found


def _has_started(objects: Objects, frame: int) -> bool:
    """Whether the frame has run an instruction: one that is being made has not. Up to 3.12 it names the last one, later the current one.

    Raises Unreadable.
    """
    layout, view = objects.layout, objects.view
    if layout.code.bytecode is None:
        return True
    first = (view.word(frame + layout.frame.code) & ~TAGS) + layout.code.bytecode
    instruction = view.word(frame + layout.frame.instruction)
    return instruction >= first if objects.version < (3, 13) else instruction != first


def _outwards(view: View, layout: Layout, frame: int, known: Collection[int]) -> int:
    """What the frame names: one of the known ones, over entry frames that can be read; else an entry frame that is lost, or 0.

    Raises Unreadable.
    """
    address = view.word(frame + layout.frame.previous)
    for _ in range(_MOST_ENTRIES):
        if not address or address in known or layout.frame.owner is None:
            return address
        try:
            owner, previous = view.byte(address + layout.frame.owner), view.word(address + layout.frame.previous)
        except Unreadable:
            return address
        if owner < OWNED_BY_C:
            break
        address = previous
    raise Unreadable(f"an unknown frame at {address:#x}")


def _chains(known: Collection[int], outwards: dict[int, int]) -> list[_Chain]:
    """The frames as they name each other, each of them once. Raises Unreadable."""
    named = [frame for frame in outwards.values() if frame]
    if len(set(named)) != len(named):
        raise Unreadable("two frames that name the same one")
    chains: list[_Chain] = []
    for head in set(known).difference(named):
        frames, address = [head], outwards[head]
        while address in outwards:
            frames.append(address)
            address = outwards[address]
        chains.append(_Chain(frames, address))
    if sum(len(chain.frames) for chain in chains) != len(outwards):
        raise Unreadable("frames that name each other in a cycle")
    return chains
