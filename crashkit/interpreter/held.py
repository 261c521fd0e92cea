"""Thread states by what their own threads hold, for where the interpreter's list of them is damaged or lost.

A thread keeps its state in its own storage: `_Py_tss_tstate` (3.12 and newer, while it holds the GIL), and the value of `autoTSSkey`
(Python/pystate.c; `autoTLSkey` in 3.6), which the C library keeps in the thread's descriptor or beside it. Both lie within a few hundred
bytes of the thread pointer. The functions on its C stack hold it, too, in slots and in the registers that a called function preserves.

Each word there may be anything; it is a thread state if what it points to says so: its ident, its tid (3.11 and newer) and its interpreter.
On a C stack, an old one may be left that is freed: then malloc() keeps links of its own where those to its neighbours were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Optional

from crashkit.interpreter.layouts import Layout
from crashkit.interpreter.search import Ranges, words
from crashkit.interpreter.view import Unreadable, View
from crashkit.memory import MemoryThread

_STORAGE = 2048
"""Bytes on either side of the thread pointer. Which side has the descriptor, and which the variables, depends on the processor."""
_PART = 256
_STACK = 256 << 10
"""Bytes of a C stack, from the stack pointer on: a call of the interpreter takes a few hundred, and one is enough."""
_MOST_STACKS = 16 << 20
"""Bytes of all of them together."""


class Holders:
    """Finds thread states of the threads of one process: of those in `idents`, tids by pthread ident.

    `interpreters` are the addresses of the interpreters that are known; if there are none, any will do.
    """

    def __init__(self, view: View, layout: Layout, interpreters: Collection[int], idents: Mapping[int, int]) -> None:
        self._view, self._layout = view, layout
        self._interpreters = frozenset(interpreters)
        self._ident_of = {tid: ident for ident, tid in idents.items()}
        self._mapped = Ranges(view.memory, writable=True)
        self._room = _MOST_STACKS

    def states(self, list_is_whole: bool) -> list[tuple[int, int]]:
        """The addresses of an interpreter and of a thread state of it, thread by thread.

        What a thread has in its storage is the answer; C stacks are searched where that is lost, or the interpreter's list is not whole. A
        list that looks whole is not if one of these threads has a state that belongs into it.
        """
        threads = [thread for thread in self._view.memory.threads() if thread.tid in self._ident_of] if self._view.word_size == 8 else []
        found = {thread.tid: self._of_thread(thread, list_is_whole) for thread in threads}
        if list_is_whole and any(found.values()):
            found.update({thread.tid: self._of_thread(thread, False) for thread in threads if not found[thread.tid]})
        return [one for states in found.values() for one in states.items()]

    def _of_thread(self, thread: MemoryThread, list_is_whole: bool) -> dict[int, int]:
        storage = self._storage(thread)
        states = self._one_of_each(storage or (), thread.tid, is_linked=list_is_whole)
        if not states and (storage is None or not list_is_whole):
            states = self._one_of_each([*(storage or ()), *self._frames(thread)], thread.tid, is_linked=True)
        return states

    def _storage(self, thread: MemoryThread) -> Optional[Sequence[int]]:
        """The words around the thread pointer; None if it is not known, or none are there."""
        memory = self._view.memory
        pointer = thread.registers.get(memory.architecture.thread_pointer or "", 0) & ~7
        # Nothing need be mapped in front of a descriptor, or behind it.
        found = [memory.read(start, _PART) for start in range(pointer - _STORAGE, pointer + _STORAGE, _PART)] if pointer > _STORAGE else []
        return words(memory, b"".join(part[: len(part) // 8 * 8] for part in found)) if any(found) else None

    def _frames(self, thread: MemoryThread) -> Iterator[int]:
        """The thread's registers, then the words of its C stack."""
        memory = self._view.memory
        yield from thread.registers.values()
        pointer = thread.registers.get(memory.architecture.stack_pointer, 0) & ~7
        data = memory.read(pointer, min(_STACK, self._room)) if self._mapped.holds(pointer) else b""
        self._room -= len(data)
        yield from words(memory, data)

    def _one_of_each(self, candidates: Iterable[int], tid: int, is_linked: bool) -> dict[int, int]:
        """By interpreter, the one candidate that is a state of this thread; nothing of an interpreter of which there are several.

        `is_linked`: its links have to be sound, as those of a freed one are not.
        """
        found: dict[int, list[int]] = {}
        for word in dict.fromkeys(candidates):
            if word % 8 == 0 and self._mapped.holds(word) and self._is_state(word, tid, is_linked):
                found.setdefault(self._view.word(word + self._layout.thread.interpreter), []).append(word)
        return {interpreter: states[0] for interpreter, states in found.items() if len(states) == 1}

    def _is_state(self, address: int, tid: int, is_linked: bool) -> bool:
        view, thread = self._view, self._layout.thread
        try:
            if view.word(address + thread.ident) != self._ident_of[tid]:
                return False
            if thread.native_id is not None and view.word(address + thread.native_id) != tid:
                return False
            interpreter = view.word(address + thread.interpreter)
            if interpreter not in self._interpreters and (self._interpreters or interpreter % 8 or not self._mapped.holds(interpreter)):
                return False
            return not is_linked or all(
                self._is_neighbour(view.word(address + link), interpreter) for link in (thread.next, thread.previous)
            )
        except Unreadable:
            return False

    def _is_neighbour(self, address: int, interpreter: int) -> bool:
        """Whether a thread state may have this one beside it in the list: none, one that is lost, or one of the same interpreter."""
        if address == 0:
            return True
        if address % 8 or not self._mapped.holds(address):
            return False
        try:
            return self._view.word(address + self._layout.thread.interpreter) == interpreter
        except Unreadable:
            return True
