"""What free() found wrong with the block that it was given, where glibc's own words leave it open: `double free or corruption (!prev)`.

Sources: glibc, malloc/malloc.c: `struct malloc_chunk`, `_int_free`. A block begins two words behind its header, `mchunk_prev_size` and
`mchunk_size`; the size of a block that is free is told by the next header, too, and its first two words link it with others of its list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from crashkit.evidence.core.walk import Frame
from crashkit.memory import Memory, mapping_at, word_at
from crashkit.regex import regex

_FREES = regex(r"(?:__libc_|__GI___libc_|c)?free|(?:__libc_)?realloc")
_MOST_FRAMES = 12
_FLAGS, _SMALLEST, _ALIGNMENT = 7, 32, 16
_IN_USE = 1
"""Of the flags in a header: the block before is in use."""
_SIZE, _NEXT, _PREVIOUS, _USER = 8, 16, 24, 16
"""Bytes behind the beginning of the header."""


class FreedChunk(NamedTuple):
    """The block that free() was given."""

    address: int
    """As the program knows it."""
    size: int
    """Of the block with its header, as that says: bytes."""
    verdict: Optional[str]
    """twice: it is free already; merged: it is in a free block; size: its header tells a size that no block has; behind: no header stands
    where it ends; unlisted: that header says it is free, but it is in no free block. None: unknown."""


def freed_chunk(frames: Sequence[Frame], functions: Sequence[Optional[str]], memory: Memory) -> Optional[FreedChunk]:
    """The block that the innermost free() on this stack refused; None if its frame does not keep it."""
    # From glibc 2.42 on free() jumps to what does the work, so that its own frame is gone; the C library's others are there.
    inner = frames[:_MOST_FRAMES]
    is_end = (
        (name is not None and _FREES.fullmatch(name)) or frame.module != frames[0].module
        for frame, name in zip(inner, functions[: len(inner)], strict=True)
    )
    at = next((index for index, ends in enumerate(is_end) if ends), None)
    if at is None or memory.word.size != 8:
        return None
    mappings = memory.mappings()
    stack = mapping_at(mappings, frames[0].registers.get(memory.architecture.stack_pointer, 0))
    for frame in reversed(frames[:at]):
        values = [frame.registers[name] for name in memory.architecture.preserved if name in frame.registers]
        for chunk in values:
            word = word_at(memory, chunk + _SIZE) if chunk and chunk % _ALIGNMENT == 0 else None
            size = word & ~_FLAGS if word is not None else 0
            if not size or size not in values:
                continue
            # The function that checks it has the block and its size at hand, up to glibc 2.41 where it ends, too. Another structure with
            # an address in it can look like that, so that two alone are enough only off the stack, and where the size is no address.
            plausible = mapping_at(mappings, chunk) != stack and mapping_at(mappings, size) is None
            if plausible or (chunk + size) % 2**64 in values:
                return FreedChunk(chunk + _USER, size, _verdict(memory, chunk, size))
    return None


def _verdict(memory: Memory, chunk: int, size: int) -> Optional[str]:
    end = _end_of_heap(memory, chunk)
    if not _SMALLEST <= size <= end - chunk or size % _ALIGNMENT:
        return "size"
    if _is_listed(memory, chunk):
        return "twice"
    behind = word_at(memory, chunk + size + _SIZE)
    if behind is not None and (not _SMALLEST <= behind & ~_FLAGS <= end - chunk - size or behind & ~_FLAGS & _ALIGNMENT - 1):
        return "behind"
    if behind is None or behind & _IN_USE:
        return None
    # free() tells the size of a free block at its end; one that was freed beside another became part of that.
    before = word_at(memory, chunk + size)
    free = chunk + size - before if before else chunk
    return "merged" if free != chunk and _is_listed(memory, free) else "unlisted"


def _is_listed(memory: Memory, chunk: int) -> bool:
    following, previous = word_at(memory, chunk + _NEXT), word_at(memory, chunk + _PREVIOUS)
    if not following or not previous:
        return False
    return word_at(memory, following + _PREVIOUS) == word_at(memory, previous + _NEXT) == chunk


def _end_of_heap(memory: Memory, chunk: int) -> int:
    """Where the memory that can be written ends, whatever the kernel divides it by: NumPy advises it of huge pages for parts of a heap."""
    end = chunk
    for mapping in memory.mappings():
        if mapping.start <= end < mapping.end and (mapping.permissions is None or "w" in mapping.permissions):
            end = mapping.end
    return end
