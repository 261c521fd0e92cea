"""What the heap shows of a block that free() refused, where glibc's message may mean a double free or a damaged header."""

from __future__ import annotations

import struct

import pytest

from crashkit.evidence.core.freed_chunk import freed_chunk
from crashkit.evidence.core.modules import LoadedModule
from crashkit.evidence.core.walk import Frame
from crashkit.pipeline import Options, analyze

from ..crashes import c_crash, needs_x86_64
from .test_cxx_exception_damage import HEAP, PAGE, STACK, Memory, placed

pytestmark = needs_x86_64()


@pytest.mark.parametrize(
    ("kind", "message", "found", "told"),
    [
        ("twice", "(!prev)", ("heap-corruption-double-free", "certain"), "is in the allocator's list of free blocks already"),
        ("merged", "(!prev)", ("heap-corruption-double-free", "certain"), "is in a free block of the allocator's already"),
        ("reused", "(!prev)", ("heap-corruption-double-free", "certain"), "is in a free block of the allocator's already"),
        ("off_by_one", "(!prev)", ("heap-corruption-overflow", "likely"), "says that it is free, but no list has it"),
        ("past_end", "(!prev)", ("heap-corruption-overflow", "likely"), "no header stands at 0x"),
        ("text", "(out)", ("heap-corruption-overflow", "likely"), "has a size that no block has, 0x4141414141414140"),
    ],
)
def test_a_block_that_free_refused(kind: str, message: str, found: tuple[str, str], told: str) -> None:
    """Without a debugger: the C library needs no symbols but its exported ones."""
    crash = analyze(c_crash("heap.c", kind).core, options=Options(gdb=None))
    assert crash.log[0].text == f"double free or corruption {message}"
    assert (crash.findings[0].id, crash.findings[0].confidence) == found
    assert told in crash.findings[0].summary


@pytest.mark.parametrize(
    ("following", "verdict"),
    [(0x41, None), (0x4141414141414141, "behind")],
)
def test_a_block_that_two_mappings_share(following: int, verdict: str | None) -> None:
    """The kernel divides a heap where part of it is to have huge pages (madvise(2)); a block's size is none the worse for that."""
    size = 2 * PAGE
    memory = Memory(placed(PAGE, {8: struct.pack("<Q", size | 1)}))
    memory.parts[HEAP + PAGE] = placed(2 * PAGE, {PAGE + 8: struct.pack("<Q", following)})
    registers = {"rbx": HEAP, "rbp": size, "r12": HEAP + size}
    frames = [Frame(0, registers, None, None, False), Frame(0, {}, None, None, True)]
    found = freed_chunk(frames, ["_int_free", "free"], memory)
    assert found is not None and (found.address, found.verdict) == (HEAP + 16, verdict)


LIBC, PROGRAM = (LoadedModule(path, base, base + 0x1000, 0, None) for path, base in (("/lib/libc.so.6", 0x1000), ("/srv/app", 0x4000)))


@pytest.mark.parametrize(
    ("chunk", "size", "found"),
    [(HEAP, 0x120, True), (HEAP, 0, False), (HEAP, HEAP + 64, False), (STACK, 0x120, False)],
    ids=["block", "no size", "an address", "on the stack"],
)
def test_free_that_has_left_the_stack(chunk: int, size: int, found: bool) -> None:
    """From glibc 2.42 on free() jumps to what does the work, which keeps only the block and its size; what else may look so is none."""
    header = {8: struct.pack("<Q", size | 1)}
    memory = Memory(placed(PAGE, header if chunk == HEAP else {}), placed(PAGE, header if chunk == STACK else {}))
    frames = [
        Frame(0, {"rsp": STACK + 64}, LIBC, None, False),
        Frame(0, {"rbx": chunk, "rbp": size}, LIBC, None, True),
        Frame(0, {"rbx": HEAP + 32, "rbp": size}, PROGRAM, None, True),
    ]
    block = freed_chunk(frames, ["raise", None, "main"], memory)
    assert (block and (block.address, block.size)) == ((chunk + 16, size) if found else None)
