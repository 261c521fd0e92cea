"""The threads that an interpreter knows, and what `threading` calls them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import NamedTuple, Optional

from crashkit.interpreter.frame_fields import globals_at
from crashkit.interpreter.frames import Frames, FrameState, Stack
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.threads import (
    LONGEST_NAME,
    ThreadState,
    is_threading,
    main_name,
    names_in,
    threading_contents,
)
from crashkit.interpreter.view import Unreadable

_OUTER_FRAMES_OF_THREAD = 2
"""Frames that a thread of `threading` begins with: `_bootstrap`, which calls `_bootstrap_inner`."""
_THREADING = "threading.py"


class PythonThread(NamedTuple):
    """One thread that the interpreter knows."""

    state: ThreadState
    name: Optional[str]
    """What `threading` calls it."""
    holds_gil: Optional[bool]
    collecting: Optional[bool]
    """Whether it held the GIL while its interpreter's garbage collector was running."""
    stack: Stack


def named(
    objects: Objects, frames: Frames, interpreter: Optional[int], threads: Sequence[PythonThread], main: Optional[int]
) -> list[PythonThread]:
    """The threads of one interpreter with their names: from `threading`'s table, else from the `Thread` that each of them runs.

    Where `sys.modules` does not lead to `threading`, its functions do that are on a stack. Only the main thread runs no `Thread`: it has
    the name that it begins with if `threading` is known to be imported, and nothing that is left says otherwise.
    """
    contents = threading_contents(objects, interpreter) if interpreter is not None else None
    if contents is None:
        contents = threading_on(objects, frames, frames_of(threads))
    names = names_in(objects, contents) if contents is not None else {}
    done = []
    for thread in threads:
        name = names.get(thread.state.ident) or _name_on_stack(objects, frames, thread.state, thread.stack)
        if name is None and contents is not None and thread.state.ident == main:
            name = main_name(objects, contents)
        done.append(thread._replace(name=name))
    return done


def threading_on(objects: Objects, frames: Frames, known: Iterable[FrameState]) -> Optional[int]:
    """The address of the variables of `threading`, which the frames of its functions have; None if there are none among these."""
    for frame in known:
        if frame.code is not None and PurePosixPath(frame.code.file or "").name == _THREADING:
            with suppress(Unreadable):
                contents = objects.view.word(frame.address + globals_at(objects))
                if is_threading(objects, contents):
                    return contents
    return None


def frames_of(threads: Iterable[PythonThread]) -> list[FrameState]:
    return [frame for thread in threads for frame in (*thread.stack.inner, *thread.stack.outer)]


def _name_on_stack(objects: Objects, frames: Frames, state: ThreadState, stack: Stack) -> Optional[str]:
    """What the `Thread` calls itself that the thread runs: for where the table of threads in `threading` is damaged or lost."""
    for frame in (stack.outer or stack.inner)[-_OUTER_FRAMES_OF_THREAD:]:
        if frame.code is None or frame.code.name not in ("_bootstrap", "_bootstrap_inner"):
            continue
        for variable in frames.variables(frame, 1):
            ident, name = _of_thread_object(objects, variable.value)
            if ident == state.ident:
                return name
    return None


def first_threads_name(objects: Objects, frames: Frames, known: Iterable[FrameState], ident: int, main: Optional[int]) -> Optional[str]:
    """The name of the process's first thread, if that is this one, and `threading` is known to be imported."""
    contents = threading_on(objects, frames, known) if ident == main else None
    return main_name(objects, contents) if contents is not None else None


def own_thread(objects: Objects, frames: Frames, frame: FrameState) -> tuple[Optional[int], Optional[str]]:
    """Ident and name by the `Thread` that such a thread's outermost frame has as its only variable; nothing if this is none."""
    try:
        return _of_thread_object(objects, frames.first_slot(frame))
    except Unreadable:
        return None, None


def _of_thread_object(objects: Objects, address: int) -> tuple[Optional[int], Optional[str]]:
    """What the `Thread` at this address calls itself, with its ident; nothing if this is none, or has not both."""
    try:
        ident, name = (objects.attribute(address, attribute) for attribute in ("_ident", "_name"))
        if ident is None or name is None:
            return None, None
        return objects.integer(ident), objects.text(name, LONGEST_NAME)
    except Unreadable:
        return None, None
