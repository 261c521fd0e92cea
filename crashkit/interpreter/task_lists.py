"""The lists in which asyncio of CPython 3.14 keeps its tasks: one of each thread, and one for the tasks of threads that have ended.

The module `_asyncio` has the offsets of its own build in its variables (`_Py_AsyncioModuleDebugOffsets`, Modules/_asynciomodule.c, section
`.AsyncioDebug`), which are found by those of a task: the module's definition is among the same variables.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, Optional

import msgspec

from crashkit.interpreter.objects import Objects
from crashkit.interpreter.threads import linked, states_of
from crashkit.interpreter.view import Unreadable
from crashkit.memory import mapping_at

_DEFINITION_AT = 8
"""`PyModuleObject.md_def`, behind PyObject_HEAD."""
_MOST_VARIABLES = 64 << 20
_MOST_OFFSET = 1 << 20


class _Heads(NamedTuple):
    """Offsets: of the list's head in an interpreter state; of the running task and the list's head in a thread state."""

    interpreter: int
    running: int
    thread: int


class Build(msgspec.Struct, frozen=True):
    """What tells the table of one kind of build of 3.14, and what counts without it."""

    of_a_task: tuple[int, ...]
    """Size, `task_name`, `task_awaited_by`, `task_is_task`, `task_awaited_by_is_set`, `task_coro`, `task_node`."""
    heads: _Heads


USUAL = Build((168, 136, 96, 108, 109, 128, 152), _Heads(10880, 872, 880))
FREE_THREADED = Build((192, 152, 112, 124, 125, 144, 168), _Heads(17632, 872, 880))


def build_of(objects: Objects) -> Build:
    """The kind of the process's build."""
    return FREE_THREADED if objects.version.free_threaded else USUAL


class Listed(msgspec.Struct, frozen=True):
    """A task of a list."""

    address: int
    running: bool


def listed(objects: Objects, interpreter: int, most: int) -> Iterator[Listed]:
    """The tasks of one interpreter, running ones first."""
    view, layout = objects.view, objects.layout
    heads, node_at = _heads(objects, interpreter), build_of(objects).of_a_task[-1]
    states = states_of(view, layout, interpreter)
    for state in states:
        try:
            if running := view.word(state + heads.running):
                yield Listed(running, running=True)
        except Unreadable:
            continue
    for head in (interpreter + heads.interpreter, *(state + heads.thread for state in states)):
        # `struct llist_node` (Include/internal/pycore_llist.h): the last one leads back to the head.
        for node in linked(view, head, 0, most):
            if node != head:
                yield Listed(node - node_at, running=False)


def _heads(objects: Objects, interpreter: int) -> _Heads:
    """Those that the process itself tells, else those of a usual build."""
    table = _table(objects, _definition(objects, interpreter))
    if table is None:
        return build_of(objects).heads
    _size, interpreter_head, _thread_size, _loop, running, thread_head = table
    heads = _Heads(interpreter_head, running, thread_head)
    return heads if all(0 < offset < _MOST_OFFSET for offset in heads) else build_of(objects).heads


def _definition(objects: Objects, interpreter: int) -> int:
    """The address of what defines the module `_asyncio`; 0 if it is not known."""
    try:
        module = objects.item(objects.view.word(interpreter + objects.layout.interpreter.modules), "_asyncio")
        return objects.view.word(module + objects.head + _DEFINITION_AT) if module else 0
    except Unreadable:
        return 0


def _table(objects: Objects, definition: int) -> Optional[tuple[int, ...]]:
    """What follows the offsets of a task, in the variables of the module that has this definition."""
    memory = objects.view.memory
    mapping = mapping_at(memory.mappings(), definition)
    if mapping is None:
        return None
    data = memory.read(mapping.start, min(mapping.end - mapping.start, _MOST_VARIABLES))
    wanted = struct.pack(f"{memory.word.order}7Q", *build_of(objects).of_a_task)
    at = data.find(wanted)
    rest = data[at + len(wanted) : at + len(wanted) + 48] if at >= 0 else b""
    return struct.unpack(f"{memory.word.order}6Q", rest) if len(rest) == 48 else None
