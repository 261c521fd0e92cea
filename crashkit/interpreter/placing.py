"""Where on a stack running generators and coroutines belong that nothing led to: they hold their frames themselves.

Each names the frame that runs it, or, from 3.12 on, an entry frame on the C stack, which grows towards lower addresses: the entry frames
of calls further in have lower ones, even where they are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Optional

import msgspec

from crashkit.interpreter.c_stacks import CStack
from crashkit.interpreter.frames import FrameState, Stack

Links = dict[int, int]
"""What the frames at these addresses name as the one outwards of them."""
_MOST_CHAINS = 256


def with_generators(
    stack: Stack,
    chains: Sequence[tuple[FrameState, ...]],
    named: Callable[[FrameState], int],
    is_current: bool,
    c_stack: Optional[CStack],
) -> tuple[Stack, list[tuple[FrameState, ...]]]:
    """The stack with those of these frames of generators in their places that are on it, and the others. Each chain is innermost first.

    `named` reads what a frame names, `is_current` is whether the stack's first frame is the thread's current one, and `c_stack` where the
    thread's C stack is.
    """
    left = list(chains[:_MOST_CHAINS])
    links = {frame.address: named(frame) for part in (stack.inner, stack.outer, *left) for frame in part}
    for place in (_by_names, partial(_by_c_stack, c_stack)):
        for chain in left[:]:
            at = place(links, stack.inner, chain)
            if at is not None and (at > 0 or not is_current):
                stack = msgspec.structs.replace(stack, inner=_inserted(links, stack.inner, at, chain))
                left.remove(chain)
            elif (at := place(links, stack.outer, chain)) is not None:
                stack = msgspec.structs.replace(stack, outer=_inserted(links, stack.outer, at, chain))
                left.remove(chain)
    return stack, [*left, *chains[_MOST_CHAINS:]]


def _by_names(links: Links, frames: Sequence[FrameState], chain: Sequence[FrameState]) -> Optional[int]:
    """The index in these frames before which the chain belongs: next to one that it names, or that names it."""
    end = links[chain[-1].address]
    for index, frame in enumerate(frames):
        if frame.address == end:
            return index
        if links[frame.address] == chain[0].address:
            return index + 1
    return None


def _by_c_stack(c_stack: Optional[CStack], links: Links, frames: Sequence[FrameState], chain: Sequence[FrameState]) -> Optional[int]:
    """The index in these frames before which the chain belongs: it is one call of the interpreter, and the next one began further out."""
    end = links[chain[-1].address]
    if c_stack is None or not c_stack.holds(end):
        return None
    begin: Optional[int] = 0
    for index, frame in enumerate(frames):
        link = links[frame.address]
        if index + 1 < len(frames) and link == frames[index + 1].address:
            continue
        if c_stack.holds(link):
            if link > end:
                return begin
            begin = index + 1
        else:
            # What follows is lost: whether the chain belongs there is not known.
            begin = None
    return None


def _inserted(links: Links, frames: Sequence[FrameState], at: int, chain: Sequence[FrameState]) -> tuple[FrameState, ...]:
    """The frames with the chain, whose ends may have been called without C, or have called so."""
    joined = [*frames[:at], *chain, *frames[at:]]
    for inner in (at - 1, at + len(chain) - 1):
        if 0 <= inner < len(joined) - 1 and links[joined[inner].address] == joined[inner + 1].address:
            joined[inner] = joined[inner]._replace(is_entry=False)
    return tuple(joined)
