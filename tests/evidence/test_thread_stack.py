"""Where a thread's stack lies, from glibc's descriptor; test_fault_crashes.py has real ones."""

from __future__ import annotations

import io
import struct
from itertools import pairwise
from pathlib import Path

import pytest

from crashkit.evidence.core.core import Core, open_core
from crashkit.evidence.core.thread_stack import ThreadStack, set_apart, thread_stack
from crashkit.model import Address, Mapping
from tests.crashes import an_interpreter, needs_x86_64, python_crash
from tests.evidence import synthetic

START, SIZE, GUARD = 0x7F00_0000_0000, 0x801000, 0x1000
THREAD = START + SIZE - 0x940
PLACE = 0x690


def core_with(words: tuple[int, ...], machine: int = synthetic.EM_X86_64) -> Core:
    page = bytearray(START + SIZE - THREAD)
    struct.pack_into("<Q", page, 0x10, THREAD)
    struct.pack_into(f"<{len(words)}Q", page, PLACE, *words)
    notes = synthetic.prstatus(7, range(27))
    data = synthetic.core(machine, notes, [synthetic.Load(THREAD, bytes(page), 6)])
    core = open_core(io.BytesIO(data), Path("core"), len(data))
    assert core is not None
    return core


def test_the_three_words() -> None:
    assert thread_stack(core_with((START, SIZE, GUARD, GUARD)), THREAD) == ThreadStack(START, START + SIZE, GUARD)
    assert thread_stack(core_with((START, SIZE, 0, 0)), THREAD) == ThreadStack(START, START + SIZE, 0)


@pytest.mark.parametrize(
    "words",
    [
        (0, SIZE, GUARD),  # the main thread
        (START + 8, SIZE, GUARD),
        (START, SIZE - 0x2000, GUARD),  # ends before the descriptor
        (THREAD + 0x1000 & ~0xFFF, SIZE, GUARD),
        (START, SIZE, SIZE),
        (),
    ],
)
def test_words_that_tell_no_stack(words: tuple[int, ...]) -> None:
    assert thread_stack(core_with(words), THREAD) is None


def test_where_it_is_not_looked_for() -> None:
    words = (START, SIZE, GUARD)
    assert thread_stack(core_with(words, synthetic.EM_AARCH64), THREAD) is None
    assert thread_stack(core_with(words), None) is None
    assert thread_stack(core_with(words), 0x1000) is None


def space(*rows: tuple[int, int, str | None]) -> list[Mapping]:
    return [Mapping(start=Address(start), end=Address(end), permissions=permissions, path=None) for start, end, permissions in rows]


def test_neighbours_in_one_mapping() -> None:
    stack = ThreadStack(0x10000, 0x20000, 0x1000)
    inside = space((0x1000, 0x2000, "r--"), (0x8000, 0x30000, "rw-"))
    apart = [(0x8000, 0x10000, "rw-"), (0x10000, 0x11000, None), (0x11000, 0x20000, "rw-"), (0x20000, 0x30000, "rw-")]
    assert set_apart(inside, stack) == space((0x1000, 0x2000, "r--"), *apart)
    assert set_apart(inside, None) == inside
    assert set_apart(space((0x10000, 0x20000, "rw-")), stack) == space(*apart[1:3])
    before = space((0x10000, 0x11000, "---"), (0x11000, 0x20000, "rw-"))
    assert set_apart(before, stack) == before, "an older glibc's guard is a mapping already"


@needs_x86_64()
def test_every_thread_of_a_process() -> None:
    """All but the main thread have one, which holds the stack pointer; no two overlap."""
    path = python_crash("threads.py", python=an_interpreter()).core
    with path.open("rb") as file:
        core = open_core(file, path, path.stat().st_size)
        assert core is not None
        registers = [status.registers for status in core.statuses]
        stacks = [thread_stack(core, one["fs_base"]) for one in registers]
    assert stacks.count(None) == 1 and len(stacks) == 7
    found = sorted((stack for stack in stacks if stack), key=lambda stack: stack.start)
    assert all(below.end <= above.start for below, above in pairwise(found))
    assert all(stack.start + stack.guard <= one["rsp"] < stack.end for one, stack in zip(registers, stacks, strict=True) if stack)
