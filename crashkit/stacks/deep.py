"""Stacks too deep to show: both ends, and what repeats between them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from crashkit.model import ElidedFrames, Frame, NativeFrame, PythonFrame
from crashkit.stacks.merge import Merged, is_evaluation, merge, runs

INNER, OUTER = 150, 60
"""Frames shown at either end of a stack deeper than both together."""
_LONGEST_CYCLE = 60


class Ends(NamedTuple):
    """One stack's inner and outer end, as far as they were taken; `outer` is empty unless the stack is deep."""

    native: tuple[NativeFrame, ...]
    python: tuple[PythonFrame, ...]
    native_outer: tuple[NativeFrame, ...] = ()
    python_outer: tuple[PythonFrame, ...] = ()
    native_cut: bool = False
    python_total: Optional[int] = None
    python_cut: bool = False
    native_between: Optional[int] = None
    """Native frames between the ends, estimated from the bytes between them."""


def join(ends: Ends) -> Merged:
    """The merged stack, its middle left out where it is deep."""
    deep = ends.python_total is not None
    python = ends.python
    if ends.native_cut and len(ends.native) > INNER:
        # Only what belongs to the native frames at hand: the rest lies in the gap.
        evaluations = sum(map(is_evaluation, ends.native))
        python = tuple(frame for group in runs(python)[:evaluations] for frame in group)
    inner = merge(ends.native, python, native_cut=ends.native_cut, python_cut=deep or ends.python_cut)
    if inner.frames is None:
        return inner
    if not deep and not ends.native_outer:
        if ends.native_cut and len(inner.frames) > INNER + OUTER:
            return Merged((*inner.frames[:INNER], elided(inner.frames, INNER, None)))
        return Merged(shorten(inner.frames))
    outer = _merge_outer(ends.native_outer, ends.python_outer)
    cycle = repeating(inner.frames)
    left_out = _left_out(ends, cycle, inner.frames, outer)
    return Merged((*inner.frames[:INNER], ElidedFrames(count=left_out, cycle=tuple(map(_name, cycle))), *outer[-OUTER:]))


def shorten(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Both ends of a whole stack."""
    if len(frames) <= INNER + OUTER + 1:
        return tuple(frames)
    left_out = len(frames) - INNER - OUTER
    return (*frames[:INNER], elided(frames[INNER:-OUTER], 0, left_out), *frames[-OUTER:])


def elided(frames: Sequence[Frame], start: int, count: Optional[int]) -> ElidedFrames:
    return ElidedFrames(count=count, cycle=tuple(map(_name, repeating(frames[start:]))))


def repeating(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The shortest run of frames that the outer half of these repeats, or nothing."""
    half = frames[len(frames) // 2 :]
    keys = [_key(frame) for frame in half]
    for period in range(1, min(_LONGEST_CYCLE, len(keys) // 3) + 1):
        if all(keys[index] == keys[index + period] for index in range(len(keys) - period)):
            return half[:period]
    return ()


def _merge_outer(native: Sequence[NativeFrame], python: Sequence[PythonFrame]) -> tuple[Frame, ...]:
    """The outer ends, matched from the outermost frame inward: nothing is known of where each begins."""
    entries = [index for index, frame in enumerate(python) if frame.entry is not False]
    whole = python[entries[0] + 1 :] if entries else python
    groups = runs(whole)
    evaluations = [index for index, frame in enumerate(native) if is_evaluation(frame)]
    common = min(len(groups), len(evaluations))
    if not common:
        return tuple(native) or tuple(python)
    matched = [frame for group in groups[-common:] for frame in group]
    return merge(native[evaluations[-common] :], matched).frames or tuple(native)


def _left_out(ends: Ends, cycle: Sequence[Frame], inner: Sequence[Frame], outer: Sequence[Frame]) -> Optional[int]:
    """How many frames are not shown: by the Python frames among them, which are counted, or by the estimate of the native ones."""
    pythons = sum(isinstance(frame, PythonFrame) for frame in cycle)
    if ends.python_total is not None and pythons:
        shown = sum(isinstance(frame, PythonFrame) for frame in (*inner[:INNER], *outer[-OUTER:]))
        return max(0, ends.python_total - shown) * len(cycle) // pythons
    if ends.native_between is not None:
        return len(inner[INNER:]) + ends.native_between + len(outer[:-OUTER])
    return None


def _key(frame: Frame) -> tuple[object, ...]:
    if isinstance(frame, NativeFrame):
        return ("native", frame.function or frame.pc, frame.pc)
    if isinstance(frame, PythonFrame):
        return ("python", frame.function, frame.file, frame.line)
    return ("elided",)


def _name(frame: Frame) -> str:
    if isinstance(frame, ElidedFrames):
        return "…"
    return frame.function or "??"
