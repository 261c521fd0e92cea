"""Recognises addresses by their value alone: null pointers plus an offset, main threads' stacks, and the fill bytes of allocators."""

from __future__ import annotations

import msgspec

NULL_AREA = 0x10000
"""Below this address nothing can be mapped (vm.mmap_min_addr, 64 KiB by default): it is a null pointer plus an offset."""

_LONGEST_TABLE = 0x100

END = 1 << 47
"""Where the addresses of a process end on x86-64, and later than they do on AArch64."""
_STACKS = ((0xBF00_0000, 0xC000_0000), (0xFF00_0000, 1 << 32), (0x7F << 32, 1 << 39), (END - (1 << 36), END))
"""Of 32-bit processes, of those with 39 bits (AArch64), and of x86-64."""


class Fill(msgspec.Struct, frozen=True):
    """A byte that allocators write into memory so that its misuse shows."""

    byte: int
    meaning: str
    """Completes "its bytes match ..."."""
    freed: bool = False
    """True if written when memory is freed: finding it shows a use after free."""


# CPython: Objects/obmalloc.c, PYMEM_CLEANBYTE, PYMEM_DEADBYTE, PYMEM_FORBIDDENBYTE. jemalloc: JEMALLOC_FREE_JUNK.
# Chromium's PartitionAlloc (also in V8 and Electron): kQuarantinedByte. Linux's slab poison, which some pools have copied: POISON_FREE.
_FILLS = {
    fill.byte: fill
    for fill in (
        Fill(0xCD, "uninitialized memory from CPython's debug allocator"),
        Fill(0xDD, "memory freed by CPython's debug allocator", freed=True),
        Fill(0xFD, "the guard bytes of CPython's debug allocator"),
        Fill(0xCB, "uninitialized memory from CPython's debug allocator (before 3.8)"),
        Fill(0xDB, "memory freed by CPython's debug allocator (before 3.8)", freed=True),
        Fill(0xFB, "the guard bytes of CPython's debug allocator (before 3.8)"),
        Fill(0x5A, "memory freed by jemalloc", freed=True),
        Fill(0x6B, "memory freed by a pool allocator", freed=True),
        Fill(0xEF, "freed memory that the allocator keeps in quarantine", freed=True),
    )
}


def is_null(address: int) -> bool:
    """Whether the address is a null pointer plus the offset of a field or element."""
    return 0 <= address < NULL_AREA


def is_no_function(address: int) -> bool:
    """Whether a call that leads there was one of a number: nothing can be mapped so low, and a null pointer to a table of functions leads
    lower."""
    return _LONGEST_TABLE <= address < NULL_AREA


def may_be_stack(address: int) -> bool:
    """Whether processes have their main thread's stack there, whose overflow is told in the words for memory that is not mapped."""
    return any(first <= address < end for first, end in _STACKS)


def fill_of(address: int) -> Fill | None:
    """The fill byte that makes up the upper six bytes, because an offset may have been added to the lowest two; None if there is none."""
    upper = (address & (1 << 64) - 1).to_bytes(8, "big")[:6]
    return _FILLS.get(upper[0]) if len(set(upper)) == 1 else None
