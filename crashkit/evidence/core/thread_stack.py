"""Finds a thread's stack in the C library's thread descriptor.

A mapping of the core may contain several stacks: since 2.42, glibc creates the guard with madvise(MADV_GUARD_INSTALL) inside the stack's
own mapping, and the kernel then merges the stacks of several threads into one mapping.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Optional

import msgspec

from crashkit.memory import Memory
from crashkit.model import Address, Mapping

_PAGE = 4096
# Of glibc's struct pthread (nptl/descr.h), which begins at the thread pointer; it is longer than the part that is looked through here.
_DESCRIPTOR = 0x900


class ThreadStack(msgspec.Struct, frozen=True):
    """Address range of one thread's stack, guard included."""

    start: int
    """Start of the guard, the lowest part of the stack."""
    end: int
    guard: int
    """Size of the guard in bytes."""


def thread_stack(memory: Memory, thread_pointer: Optional[int]) -> Optional[ThreadStack]:
    """The stack of the thread; None for the main thread, without glibc, without that memory, or where the thread pointer is no descriptor.

    `stackblock`, `stackblock_size` and `guardsize` are adjacent in the descriptor, at an offset that varies between glibc versions. The
    descriptor is inside the stack, and these are the only three adjacent words that describe a range around it.
    """
    if thread_pointer is None or not memory.architecture.descriptor_at_thread_pointer:
        return None
    data = memory.read(thread_pointer, _DESCRIPTOR)
    words = struct.unpack_from(f"<{len(data) // 8}Q", data)
    for start, size, guard in zip(words, words[1:], words[2:], strict=False):
        if start and not (start | size | guard) % _PAGE and start <= thread_pointer < start + size and guard < size:
            return ThreadStack(start, start + size, guard)
    return None


def set_apart(mappings: Sequence[Mapping], stack: Optional[ThreadStack]) -> list[Mapping]:
    """The mappings, with the stack and its guard split into their own; the guard's permissions are unknown (not the segment's)."""
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
