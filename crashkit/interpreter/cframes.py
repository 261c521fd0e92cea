"""The innermost frame of a thread whose state is lost, of 3.11 and 3.12: its C stack says it.

Each call of the interpreter has a `_PyCFrame` on the C stack (`_PyEval_EvalFrameDefault`, Python/ceval.c): the call's current frame, then
the `_PyCFrame` of the call further out. The thread's first one is in its state. What is left of calls that returned may lie among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from crashkit.interpreter.c_stacks import interrupted
from crashkit.interpreter.layouts import Layout
from crashkit.interpreter.search import Ranges, words
from crashkit.memory import Memory

_STACK, _MOST_STACKS = 256 << 10, 4 << 20
"""Bytes of a C stack, and of all of them."""
_MOST_FRAMES = 256
"""Frames that one C stack names."""


class CStacks:
    """Looks for them on the C stacks of one process. `runs` says whether a running frame is at an address."""

    def __init__(self, memory: Memory, layout: Layout, runs: Callable[[int], bool]) -> None:
        self._memory, self._runs = memory, runs
        # Up to 3.10 it has no frame, and from 3.13 on there is none.
        self._is_known = layout.cframe is not None and layout.cframe.frame is not None and memory.word.size == 8
        self._mapped = Ranges(memory, writable=True)
        self._room = _MOST_STACKS

    def frames(self, registers: Mapping[str, int]) -> list[int]:
        """The running frames that are named on a C stack by what may be a `_PyCFrame`, the innermost of these first."""
        if not self._is_known:
            return []
        names = self._memory.architecture
        start = interrupted(self._memory, registers.get(names.stack_pointer, 0)) & ~7
        mapping = self._mapped.at(start)
        if mapping is None:
            return []
        # The C library has its own data behind a thread's stack, and the kernel makes one mapping of what lies behind that.
        descriptor = registers.get(names.thread_pointer or "", 0)
        end = min(descriptor if descriptor > start else mapping.end, mapping.end)
        stack = words(self._memory, self._memory.read(start, min(end - start, _STACK, self._room)))
        self._room -= 8 * len(stack)
        found: list[int] = []
        for index, (frame, previous) in enumerate(pairwise(stack)):
            if frame % 8 or previous % 8 or start <= previous <= start + 8 * index or len(found) >= _MOST_FRAMES:
                continue
            if self._mapped.holds(frame) and self._mapped.holds(previous) and self._runs(frame):
                found.append(frame)
        return found
