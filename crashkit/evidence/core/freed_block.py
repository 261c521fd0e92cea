"""A pointer that was taken from a block which had been freed: it is the allocator's link to the next free block.

glibc keeps small free blocks in lists, whose links are the first word of each block; since 2.32 a link is mixed with its own address
(`PROTECT_PTR`, malloc/malloc.c). Of an object of C++ that word was the pointer to its table of virtual functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from crashkit.arch.operands import Access
from crashkit.memory import Memory, mapping_at, word_at
from crashkit.model import Mapping as Range
from crashkit.model import Signal

_BAD = frozenset({"unmapped", "non-canonical"})
_MIXED_WITH = 12
"""Bits by which the address is shifted before it is mixed into the link."""
_ALIGNMENT = 16


def freed_block(
    memory: Memory, signal: Signal, accesses: Sequence[Access], registers: Mapping[str, int], mappings: Sequence[Range]
) -> Optional[int]:
    """The address of the block whose first word was used as a pointer, in the fault that the signal tells of; None if there is none."""
    # A call through the link may lead anywhere: where addresses are small, the link is one of memory, too.
    if (signal.reason not in _BAD and signal.access != "execute") or memory.word.size != 8:
        return None
    pointers = {value for access in accesses if access.base is not None and (value := registers.get(access.base)) is not None}
    blocks = [value for value in dict.fromkeys(registers.values()) if value and value % _ALIGNMENT == 0 and _is_heap(value, mappings)]
    return next((block for block in blocks if (link := word_at(memory, block)) in pointers and _links(block, link or 0, mappings)), None)


def _links(block: int, link: int, mappings: Sequence[Range]) -> bool:
    """Whether this is a link in this block: the last one of its list, or one to another place where blocks may be."""
    following = link ^ block >> _MIXED_WITH
    return following == 0 or (following != block and following % _ALIGNMENT == 0 and _is_heap(following, mappings))


def _is_heap(address: int, mappings: Sequence[Range]) -> bool:
    mapping = mapping_at(mappings, address)
    # The heaps of other threads have no name.
    return mapping is not None and (mapping.permissions or "").startswith("rw") and mapping.path in (None, "", "[heap]")
