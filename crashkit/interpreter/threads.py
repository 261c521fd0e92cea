"""Interpreters, their thread states, who holds the GIL, and what `threading` calls each thread.

Every list is followed to its bounds: where a link is damaged, what was reached stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

import msgspec

from crashkit.interpreter.layouts import Layout
from crashkit.interpreter.objects import EXCEPTION, Objects
from crashkit.interpreter.view import Unreadable, View
from crashkit.limits import MOST_THREADS

_MOST_INTERPRETERS = 256
_MOST_HANDLERS = 100_000
LONGEST_NAME = 200
_MAIN_THREAD = "MainThread"
"""What `threading` calls the main thread at first."""


class ThreadState(msgspec.Struct, frozen=True):
    """One `PyThreadState`."""

    address: int
    ident: int
    """`pthread_self()` of the thread."""
    native_id: Optional[int]
    """The thread's tid, 3.11 and newer."""
    frame: Optional[int]
    """Address of its current frame; 0 if it runs no Python code, None if what leads to it is lost with the C stack (3.11 and 3.12)."""


def linked(view: View, address: int, link: int, most: int) -> Iterator[int]:
    """The addresses of a linked list's elements, as far as it can be followed; `link` is the offset of an element's pointer to the next."""
    seen: set[int] = set()
    while address and address not in seen and len(seen) < most:
        seen.add(address)
        yield address
        view.check_time()
        try:
            address = view.word(address + link)
        except Unreadable:
            return


def interpreters(view: View, layout: Layout, head: int) -> list[int]:
    """All interpreter states from `head` on, main and subinterpreters."""
    return list(linked(view, head, layout.interpreter.next, _MOST_INTERPRETERS))


def states_of(view: View, layout: Layout, interpreter: int) -> list[int]:
    """The addresses of an interpreter's thread states."""
    try:
        head = view.word(interpreter + layout.interpreter.threads)
    except Unreadable:
        return []
    return list(linked(view, head, layout.thread.next, MOST_THREADS))


def is_whole(view: View, layout: Layout, interpreter: int, states: Sequence[int]) -> bool:
    """Whether an interpreter's list of thread states, as `states_of` followed it, ends where a list ends, and all in it are its own."""
    try:
        own = all(view.word(state + layout.thread.interpreter) == interpreter for state in states)
        return own and (view.word(states[-1] + layout.thread.next) if states else view.word(interpreter + layout.interpreter.threads)) == 0
    except Unreadable:
        return False


def read_state(view: View, layout: Layout, address: int) -> ThreadState:
    """The thread state at `address`. Raises Unreadable."""
    thread = layout.thread
    return ThreadState(
        address=address,
        ident=view.word(address + thread.ident),
        native_id=view.word(address + thread.native_id) if thread.native_id is not None else None,
        frame=_frame(view, layout, address),
    )


def _frame(view: View, layout: Layout, address: int) -> Optional[int]:
    thread = layout.thread
    if thread.frame is not None:
        return view.word(address + thread.frame)
    if thread.cframe is None or layout.cframe is None or layout.cframe.frame is None:
        raise Unreadable("a version whose frames are not known")
    cframe = view.word(address + thread.cframe)
    try:
        return view.word(cframe + layout.cframe.frame)
    except Unreadable:
        return None


def handled_exception(objects: Objects, state: int, nothing: int) -> int:
    """The address of the exception that a thread is handling, such as in an `except` block; 0 if there is none.

    The innermost of its handlers that has one (`_PyErr_GetTopmostException`, Python/errors.c). `nothing` is the address of None, which
    stands where there is none; 0 if it is not known. Raises Unreadable.
    """
    view, layout = objects.view, objects.layout
    if layout.thread.handlers is None or layout.handler is None:
        exception = view.word(state + layout.thread.handled) if layout.thread.handled is not None else 0
        return exception if _is_exception(objects, exception, nothing) else 0
    for handler in linked(view, view.word(state + layout.thread.handlers), layout.handler.previous, _MOST_HANDLERS):
        exception = view.word(handler + layout.handler.exception)
        if _is_exception(objects, exception, nothing):
            return exception
    return 0


def pending_exception(objects: Objects, state: int) -> tuple[int, int]:
    """The addresses of the type and of the value of the exception that is set in a thread (`PyErr_Occurred`); 0, 0 if none is.

    Up to 3.11 the value may be the arguments of an exception that was not made yet, or 0. Raises Unreadable.
    """
    view, thread = objects.view, objects.layout.thread
    if thread.pending is None:
        return 0, 0
    value = view.word(state + thread.pending)
    if thread.pending_type is not None:
        return view.word(state + thread.pending_type), value
    return (objects.type_of(value), value) if value else (0, 0)


def _is_exception(objects: Objects, address: int, nothing: int) -> bool:
    """Whether the object is one rather than None. Raises Unreadable."""
    if nothing or not address:
        return address not in (0, nothing)
    return objects.flags(objects.type_of(address)) & EXCEPTION != 0


_CONDITIONS_BEHIND_LOCKED, _CONDITIONS_END = 16, 16 + 2 * (48 + 48)
"""`switch_number`, then `cond`, `mutex`, `switch_cond` and `switch_mutex` (Include/internal/pycore_gil.h), in which
the futexes lie. A mutex takes 40 or 48 bytes, by processor."""


def gil_at(view: View, layout: Layout, runtime: Optional[int], interpreter: Optional[int]) -> Optional[tuple[int, int]]:
    """The addresses of the GIL's `locked` and of who holds it; None if threads run without it, or it is not known where it is (3.6 keeps
    it elsewhere).

    From 3.7 to 3.11 that is the current thread state: PyThreadState_Swap() changes it, and leaves the GIL's `last_holder` as it is.
    """
    try:
        if interpreter is not None and layout.interpreter.gil is not None and layout.gil is not None:
            gil = view.word(interpreter + layout.interpreter.gil)
            if gil == 0 or (layout.gil.enabled is not None and view.int32(gil + layout.gil.enabled) == 0):
                return None
            return gil + layout.gil.locked, gil + layout.gil.holder
    except Unreadable:
        return None
    if runtime is not None and layout.runtime and layout.runtime.gil_locked is not None and layout.runtime.gil_holder is not None:
        return runtime + layout.runtime.gil_locked, runtime + layout.runtime.gil_holder
    return None


def gil_holder(view: View, gil: tuple[int, int]) -> Optional[int]:
    """The address of the thread state that holds the GIL; 0 if none does, None if that cannot be read.

    Up to 3.6 there is none before the second thread: `locked` is -1 then (`gil_created`, Python/ceval_gil.h).
    """
    locked, holder = gil
    try:
        state = view.int32(locked)
        return None if state < 0 else view.word(holder) if state == 1 else 0
    except Unreadable:
        return None


def says_it_holds_gil(objects: Objects, state: int) -> Optional[bool]:
    """Whether the thread state itself says that its thread holds the GIL, for where the GIL is lost; None if it does not tell (up to 3.11),
    or where the GIL may be off."""
    bit = objects.layout.thread.bit_holds_gil
    if bit is None or objects.version.free_threaded:
        return None
    try:
        return objects.view.uint32(state + bit // 32 * 4) >> bit % 32 & 1 == 1
    except Unreadable:
        return None


def is_collecting(view: View, layout: Layout, runtime: Optional[int], interpreter: Optional[int]) -> Optional[bool]:
    """Whether the garbage collector was running, finalizers included; None if that cannot be read (3.6 keeps it elsewhere)."""
    if layout.collector is None:
        return None
    if interpreter is not None and layout.interpreter.collector is not None:
        collector = interpreter + layout.interpreter.collector
    elif runtime is not None and layout.runtime and layout.runtime.collector is not None:
        collector = runtime + layout.runtime.collector
    else:
        return None
    try:
        return view.int32(collector + layout.collector.running) == 1
    except Unreadable:
        return None


def gil_waiters(gil: tuple[int, int]) -> range:
    """The addresses that threads name to the kernel while they wait for this GIL, or for another thread to take it."""
    return range(gil[0] + _CONDITIONS_BEHIND_LOCKED, gil[0] + _CONDITIONS_END)


def module_contents(objects: Objects, interpreter: int, name: str) -> Optional[int]:
    """The address of a loaded module's `__dict__`; None if there is no such module. Raises Unreadable."""
    module = objects.item(objects.view.word(interpreter + objects.layout.interpreter.modules), name)
    return None if module is None else objects.view.word(module + objects.layout.module.dictionary)


def type_in_module(objects: Objects, interpreter: Optional[int], module: str, name: str) -> int:
    """The address of what a loaded module calls so: a type's own name is in a file that may be missing. 0 if there is none."""
    try:
        contents = module_contents(objects, interpreter, module) if interpreter is not None else None
        return (objects.item(contents, name) if contents else None) or 0
    except Unreadable:
        return 0


def threading_contents(objects: Objects, interpreter: int) -> Optional[int]:
    """The address of the variables of `threading`; None if it is not imported, or nothing leads to it."""
    try:
        return module_contents(objects, interpreter, "threading")
    except Unreadable:
        return None


def is_threading(objects: Objects, contents: int) -> bool:
    """Whether these are the variables of the module `threading`. Raises Unreadable."""
    name = objects.item(contents, "__name__")
    return name is not None and objects.text(name, LONGEST_NAME) == "threading"


def names_in(objects: Objects, contents: int) -> dict[int, str]:
    """Names by ident, from `_active` in these variables of `threading`, as far as they can be read."""
    names: dict[int, str] = {}
    try:
        active = objects.item(contents, "_active")
        for item in objects.dictionary(active, MOST_THREADS) if active else ():
            try:
                ident, name = objects.integer(item.key), objects.attribute(item.value, "_name")
                if ident is not None and name is not None:
                    names[ident] = objects.text(name, LONGEST_NAME)
            except Unreadable:
                continue
    except Unreadable:
        pass
    return names


def main_name(objects: Objects, contents: int) -> str:
    """The main thread's name by `_main_thread` in these variables of `threading`; the one that it begins with where that is lost."""
    try:
        main = objects.item(contents, "_main_thread")
        name = objects.attribute(main, "_name") if main else None
        return objects.text(name, LONGEST_NAME) if name else _MAIN_THREAD
    except Unreadable:
        return _MAIN_THREAD
