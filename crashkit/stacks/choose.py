"""Python stacks from several sources: the best one for each thread. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from crashkit.debugger.contract import PythonStack
from crashkit.model import PythonFrame, SoftError, Thread
from crashkit.regex import regex
from crashkit.stacks.trust import Pair, is_same, judged, origin, told

_UNREAD = regex(r"<[\w.]{1,200}(?:\(\)| object)? at (?:remote )?0x[0-9a-f]{1,16}>")
"""An object of which only the type was read, as libpython.py and PyStack write it."""


class Chosen(msgspec.Struct, frozen=True):
    """The best Python stack of each thread, and where the sources disagree."""

    stacks: dict[int, PythonStack]
    """By tid."""
    soft_errors: tuple[SoftError, ...]


def choose(sources: Sequence[Mapping[int, PythonStack]]) -> Chosen:
    """For each thread the stack without gaps, of several the deepest, then the one of which most is known, then the earlier one.

    Each frame says which other sources read the same (`trust`); disagreements become soft errors.
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
        others = [stack for stack in candidates if stack is not best]
        shown, contradictions = judged(_completed(best, candidates), others)
        soft_errors += [_disagreement(tid, best, other, pairs) for other, pairs in contradictions]
        collecting = [stack.collecting for stack in candidates if stack.collecting is not None]
        chosen[tid] = shown._replace(
            name=names[0] if names else None,
            holds_gil=gil[0] if gil else None,
            exception=exception,
            raised=raised,
            pending=next((stack.pending for stack in candidates if stack.pending), None),
            collecting=any(collecting) if collecting else None,
        )
    return Chosen(chosen, tuple(soft_errors))


def _completed(best: PythonStack, candidates: Sequence[PythonStack]) -> PythonStack:
    """With the columns and the values that another source has for the very same frames: not every tool reads them."""
    frames = best.frames
    for other in candidates:
        if other is not best:
            common = (
                _with(frame, beside) if is_same(frame, beside) else frame for frame, beside in zip(frames, other.frames, strict=False)
            )
            frames = tuple(common) + frames[len(other.frames) :]
    return best._replace(frames=frames)


def _with(frame: PythonFrame, other: PythonFrame) -> PythonFrame:
    told = {
        name: text
        for name, text in other.locals.items()
        if name in frame.locals and len(_UNREAD.findall(text)) < len(_UNREAD.findall(frame.locals[name]))
    }
    # libpython.py does not read the variables of a module.
    shown = {**frame.locals, **told} or other.locals
    return replace(frame, columns=frame.columns or other.columns, locals=shown)


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


def _disagreement(tid: int, best: PythonStack, other: PythonStack, pairs: Sequence[Pair]) -> SoftError:
    first, *more = pairs
    besides = f" and {len(more)} more frames" if len(more) > 1 else " and one more frame" if more else ""
    names = f"{origin(best)} and {origin(other)}"
    what = f"{told(first.one)} against {told(first.other)}{besides}"
    return SoftError(stage="python", message=f"thread {tid}: {names} disagree: {what}; {origin(best)} is shown: {_why(best, other)}")


def _why(best: PythonStack, other: PythonStack) -> str:
    """Why the one is believed: the first of what `_quality` compares in which they are not equal."""
    ours, theirs = _quality(best), _quality(other)
    at = next((at for at, (one, two) in enumerate(zip(ours, theirs, strict=True)) if one != two), len(ours))
    return _REASONS[at].format(ours[at], theirs[at]) if at < len(ours) else "neither knows more, and it is preferred"


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


_REASONS = (
    "it alone has frames",
    "it alone knows the function and the line of every frame",
    "it read more frames ({} against {})",
    "it counted more frames ({} against {})",
    "it knows more functions and lines ({} against {})",
    "it alone read variables",
)
"""In the order of `_quality`."""


def _quality(stack: PythonStack) -> tuple[bool, bool, int, int, int, bool]:
    """More is better. Of equals `max` takes the first."""
    known = sum(bool(frame.function) + (frame.line is not None) for frame in stack.frames)
    at_hand = len(stack.frames) + len(stack.outer)
    return (bool(stack.frames), not stack.has_gaps, at_hand, stack.total or 0, known, any(frame.locals for frame in stack.frames))
