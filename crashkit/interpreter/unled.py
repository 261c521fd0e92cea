"""Frames that no thread's state leads to: what finds them, and whose they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Optional

import msgspec

from crashkit.interpreter.c_stacks import CStack, CStackRanges
from crashkit.interpreter.finding import Module, addresses_of
from crashkit.interpreter.frames import Frames, FrameState, Stack
from crashkit.interpreter.greenlets import Greenlets
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.placing import with_generators
from crashkit.interpreter.python_threads import PythonThread, first_threads_name, frames_of, own_thread
from crashkit.interpreter.running import holder, holding_types
from crashkit.interpreter.threads import ThreadState
from crashkit.interpreter.upwards import newest_parts
from crashkit.interpreter.view import Unreadable
from crashkit.limits import MOST_THREADS

_GREENLET = ("_greenlet.", "greenlet.")
"""How the files of greenlet's module begin."""
_FIRST_FRAMES = ("<module>", "_run_module_as_main")
"""What runs in the outermost frame of the process's first thread: a script, or `runpy` for `python -m`."""


class Unled(msgspec.Struct, frozen=True):
    """Frames that nothing leads to from a thread's state, as they name each other, innermost first."""

    chains: tuple[tuple[FrameState, ...], ...] = ()
    may_be_suspended: bool = False
    """Whether some may be of suspended greenlets."""


def _holding_types(objects: Objects, modules: Sequence[Module], threads: Sequence[PythonThread]) -> set[int]:
    """Where the types may be of what holds running frames, to which nothing may lead: by the interpreter's file, else by known frames."""
    names = holding_types(objects)
    found = {address for module in modules for name in names for address in addresses_of(module, name)}
    for frame in (one for thread in threads for one in thread.stack.inner) if names and len(found) < len(names) else ():
        with suppress(Unreadable):
            held = holder(objects, frame.address)
            found |= {objects.type_of(held)} if held is not None and len(found) < len(names) else set()
    return found


def find_unled(
    objects: Objects, frames: Frames, threads: Sequence[PythonThread], modules: Sequence[Module], greenlets: Callable[[], Greenlets]
) -> Unled:
    """Those of no thread, and of no greenlet that is known to be suspended: the frames of such a greenlet look as if they ran."""
    reached = {frame.address for frame in frames_of(threads)}
    parts = newest_parts(objects.view, objects.layout, [thread.state.address for thread in threads])
    found = (*map(frames.upwards, parts), *frames.running(_holding_types(objects, modules, threads), reached))
    chains = [beyond for one in found if (beyond := _beyond(one, reached))]
    if not chains or not any(PurePosixPath(one.path or "").name.startswith(_GREENLET) for one in objects.view.memory.mappings()):
        return Unled(tuple(chains))
    known = greenlets()
    suspended = {frame.address for one in known.found for frame in (*one.stood.inner, *one.stood.outer)}
    left = (one for one in chains if suspended.isdisjoint(frame.address for frame in one))
    return Unled(tuple(left), may_be_suspended=not known.found or not known.in_time)


def with_c_stacks(
    objects: Objects, frames: Frames, threads: Sequence[PythonThread], idents: Mapping[int, int], main: Optional[int]
) -> list[PythonThread]:
    """The threads with those whose states are lost, or what leads on from there, and whose C stacks say what they run."""
    registers = {thread.tid: thread.registers for thread in objects.view.memory.threads()}
    leading = {thread.state.ident for thread in threads if thread.stack.inner or not thread.stack.cut}
    reached = {frame.address for thread in threads for frame in thread.stack.inner}
    found: dict[int, PythonThread] = {}
    for ident, tid in idents.items():
        stack = frames.on_c_stack(registers.get(tid, {})) if ident not in leading else None
        if stack is None or not stack.inner or not reached.isdisjoint(frame.address for frame in stack.inner):
            continue
        own, name = own_thread(objects, frames, stack.inner[-1])
        if own in (ident, None):
            name = name or first_threads_name(objects, frames, frames_of(threads), ident, main)
            found[ident] = PythonThread(ThreadState(0, ident, tid, stack.inner[0].address), name, None, None, stack)
    done = []
    for thread in threads:
        other = found.pop(thread.state.ident, None) if thread.stack.cut else None
        done.append(thread._replace(stack=other.stack, name=thread.name or other.name) if other is not None else thread)
    return [*done, *found.values()]


def with_unled(
    objects: Objects,
    frames: Frames,
    threads: Sequence[PythonThread],
    unled: Unled,
    idents: Mapping[int, int],
    main: Optional[int],
) -> tuple[list[PythonThread], Unled]:
    """The threads with these frames where something says whose they are, and the frames of which nothing says it.

    The outermost frame of a thread may be of a suspended greenlet, too: then it says nothing.
    """
    if unled.may_be_suspended or not unled.chains:
        return list(threads), unled
    chains, done = list(unled.chains), []
    # A call of the interpreter begins on its thread's C stack.
    ranges, by_tid = CStackRanges(objects.view.memory), {tid: ident for ident, tid in idents.items()}
    c_stacks = [ranges.at(frames.named(one[-1])) for one in chains]
    began = [by_tid.get(stack.tid) if stack is not None else None for stack in c_stacks]
    found = _owners(objects, frames, threads, chains, began, idents, main)
    for thread in threads:
        if thread.stack.cut and not thread.stack.outer and thread.state.ident in found:
            index, name = found.pop(thread.state.ident)
            one, chains[index] = chains[index], ()
            inner = thread.stack.inner
            stack = Stack(inner, one, cut=True, gap=True) if inner else Stack(one, cut=True, gap=True)
            thread = thread._replace(stack=stack, name=thread.name or name)
        done.append(thread)
    for ident in set(found).difference(thread.state.ident for thread in threads):
        index, name = found[ident]
        done.append(PythonThread(ThreadState(0, ident, None, None), name, None, None, Stack(chains[index], cut=True, gap=True)))
        chains[index] = ()
    others = [one for one in chains if one]
    if objects.layout.frame.owner is not None:
        done, others = _with_generators(frames, done, others, dict(zip(began, c_stacks, strict=True)))
    return done[:MOST_THREADS], Unled(tuple(others))


def _owners(
    objects: Objects,
    frames: Frames,
    threads: Sequence[PythonThread],
    chains: Sequence[tuple[FrameState, ...]],
    began: Sequence[Optional[int]],
    idents: Collection[int],
    main: Optional[int],
) -> dict[int, tuple[int, Optional[str]]]:
    """Which of these chains is the only one of a thread, by its ident, and what that is called.

    `began` are the idents of those threads on whose C stacks they began, where that is known.
    """
    known = [*frames_of(threads), *(frame for one in chains for frame in one)]
    owned: dict[int, list[tuple[int, Optional[str]]]] = {}
    for index, one in enumerate(chains):
        if not frames.is_outermost(one[-1]):
            continue
        ident, name = own_thread(objects, frames, one[-1])
        if ident is None:
            ident = began[index]
            if ident is None and main is not None and _is_first(frames, one[-1]):
                ident = main
            name = first_threads_name(objects, frames, known, ident, main) if ident is not None else None
        if ident in idents and ident is not None:
            owned.setdefault(ident, []).append((index, name))
    return {ident: of_it[0] for ident, of_it in owned.items() if len(of_it) == 1}


def _with_generators(
    frames: Frames,
    threads: Sequence[PythonThread],
    chains: Sequence[tuple[FrameState, ...]],
    c_stacks: Mapping[Optional[int], Optional[CStack]],
) -> tuple[list[PythonThread], list[tuple[FrameState, ...]]]:
    """The threads with those of the chains that are of generators and have a place on their stacks, and the others."""
    left = [one for one in chains if not frames.is_outermost(one[-1])]
    done = []
    for thread in threads:
        if left and thread.stack.cut:
            is_current = bool(thread.stack.outer or not thread.stack.gap)
            stack, left = with_generators(thread.stack, left, frames.named, is_current, c_stacks.get(thread.state.ident))
            thread = thread._replace(stack=stack)
        done.append(thread)
    return done, [*(one for one in chains if frames.is_outermost(one[-1])), *left]


def _beyond(chain: tuple[FrameState, ...], reached: Collection[int]) -> tuple[FrameState, ...]:
    """The frames further out than those that were reached in another way."""
    return chain[max((index + 1 for index, frame in enumerate(chain) if frame.address in reached), default=0) :]


def _is_first(frames: Frames, frame: FrameState) -> bool:
    """Whether the first thread of a process may have this outermost frame."""
    name = frame.code.name if frame.code is not None else None
    # `<module>` is a constant of the interpreter's own, which a truncated core may lack.
    return frames.is_of_module(frame) if name is None else name in _FIRST_FRAMES
