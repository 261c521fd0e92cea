"""The order of a thread's frames where the links between them are lost with the C stack, of 3.11 and newer.

Frames lie one behind the other on the thread's data stack, the oldest first (`_PyThreadState_PushFrame`, Python/pystate.c). A running
generator or coroutine holds its own, and the thread's handlers of exceptions lead to these, the innermost first (`gen_send_ex2`,
Objects/genobject.c). Each frame names the one outwards of it. From 3.12 on the outermost one of an interpreter call names an entry frame
on the C stack, which grows towards lower addresses: even where the entry frames are lost, their addresses say which call came first.

The three orders have to agree, and every word of the data stack has to be some frame's. If not, there is no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import NamedTuple, Optional

from crashkit.interpreter.layouts import Layout
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.threads import linked
from crashkit.interpreter.view import Unreadable, View

_MOST_CHUNKS, _MOST_GENERATORS, _MOST_FRAMES = 4096, 8192, 65536
_MOST_ENTRIES = 64
"""Entry frames between two others."""
_MOST_WORDS = 1 << 20
"""Of one frame."""
_OWNED_BY_THREAD, _OWNED_BY_GENERATOR, _OWNED_BY_C = 0, 1, 3
"""Include/internal/pycore_frame.h, `enum _frameowner`."""


class Order(NamedTuple):
    """How the frames of one thread follow each other."""

    newest: int
    """Address of the thread's current frame."""
    behind: dict[int, int]
    """By the address of a lost entry frame, the frame that made this call; 0 where it is the thread's first."""


class _Chain(NamedTuple):
    """Frames that name each other, innermost first, and what the last one names."""

    frames: list[int]
    end: int


def order(objects: Objects, state: int, current: Optional[int], is_mapped: Callable[[int], bool]) -> Order:
    """The order of the frames of the thread state at this address, whose current frame may be known. Raises Unreadable."""
    layout, view = objects.layout, objects.view
    on_stack, whole = _on_data_stack(objects, state)
    generators = _of_generators(view, layout, state)
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


def _on_data_stack(objects: Objects, state: int) -> tuple[list[int], bool]:
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
            frames = _between(objects, part + chunk.data + (0 if previous else view.word_size), last)
        except Unreadable:
            if end is not None:
                raise
            return found, False
        found += reversed(frames)
        end, whole = None, previous == 0
    return found, whole


def _between(objects: Objects, start: int, end: int) -> list[int]:
    """The frames from `start` to `end`, which fill this memory. Raises Unreadable."""
    view, frame, code = objects.view, objects.layout.frame, objects.layout.code
    if code.frame_slots is None or code.stack_size is None or frame.owner is None:
        raise Unreadable("a version without a data stack")
    found: list[int] = []
    while start < end:
        view.check_time()
        executable = view.word(start + frame.code) & ~7
        words = objects.constants.int32(executable + code.frame_slots) + objects.constants.int32(executable + code.stack_size)
        if not 0 <= words < _MOST_WORDS or view.byte(start + frame.owner) != _OWNED_BY_THREAD or len(found) >= _MOST_FRAMES:
            raise Unreadable(f"no frame at {start:#x}")
        found.append(start)
        start += frame.locals + words * view.word_size
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
        if layout.frame.owner is None or view.byte(frame + layout.frame.owner) != _OWNED_BY_GENERATOR or len(found) >= _MOST_GENERATORS:
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
    first = (view.word(frame + layout.frame.code) & ~7) + layout.code.bytecode
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
        if owner < _OWNED_BY_C:
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
