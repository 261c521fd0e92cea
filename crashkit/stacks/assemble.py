"""The threads of a crash with their stacks: the debuggers' and faulthandler's, combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import msgspec
from msgspec.structs import replace

from crashkit import arch
from crashkit.debugger.contract import Answer, NativeStack, PythonStack
from crashkit.evidence.core.describe import Scene
from crashkit.evidence.core.modules import ModuleIndex
from crashkit.model import Address, NativeFrame, SoftError, Thread
from crashkit.stacks.choose import choose, of_faulthandler
from crashkit.stacks.deep import Ends, join
from crashkit.stacks.evaluation import Walk, evaluation_starts
from crashkit.stacks.greenlets import of_greenlet
from crashkit.stacks.in_code import within_code
from crashkit.stacks.merge import EVALUATE, is_evaluation, runs
from crashkit.stacks.native import placed
from crashkit.stacks.source import Sources
from crashkit.stacks.unwinding import Unwinding


class Assembled(msgspec.Struct, frozen=True):
    """The threads with their stacks, and what could not be merged."""

    threads: tuple[Thread, ...]
    soft_errors: tuple[SoftError, ...]


def assemble(scene: Scene, answers: Sequence[Answer], dumps: Sequence[Sequence[Thread]], sources: Sources) -> Assembled:
    """`answers` are the debuggers', best first; `dumps` are faulthandler's, as read from the logs."""
    threads = scene.crash.threads
    chosen = choose([*(answer.python or {} for answer in answers), *(of_faulthandler(dump, threads) for dump in dumps)])
    index = ModuleIndex(scene.modules)
    processor = arch.named(scene.crash.process.architecture if scene.crash.process else None)
    unwinding = Unwinding(index, {path: file.path for path, file in scene.files.items()}, processor)
    walks = {tid: within_code(stack, scene.crash.mappings) for tid, stack in _native_stacks(answers).items()}
    stacks = [chosen.stacks.get(thread.tid or 0, PythonStack((), None, None)) for thread in threads]
    ends = [
        _ends(thread, stack, walks.get(thread.tid or 0), index, unwinding, sources) for thread, stack in zip(threads, stacks, strict=True)
    ]
    # With debug info the names are right: in a damaged core it is the Python stacks that do not count.
    if scene.interpreter is not None and not any(answer.symbols.get(scene.interpreter.module.path) == "full" for answer in answers):
        ends = _name_evaluation(ends, scene.interpreter.module.base, index, unwinding)
    soft_errors = list(chosen.soft_errors)
    signal = scene.crash.signal
    done = []
    for thread, stack, both in zip(threads, stacks, ends, strict=True):
        merged = join(both, overflowed=thread.crashed and signal is not None and signal.reason == "stack-overflow")
        if merged.frames is None:
            message = f"thread {thread.tid}: {merged.why}; both stacks are shown side by side"
            soft_errors.append(SoftError(stage="merge", message=message))
        done.append(
            replace(
                thread,
                name=stack.name,
                exception=stack.exception,
                pending=stack.pending,
                raised=tuple(replace(one, frames=sources.stack(one.frames, False)) for one in stack.raised),
                collecting=stack.collecting,
                holds_gil=stack.holds_gil,
                frames=both.native if merged.frames is None else merged.frames,
                python_frames=both.python if merged.frames is None else (),
                python_unread=_is_unread(scene, answers, thread, stack),
            )
        )
    return Assembled(tuple(done), tuple(soft_errors))


def _is_unread(scene: Scene, answers: Sequence[Answer], thread: Thread, stack: PythonStack) -> Optional[bool]:
    """True unless its frames are known, or that it has none: its whole stack was read, or all states of threads, without one of it."""
    if stack.frames or scene.interpreter is None or scene.interpreter.is_too_old or any(one.has_no_interpreter for one in answers):
        return None
    read = [answer for answer in answers if answer.python]
    theirs = [found for answer in read if (found := (answer.python or {}).get(thread.tid or 0)) is not None]
    known = any(not one.cut for one in theirs) if theirs else bool(read) and all(answer.python_is_whole for answer in read)
    return None if known else True


def add_dumps(threads: tuple[Thread, ...], dumps: Sequence[Sequence[Thread]]) -> tuple[Thread, ...]:
    """Native stacks read from gdb's text, with the Python frames that faulthandler printed for the same threads."""
    chosen = choose([of_faulthandler(dump, threads) for dump in dumps]).stacks
    done = []
    for thread in threads:
        stack = chosen.get(thread.tid or 0)
        if stack is None or thread.python_frames:
            done.append(thread)
            continue
        merged = join(Ends(native=tuple(thread.natives()), python=stack.frames))
        name = thread.name or stack.name
        if merged.frames is None:
            done.append(replace(thread, name=name, python_frames=stack.frames))
        else:
            done.append(replace(thread, name=name, frames=merged.frames))
    return tuple(done)


def _native_stacks(answers: Sequence[Answer]) -> dict[int, NativeStack]:
    """By tid, of the first that could walk that thread's stack."""
    stacks: dict[int, NativeStack] = {}
    for answer in answers:
        for tid, stack in (answer.native or {}).items():
            if stack.frames:
                stacks.setdefault(tid, stack)
    return stacks


def _ends(
    thread: Thread, stack: PythonStack, walk: Optional[NativeStack], index: ModuleIndex, unwinding: Unwinding, sources: Sources
) -> Ends:
    if walk is None:
        walk = NativeStack(_where_it_stood(thread, unwinding), cut=True)
    walk = of_greenlet(walk)
    return Ends(
        native=placed(walk.frames, index, unwinding.covers, "context"),
        python=sources.stack(stack.frames, not stack.outer and not stack.cut),
        native_outer=placed(walk.outer, index, unwinding.covers),
        python_outer=sources.stack(stack.outer, not stack.cut),
        native_cut=walk.cut,
        python_total=stack.total,
        python_cut=stack.cut,
        python_gap=stack.gap,
        native_between=walk.between,
    )


def _where_it_stood(thread: Thread, unwinding: Unwinding) -> tuple[NativeFrame, ...]:
    """The one frame known from the registers if no debugger could unwind the stack."""
    pc = arch.program_counter(thread.registers)
    return () if pc is None else (NativeFrame(function=unwinding.name(pc), pc=Address(pc)),)


def _name_evaluation(ends: Sequence[Ends], base: int, index: ModuleIndex, unwinding: Unwinding) -> list[Ends]:
    """Where a stripped interpreter's evaluating function has no name, name it: by the function's own jumps into the parts that were moved,
    or, where not even the function itself is named, by counting. `base` is the interpreter's."""

    def starts(frames: Sequence[NativeFrame]) -> tuple[Optional[int], ...]:
        found = []
        for frame in frames:
            # The byte before a return address lies in the calling function for sure.
            address = None if frame.pc is None else frame.pc if frame.trust == "context" else frame.pc - 1
            module = index.at(address) if address is not None else None
            found.append(unwinding.function_start(address) if address is not None and module and module.base == base else None)
        return tuple(found)

    def named(frames: tuple[NativeFrame, ...], evaluating: frozenset[int]) -> tuple[NativeFrame, ...]:
        return tuple(
            replace(frame, function=EVALUATE) if start in evaluating else frame for frame, start in zip(frames, starts(frames), strict=True)
        )

    def all_named(evaluating: frozenset[int]) -> list[Ends]:
        return [both._replace(native=named(both.native, evaluating), native_outer=named(both.native_outer, evaluating)) for both in ends]

    if _fit(ends):
        return list(ends)
    ends = all_named(unwinding.parts(base, EVALUATE))
    if _fit(ends):
        return ends
    whole = [both for both in ends if both.native and not both.native_cut and not both.python_cut and both.python_total is None]
    return all_named(evaluation_starts([Walk(starts(both.native), len(runs(both.python))) for both in whole]))


def _fit(ends: Sequence[Ends]) -> bool:
    return all(sum(map(is_evaluation, both.native)) == len(runs(both.python)) for both in ends)
