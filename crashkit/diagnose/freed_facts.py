"""A pointer that is no block of the heap, given to free() or realloc(), where glibc crashed before it noticed, and notes of the allocator's
that lead nowhere: malloc/malloc.c and arena.c. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Optional

from crashkit.diagnose.case import MEMORY_FAULTS, Case, Native, Stack
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import Address, Evidence
from crashkit.model import Mapping as Range
from crashkit.naming.functions import libc_name
from crashkit.regex import regex

_ALLOCATES = regex(r"(?:__|__libc_)?(?:malloc|calloc|realloc|memalign|posix_memalign|aligned_alloc|valloc)")
_FREES = regex(r"(?:__|__libc_)?(?:free|cfree)")
_LIBC = regex(r"(?:^|/)libc(?:-[\d.]{3,8})?\.so")
_TRAMPOLINES = regex(r"(?:^|/)libpthread[.-]")
"""Where a handler returns to, up to glibc 2.33: the first frame of a stack that it printed."""
_MOST_INNER = 4
"""Functions within each other below malloc(): _int_malloc(), malloc_consolidate(), unlink_chunk(); and where a handler returns to."""
_LOOKS = {
    **dict.fromkeys(("arena_for_chunk", "heap_for_ptr", "_int_free", "_int_free_chunk", "free", "cfree"), "free"),
    **dict.fromkeys(("realloc", "_int_realloc"), "realloc"),
    "musable": "malloc_usable_size",
    "malloc_usable_size": "malloc_usable_size",
}
"""Functions that look at a block's size or arena, and the one of the manual that does so with them."""
_HEAP = 64 << 20
"""Bytes of a heap of an arena: what manages it is at the next lower multiple (HEAP_MAX_SIZE)."""
_OF_ARENA = 0x40
"""Bytes in which free() looks for the arena there."""
_SIZE = 8
"""Bytes before a block, in which its size is: free() reads it first."""
_NOT_THERE = frozenset({"null-pointer", "unmapped", "non-canonical"})
_WORD = 16
"""Bytes of a chunk's head, to which its address is aligned."""
_POINTER = regex(r"(?:ptr@entry=)?(0x[0-9a-f]{1,16})\b")


def freed_no_block(case: Case) -> Outcome:
    """The crashed thread failed in glibc's free() or realloc(), where it looks for the size or arena of a block in a register."""
    signal, stack = case.crash.signal, case.crashed
    if signal is None or signal.name not in MEMORY_FAULTS or signal.address is None or stack is None:
        return unknown("the fault address")
    first = stack.innermost
    if first is None or _looking(first) is None:
        return no("it did not fail in free() or realloc()")
    given = signal.address + _SIZE
    if given in stack.thread.registers.values() and signal.reason in _NOT_THERE:
        return _told(stack, first, f"was given {given:#x}, where there is no memory")
    if signal.address % _HEAP >= _OF_ARENA:
        return no("the fault address is not where an arena would be")
    chunks = [chunk for chunk in _pointers(first, stack.thread.registers) if 0 < chunk - signal.address < _HEAP and chunk % _WORD == 0]
    places = {chunk: one for chunk in chunks for one in case.crash.mappings if one.start <= chunk < one.end and "x" not in _may(one)}
    if not places:
        return unknown("which pointer was freed")
    text = "was given a pointer that is none of its blocks"
    if len(places) == 1:
        ((chunk, mapping),) = places.items()
        text = f"was given {chunk + _WORD:#x}, which is in {_name(mapping, stack.thread.registers)}"
    return _told(stack, first, text)


def unnamed_below_malloc(case: Case) -> Outcome:
    """The crashed thread failed at an address in functions of the C library without names, which malloc() or a like one had called."""
    return _unnamed_below(case, _ALLOCATES, 1)


def unnamed_below_free(case: Case) -> Outcome:
    """As `unnamed_below_malloc`, of free(): in two such functions, as one may be where a handler of the signal returns to."""
    return _unnamed_below(case, _FREES, 2)


def _unnamed_below(case: Case, called: re.Pattern[str], least: int) -> Outcome:
    signal, stack = case.crash.signal, case.crashed
    if signal is None or signal.name not in MEMORY_FAULTS or signal.address is None or stack is None:
        return unknown("the fault address")
    natives = stack.natives
    if len(natives) > 1 and not natives[0].name and _TRAMPOLINES.search(natives[0].module) and natives[0].module != natives[1].module:
        natives = natives[1:]
    inner = list(takewhile(lambda native: not native.name and _LIBC.search(native.module), natives))
    caller = natives[len(inner)] if len(inner) < len(natives) else None
    if not least <= len(inner) <= _MOST_INNER or caller is None or not _LIBC.search(caller.module) or not called.fullmatch(caller.name):
        return no("it did not fail in functions without names below the allocator's")
    evidence = Evidence(text=f"below {caller.name}, at {signal.address:#x}", thread=stack.thread.tid, frame=inner[0].index)
    return Outcome(True, (evidence,))


def link_of_free_block(case: Case) -> Outcome:
    """The pointer that failed was the first word of a block which had been freed: the allocator's link to the next free one."""
    signal = case.crash.signal
    if signal is None or signal.name not in MEMORY_FAULTS or signal.reason is None:
        return unknown("the fault address")
    if signal.freed is None:
        return no("the pointer is no link between free blocks")
    block = f"{signal.freed:#x}"
    return Outcome(True, (Evidence(text=f"the first word of the block at {block} is a link between free blocks"),), {"block": block})


def _told(stack: Stack, frame: Native, text: str) -> Outcome:
    # arena_for_chunk() looks for both: the outermost of the allocator's frames was called.
    *_, called = takewhile(bool, map(_looking, stack.natives))
    evidence = Evidence(text=f"{called}() {text}", thread=stack.thread.tid, frame=frame.index)
    return Outcome(True, (evidence,), {"end": f"{called}() crashed", "text": f"it {text}"})


def _looking(frame: Native) -> Optional[str]:
    return _LOOKS.get(libc_name(frame.name).removeprefix("__GI_"))


def _pointers(frame: Native, registers: Mapping[str, Address]) -> list[int]:
    """The chunk that a debugger shows, else what may be it: what is in the registers."""
    shown = _POINTER.match(frame.frame.args.get("ptr", ""))
    return [int(shown[1], 16)] if shown is not None else [int(value) for value in registers.values()]


def _may(mapping: Range) -> str:
    return mapping.permissions or ""


def _name(mapping: Range, registers: Mapping[str, Address]) -> str:
    """`the thread's stack`, a file's name, or that the memory has none."""
    if any(mapping.start <= registers[name] < mapping.end for name in ("rsp", "sp") if name in registers):
        return "the thread's stack"
    return (mapping.path or "").rpartition("/")[2] or "memory without a name"


def freed_block_is_free(case: Case) -> Outcome:
    """The block that free() refused is in the allocator's list of free blocks."""
    return _of_heap(case, "heap-freed-twice", "the core does not show the block in a list of free blocks")


def freed_block_is_damaged(case: Case) -> Outcome:
    """The header of the block that free() refused, or the one behind it, is none."""
    return _of_heap(case, "heap-damaged", "the core does not show a damaged header")


def _of_heap(case: Case, kind: str, why: str) -> Outcome:
    line = next((line for line in case.crash.log if line.kind == kind), None)
    return Outcome(True, (Evidence(text=line.text),)) if line is not None else no(why)


FREED_FACTS = {
    "freed-block-is-free": freed_block_is_free,
    "freed-block-is-damaged": freed_block_is_damaged,
    "link-of-free-block": link_of_free_block,
    "freed-no-block": freed_no_block,
    "unnamed-below-malloc": unnamed_below_malloc,
    "unnamed-below-free": unnamed_below_free,
}
