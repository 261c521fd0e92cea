"""What the heap shows of a block that free() refused, where glibc's message may mean a double free or a damaged header."""

from __future__ import annotations

import pytest

from crashkit.pipeline import Options, analyze

from ..crashes import c_crash, needs_x86_64

pytestmark = needs_x86_64()


@pytest.mark.parametrize(
    ("kind", "message", "found", "told"),
    [
        ("twice", "(!prev)", ("heap-corruption-double-free", "certain"), "is in the allocator's list of free blocks already"),
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
