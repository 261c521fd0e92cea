"""Where a thread's stack lies, from what the C library noted of it.

A mapping of the core need not be one stack: from 2.42 on glibc makes the guard by madvise(MADV_GUARD_INSTALL), inside the stack's own
mapping, and the kernel then joins the stacks of several threads into one mapping.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, Optional

from crashkit.evidence.core.core import Core
from crashkit.model import Address, Mapping

_PAGE = 4096
# Of glibc's struct pthread (nptl/descr.h), which begins at the thread pointer; it is longer than the part that is looked through here.
_DESCRIPTOR = 0x900


class ThreadStack(NamedTuple):
    """Address range of one thread's stack, guard included."""

    start: int
    """Of the guard, which is the stack's lowest part."""
    end: int
    guard: int
    """Bytes."""


def thread_stack(core: Core, thread_pointer: Optional[int]) -> Optional[ThreadStack]:
    """None for the main thread, without glibc, on another architecture than x86-64, or where the core lacks the place.

    `stackblock`, `stackblock_size` and `guardsize` stand side by side in the descriptor, at an offset that differs from version to
    version; the descriptor itself lies within the stack, and only these three words say so.
    """
    if thread_pointer is None or core.architecture.name != "x86_64":
        return None
    data = core.read(thread_pointer, _DESCRIPTOR)
    words = struct.unpack_from(f"<{len(data) // 8}Q", data)
    for start, size, guard in zip(words, words[1:], words[2:], strict=False):
        if start and not (start | size | guard) % _PAGE and start <= thread_pointer < start + size and guard < size:
            return ThreadStack(start, start + size, guard)
    return None


def set_apart(mappings: Sequence[Mapping], stack: Optional[ThreadStack]) -> list[Mapping]:
    """The mappings with the stack as one of its own, and its guard as another, whose permissions are not known: not the segment's."""
    found = []
    for mapping in mappings:
        if stack is None or not (mapping.start <= stack.start and stack.end <= mapping.end):
            found.append(mapping)
            continue
        inside = stack.start + stack.guard
        pieces = (
            (mapping.start, stack.start, mapping.permissions),
            (stack.start, inside, None),
            (inside, stack.end, mapping.permissions),
            (stack.end, mapping.end, mapping.permissions),
        )
        found += [
            Mapping(start=Address(start), end=Address(end), permissions=permissions, path=mapping.path)
            for start, end, permissions in pieces
            if start < end
        ]
    return found
