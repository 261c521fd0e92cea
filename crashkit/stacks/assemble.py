"""The threads of a crash with their stacks: what gdb, libpython.py, PyStack and faulthandler gave, put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from msgspec.structs import replace

from crashkit.debugger.examine import Examined
from crashkit.debugger.names import Unwinding
from crashkit.debugger.session import NativeThread
from crashkit.evidence.describe import Scene
from crashkit.evidence.modules import ModuleIndex
from crashkit.evidence.notes import PROGRAM_COUNTER
from crashkit.model import Address, NativeFrame, Offset, SoftError, Thread
from crashkit.stacks.choose import choose, of_faulthandler
from crashkit.stacks.deep import Ends, join
from crashkit.stacks.evaluation import Walk, evaluation_starts
from crashkit.stacks.from_gdb import PythonStack, python_stacks
from crashkit.stacks.merge import EVALUATE, is_evaluation, runs
from crashkit.stacks.native import frames_between, native_frames
from crashkit.stacks.pystack import PystackResult
from crashkit.stacks.source import Sources


class Assembled(NamedTuple):
    threads: tuple[Thread, ...]
    soft_errors: tuple[SoftError, ...]


def assemble(scene: Scene, examined: Examined, second: PystackResult, dumps: Sequence[Sequence[Thread]], sources: Sources) -> Assembled:
    """`second` is PyStack's opinion, `dumps` are faulthandler's, as read from the logs."""
    threads = scene.crash.threads
    first = python_stacks(examined.python, threads) if examined.python else {}
    chosen = choose([first, second.stacks, *(of_faulthandler(dump, threads) for dump in dumps)])
    index = ModuleIndex(scene.modules)
    unwinding = Unwinding(index, {path: file.path for path, file in scene.files.items()})
    walks = {thread.lwp: thread for thread in examined.native.threads} if examined.native else {}
    stacks = [chosen.stacks.get(thread.tid or 0, PythonStack((), None, None)) for thread in threads]
    ends = [_ends(thread, stack, walks, second, index, unwinding, sources) for thread, stack in zip(threads, stacks, strict=True)]
    # With debug info the names are right: in a damaged core it is the Python stacks that do not count.
    if scene.interpreter is not None and examined.symbols.get(scene.interpreter.module.path) != "full":
        ends = _name_evaluation(ends, scene.interpreter.module.base, index, unwinding)
    soft_errors = list(chosen.soft_errors)
    done = []
    for thread, stack, both in zip(threads, stacks, ends, strict=True):
        merged = join(both)
        if merged.frames is None:
            message = f"thread {thread.tid}: {merged.why}; both stacks are shown side by side"
            soft_errors.append(SoftError(stage="merge", message=message))
        done.append(
            replace(
                thread,
                name=stack.name,
                holds_gil=None if scene.interpreter and scene.interpreter.free_threaded else stack.holds_gil,
                frames=both.native if merged.frames is None else merged.frames,
                python_frames=both.python if merged.frames is None else (),
            )
        )
    return Assembled(tuple(done), tuple(soft_errors))


def add_dumps(threads: tuple[Thread, ...], dumps: Sequence[Sequence[Thread]]) -> tuple[Thread, ...]:
    """Native stacks that were read from gdb's text, with the Python frames that faulthandler printed of the same threads."""
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


def _ends(
    thread: Thread,
    stack: PythonStack,
    walks: dict[int, NativeThread],
    second: PystackResult,
    index: ModuleIndex,
    unwinding: Unwinding,
    sources: Sources,
) -> Ends:
    walk = walks.get(thread.tid or 0)
    python = tuple(map(sources.annotate, stack.frames))
    python_outer = tuple(map(sources.annotate, stack.outer))
    if walk is not None and walk.frames:
        return Ends(
            native=native_frames(walk.frames, index, unwinding.covers),
            python=python,
            native_outer=native_frames(walk.outer, index, unwinding.covers),
            python_outer=python_outer,
            native_cut=walk.cut is not None,
            python_total=stack.total,
            python_cut=stack.cut,
            native_between=frames_between(walk),
        )
    native = second.native.get(thread.tid or 0)
    return Ends(
        native=native.frames if native else _where_it_stood(thread, index, unwinding),
        python=python,
        native_outer=native.outer if native else (),
        python_outer=python_outer,
        native_cut=True,
        python_total=stack.total,
        python_cut=stack.cut,
    )


def _where_it_stood(thread: Thread, index: ModuleIndex, unwinding: Unwinding) -> tuple[NativeFrame, ...]:
    """The one frame that the registers give when nobody could unwind the stack."""
    pc = next((int(thread.registers[name]) for name in PROGRAM_COUNTER.values() if name in thread.registers), None)
    if pc is None:
        return ()
    module = index.at(pc)
    return (
        NativeFrame(
            function=unwinding.name(pc),
            module=module.path if module else None,
            offset=Offset(pc - module.bias) if module else None,
            pc=Address(pc),
            trust="context",
        ),
    )


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
