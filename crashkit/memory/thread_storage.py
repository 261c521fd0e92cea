"""The thread-local variables of libraries that were loaded at run time, as memory that holds no others.

glibc allocates them with malloc() when the thread first uses one, and keeps for each library where they are and what to free
(`dtv_t`, sysdeps/generic/dl-dtv.h; `allocate_dtv_entry`, elf/dl-tls.c). The size of the allocation is the word before it
(`struct malloc_chunk`, malloc/malloc.c), whose lowest three bits are flags.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from crashkit.memory import Memory, word_at

_MOST_LIBRARIES = 512
_MOST_BESIDES = 256
"""Bytes of the allocation behind the variables: what aligning them took, and what malloc() rounds up."""
_ENTRY, _WORD = 16, 8
_UNALLOCATED = (1 << 64) - 1


def words(memory: Memory, thread_pointer: int, size: int) -> Iterator[int]:
    """The variables, of the thread with this thread pointer, of libraries that have `size` bytes of them (PT_TLS); each value once."""
    for block in _blocks(memory, thread_pointer, size):
        # Most are zero.
        yield from dict.fromkeys(struct.unpack_from(f"{memory.word.order}{len(block) // _WORD}Q", block))


def _blocks(memory: Memory, thread_pointer: int, size: int) -> Iterator[bytes]:
    at = memory.architecture.dynamic_thread_vector
    if at is None or memory.word.size != _WORD:
        return
    vector = word_at(memory, thread_pointer + at)
    entries = memory.read(vector + _ENTRY, _ENTRY * _MOST_LIBRARIES) if vector else b""
    for start, to_free in struct.iter_unpack(memory.word.order + "QQ", entries[: len(entries) // _ENTRY * _ENTRY]):
        if not to_free or start in (0, _UNALLOCATED):
            continue
        chunk = (word_at(memory, to_free - _WORD) or 0) & ~7
        room = to_free - _WORD + chunk - start
        if to_free <= start and size <= room <= size + _MOST_BESIDES:
            yield memory.read(start, size)
