"""Python stacks from several sources: the best one for each thread. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from crashkit.debugger.contract import PythonStack
from crashkit.model import PythonFrame, SoftError, Thread

_UNREAD = re.compile(r"<[\w.]{1,200}(?: object)? at (?:remote )?0x[0-9a-f]{1,16}>")
"""An object of which only the type was read, as libpython.py and PyStack write it."""


class Chosen(NamedTuple):
    """The best Python stack of each thread, and where the sources disagree."""

    stacks: dict[int, PythonStack]
    """By tid."""
    soft_errors: tuple[SoftError, ...]


def choose(sources: Sequence[Mapping[int, PythonStack]]) -> Chosen:
    """For each thread the stack without gaps, of several the deepest, then the one of which most is known, then the earlier one.

    Disagreements become soft errors.
    """
    chosen: dict[int, PythonStack] = {}
    soft_errors: list[SoftError] = []
    sources = [{tid: _without_shims(stack) for tid, stack in source.items()} for source in sources]
    for tid in dict.fromkeys(tid for source in sources for tid in source):
        candidates = [source[tid] for source in sources if tid in source]
        best = max(candidates, key=_quality)
        names = [stack.name for stack in candidates if stack.name]
        gil = [stack.holds_gil for stack in candidates if stack.holds_gil is not None]
        exception = next((stack.exception for stack in candidates if stack.exception), None)
        raised = next((stack.raised for stack in candidates if stack.raised), ())
        shown = _completed(best, candidates)
        collecting = [stack.collecting for stack in candidates if stack.collecting is not None]
        chosen[tid] = shown._replace(
            name=names[0] if names else None,
            holds_gil=gil[0] if gil else None,
            exception=exception,
            raised=raised,
            collecting=any(collecting) if collecting else None,
        )
        for other in candidates:
            # A log can hold the dump of a forked sibling, whose threads have the same idents.
            if other is not best and "faulthandler" not in (_origin(best), _origin(other)) and _disagree(best, other):
                soft_errors.append(
                    SoftError(
                        stage="python",
                        message=f"thread {tid}: {_origin(best)} and {_origin(other)} disagree; {_origin(best)} is shown "
                        f"({len(best.frames)} frames against {len(other.frames)})",
                    )
                )
    return Chosen(chosen, tuple(soft_errors))


def _completed(best: PythonStack, candidates: Sequence[PythonStack]) -> PythonStack:
    """With the columns and the values that another source has for the very same frames: not every tool reads them."""
    frames = best.frames
    for other in candidates:
        if other is not best:
            common = (
                _with(frame, beside) if _is_same(frame, beside) else frame for frame, beside in zip(frames, other.frames, strict=False)
            )
            frames = tuple(common) + frames[len(other.frames) :]
    return best._replace(frames=frames)


def _with(frame: PythonFrame, other: PythonFrame) -> PythonFrame:
    told = {
        name: text
        for name, text in other.locals.items()
        if name in frame.locals and len(_UNREAD.findall(text)) < len(_UNREAD.findall(frame.locals[name]))
    }
    if not told and (frame.columns or not other.columns):
        return frame
    return replace(frame, columns=frame.columns or other.columns, locals={**frame.locals, **told})


def _is_same(one: PythonFrame, other: PythonFrame) -> bool:
    return (one.function, one.file, one.line) == (other.function, other.file, other.line)


def _without_shims(stack: PythonStack) -> PythonStack:
    """Without the frames that CPython 3.13 and newer puts below the `__init__` of a specialised call of a class.

    Their code object, `_Py_InitCleanup` (Python/specialize.c), has `__init__` as its file, too; no traceback shows it.
    """
    frames, outer = (tuple(frame for frame in part if not _is_shim(frame)) for part in (stack.frames, stack.outer))
    dropped = len(stack.frames) + len(stack.outer) - len(frames) - len(outer)
    if not dropped:
        return stack
    return stack._replace(frames=frames, outer=outer, total=None if stack.total is None else stack.total - dropped)


def _is_shim(frame: PythonFrame) -> bool:
    return frame.file == frame.function == "__init__" and not frame.line


def _disagree(one: PythonStack, other: PythonStack) -> bool:
    if not one.frames or not other.frames:
        return False
    # Of a deep or broken stack only the inner end is there.
    whole = not (one.cut or other.cut or one.total or other.total)
    common = min(len(one.frames), len(other.frames))
    if whole and len(one.frames) != len(other.frames):
        return True
    return any(_differ(frame, beside) for frame, beside in zip(one.frames[:common], other.frames[:common], strict=True))


def _differ(one: PythonFrame, other: PythonFrame) -> bool:
    """What one of them could not read is no contradiction."""
    names, lines = (one.function, other.function), (one.line, other.line)
    return (all(names) and names[0] != names[1]) or (None not in lines and lines[0] != lines[1])


def of_faulthandler(dump: Sequence[Thread], threads: Sequence[Thread]) -> dict[int, PythonStack]:
    """faulthandler's stacks by tid: it names threads by their pthread ident."""
    tids = {int(thread.pthread): thread.tid for thread in threads if thread.pthread is not None}
    stacks = {}
    for thread in dump:
        tid = tids.get(thread.tid or 0)
        frames = tuple(thread.pythons())
        if tid is not None and frames:
            stacks[tid] = PythonStack(frames, thread.name, None, collecting=thread.collecting)
    return stacks


def _quality(stack: PythonStack) -> tuple[bool, bool, int, int, int, bool]:
    """More is better. Of equals `max` takes the first."""
    known = sum(bool(frame.function) + (frame.line is not None) for frame in stack.frames)
    at_hand = len(stack.frames) + len(stack.outer)
    return (bool(stack.frames), not stack.has_gaps, at_hand, stack.total or 0, known, any(frame.locals for frame in stack.frames))


def _origin(stack: PythonStack) -> str:
    return next((frame.origin for frame in stack.frames if frame.origin), None) or "one source"
