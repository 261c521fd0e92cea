"""Finds the interpreters of a process: through `_PyRuntime`, or by what its memory holds.

`_PyRuntime` is found by its section (`.PyRuntime`), its symbol, or its first bytes (`_Py_DebugOffsets`, 3.13 and newer), else by the
interpreter states that the module's variables point to: an interpreter's first thread state points back to it. Where nothing points to them
because the end of a core is missing, thread states are found by their thread's ident.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Optional

import msgspec

from crashkit.elf.file import open_elf
from crashkit.elf.symbols import SymbolTable
from crashkit.evidence.core.modules import LoadedModule
from crashkit.interpreter.held import Holders
from crashkit.interpreter.layouts import COOKIE, Layout, Version, layout_of, version_of, versions, with_debug_offsets
from crashkit.interpreter.search import Ranges, heap, variables, words
from crashkit.interpreter.threads import interpreters, linked, states_of
from crashkit.interpreter.view import Unreadable, View

_RUNTIME = "_PyRuntime"
_HEAD_36, _GIL_36 = "interp_head", ("gil_locked", "gil_last_holder")
_GIL_WAITERS_36 = ("gil_cond", "gil_mutex", "switch_cond", "switch_mutex")
_FUTEXES = 40
"""Bytes of a condition or a mutex in which a futex may lie."""
_MOST_STATES = 20_000


class Module(msgspec.Struct, frozen=True):
    """A module that may contain CPython."""

    loaded: LoadedModule
    file: Optional[Path]
    """The same file on this machine."""


class Found(NamedTuple):
    """Where CPython's state is."""

    version: Version
    layout: Layout
    runtime: Optional[int]
    """Address of `_PyRuntime`; None if it is lost, or of a version that has none."""
    interpreters: tuple[int, ...]
    """Addresses of the interpreter states; none where they are lost."""
    states: tuple[int, ...] = ()
    """Thread states, where the interpreter is lost. Where they are, too, only running frames may be found."""
    gil: Optional[tuple[int, int]] = None
    """Addresses of `gil_locked` and `gil_last_holder` (3.6)."""
    gil_waiters: tuple[range, ...] = ()
    """Where threads wait for the GIL (3.6)."""


def find(view: View, modules: Sequence[Module], version: Optional[Version], idents: Mapping[int, int]) -> Optional[Found]:
    """Find CPython in one of these modules, the likeliest first. `version` may be unknown; `idents` are tids by pthread ident."""
    for module in modules:
        for address in addresses_of(module, _RUNTIME):
            if found := _of_runtime(view, address, version, idents):
                return found
        for head in addresses_of(module, _HEAD_36) if version is None or version < (3, 7) else ():
            if found := _of_36(view, module, head, idents):
                return found
    for module in modules:
        if found := _by_first_bytes(view, module, idents) or _by_variables(view, module, version, idents):
            return found
    return _by_idents(view, version, idents) if version else None


class Absent(Enum):
    """Why there is no interpreter, by CPython's own state."""

    NEVER_STARTED = "Py_Initialize() has not made one yet"
    ENDED = "Py_Finalize() has deleted it"


def absent(view: View, modules: Sequence[Module], version: Optional[Version]) -> Optional[Absent]:
    """Why CPython, which is in one of these modules, has no interpreter (3.7 and newer); None if it may have one."""
    for address in (address for module in modules for address in addresses_of(module, _RUNTIME)):
        try:
            known = _layout_at(view, address, version)
            runtime = known[1].runtime if known is not None else None
            if runtime is None:
                continue
            if any(view.word(address + field) for field in (runtime.interpreters, runtime.main_interpreter)):
                return None
            return Absent.ENDED if view.word(address + runtime.finalizing) else Absent.NEVER_STARTED
        except Unreadable:
            continue
    return None


def addresses_of(module: Module, name: str) -> list[int]:
    """Where a variable is, by the module's file; nothing if that does not name it."""
    if module.file is None:
        return []
    found = []
    try:
        elf = open_elf(module.file)
        section = elf.section(f".{name.lstrip('_')}") if elf else None
        if section is not None and section.address:
            found.append(module.loaded.bias + section.address)
        else:
            symbol = SymbolTable.load(module.file).variable(name)
            found += [module.loaded.bias + symbol.start] if symbol else []
    except OSError:
        pass
    return found


def _layout_at(view: View, runtime: int, version: Optional[Version]) -> Optional[tuple[Version, Layout]]:
    """The version and layout of the `_PyRuntime` at this address. Raises Unreadable."""
    own = version_of(view.data(runtime, 24), view.memory.word)
    if own is None:
        layout = layout_of(version) if version else None
        return (version, layout) if version and layout else None
    layout = layout_of(own)
    if layout is None:
        return None
    return own, with_debug_offsets(layout, view.data(runtime, layout.debug_offsets["size"]), view.memory.word)


def _of_runtime(view: View, runtime: int, version: Optional[Version], idents: Mapping[int, int]) -> Optional[Found]:
    try:
        known = _layout_at(view, runtime, version)
        if known is None or known[1].runtime is None:
            return None
        head = view.word(runtime + known[1].runtime.interpreters)
    except Unreadable:
        return None
    states = interpreters(view, known[1], head)
    return Found(*known, runtime, tuple(states)) if _are_interpreters(view, known[1], states, idents) else None


def _of_36(view: View, module: Module, head: int, idents: Mapping[int, int]) -> Optional[Found]:
    version = Version(3, 6)
    layout = layout_of(version)
    if layout is None:
        return None
    try:
        states = interpreters(view, layout, view.word(head))
    except Unreadable:
        return None
    if not _are_interpreters(view, layout, states, idents):
        return None
    gil = [address for name in _GIL_36 for address in addresses_of(module, name)]
    waiters = tuple(range(address, address + _FUTEXES) for name in _GIL_WAITERS_36 for address in addresses_of(module, name))
    return Found(version, layout, None, tuple(states), gil=(gil[0], gil[1]) if len(gil) == 2 else None, gil_waiters=waiters)


def _are_interpreters(view: View, layout: Layout, states: Sequence[int], idents: Mapping[int, int]) -> bool:
    """Whether any of these is an interpreter: by its list of thread states or, where that is damaged, by what the threads hold."""
    if any(_is_interpreter(view, layout, one) for one in states):
        return True
    return bool(states and Holders(view, layout, states, idents).states(False))


def _is_interpreter(view: View, layout: Layout, address: int) -> bool:
    """Whether the thread states of the interpreter at `address` point back to it."""
    try:
        head = view.word(address + layout.interpreter.threads)
        return head != 0 and view.word(head + layout.thread.interpreter) == address
    except Unreadable:
        return False


def _runs(view: View, layout: Layout, interpreter: int, idents: Mapping[int, int]) -> bool:
    """Whether one of the interpreter's thread states is of a thread that the process has.

    A doubly linked list of something else has none.
    """
    for state in states_of(view, layout, interpreter):
        try:
            if view.word(state + layout.thread.ident) in idents:
                return True
        except Unreadable:
            return False
    return False


def _by_first_bytes(view: View, module: Module, idents: Mapping[int, int]) -> Optional[Found]:
    found = []
    for start, data in variables(view.memory, module.loaded):
        at = data.find(COOKIE)
        while at >= 0:
            if one := _of_runtime(view, start + at, None, idents):
                found.append(one)
            at = data.find(COOKIE, at + 1)
    return found[0] if len(found) == 1 else None


def _by_variables(view: View, module: Module, version: Optional[Version], idents: Mapping[int, int]) -> Optional[Found]:
    """By a pair of words that point to the first and the main interpreter (3.7 and newer), or one to the only interpreter (3.6)."""
    found: dict[tuple[Version, int], Found] = {}
    # Newer ones are known by their first bytes, which lie among the same variables.
    candidates = [one for one in versions() if one < (3, 13) and version in (None, one)]
    mapped = Ranges(view.memory, writable=True)
    for start, data in variables(view.memory, module.loaded):
        if view.word_size != 8:
            return None
        found_words = words(view.memory, data)
        pointers = {word for word in set(found_words) if word % 8 == 0 and mapped.holds(word)}
        for one in candidates:
            layout = layout_of(one)
            if layout is None:
                continue
            states = {pointer for pointer in pointers if _is_interpreter(view, layout, pointer) and _runs(view, layout, pointer, idents)}
            for index, word in enumerate(found_words) if states else ():
                if word not in states:
                    continue
                view.word(start + 8 * index)
                if layout.runtime is None:
                    found.setdefault((one, word), Found(one, layout, None, tuple(interpreters(view, layout, word))))
                    continue
                runtime = start + 8 * index - layout.runtime.interpreters
                main = index + (layout.runtime.main_interpreter - layout.runtime.interpreters) // 8
                if main < len(found_words) and found_words[main] in states and (here := _of_runtime(view, runtime, one, idents)):
                    found.setdefault((one, runtime), here)
    return _only(list(found.values()))


def _only(found: Sequence[Found]) -> Optional[Found]:
    """The one answer; of several with the same interpreters the one that a runtime led to."""
    if len({(one.version, frozenset(one.interpreters)) for one in found}) != 1:
        return None
    runtimes = {one.runtime for one in found}
    return found[0] if len(runtimes) == 1 else found[0]._replace(runtime=None)


def _by_idents(view: View, version: Version, idents: Mapping[int, int]) -> Optional[Found]:
    """Thread states in the heap, which lies early in a core: the interpreter's variables may be lost, and the interpreter with them."""
    layout = layout_of(version)
    if layout is None or not idents or view.word_size != 8:
        return None
    states = dict.fromkeys(state for _, state in Holders(view, layout, (), idents).states(False))
    found = _of_states(view, version, layout, states, idents)
    if found and (found.interpreters or len(states) == len(idents)):
        return found
    wanted = set(idents)
    for start, piece in heap(view):
        if wanted.isdisjoint(piece):
            continue
        for index, word in enumerate(piece):
            address = start + 8 * index - layout.thread.ident
            if word in wanted and _is_state(view, layout, address, idents[word]):
                states.setdefault(address)
        found = _of_states(view, version, layout, states, idents)
        if found and (found.interpreters or layout.thread.native_id is not None):
            # One thread state leads to all others.
            return found
    return _of_states(view, version, layout, states, idents) or Found(version, layout, None, ())


def _of_states(view: View, version: Version, layout: Layout, states: Iterable[int], idents: Mapping[int, int]) -> Optional[Found]:
    by_interpreter: dict[int, list[int]] = {}
    for state in states:
        by_interpreter.setdefault(view.word(state + layout.thread.interpreter), []).append(state)
    alive = [one for one in by_interpreter if _is_interpreter(view, layout, one) and _runs(view, layout, one, idents)]
    if alive:
        return Found(version, layout, None, tuple(alive))
    if not by_interpreter:
        return None
    # Other words that equal an ident have something else before and behind them; thread states agree on their interpreter.
    known = dict.fromkeys(by_interpreter[max(by_interpreter, key=lambda one: len(by_interpreter[one]))])
    for state in list(known):
        for link in (layout.thread.next, layout.thread.previous):
            known.update(dict.fromkeys(linked(view, state, link, _MOST_STATES)))
    return Found(version, layout, None, (), tuple(known))


def _is_state(view: View, layout: Layout, address: int, tid: int) -> bool:
    thread = layout.thread
    try:
        if thread.native_id is not None and view.word(address + thread.native_id) != tid:
            return False
        # An element of a list: its neighbours point back to it.
        following, before = view.word(address + thread.next), view.word(address + thread.previous)
        interpreter = view.word(address + thread.interpreter)
        if interpreter == 0 or interpreter % 8:
            return False
        for neighbour, link in ((following, thread.previous), (before, thread.next)):
            if neighbour and _readable(view, neighbour + link) and view.word(neighbour + link) != address:
                return False
        return True
    except Unreadable:
        return False


def _readable(view: View, address: int) -> bool:
    try:
        view.word(address)
    except Unreadable:
        return False
    return True
