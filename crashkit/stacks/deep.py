"""Stacks too deep to show: both ends, and what repeats between them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from crashkit.limits import WHOLE_STACK
from crashkit.model import ElidedFrames, Frame, NativeFrame, PythonFrame
from crashkit.naming.machinery import is_outermost
from crashkit.stacks.merge import Merged, is_evaluation, merge, runs

INNER, OUTER = 150, 60
"""Frames shown at either end of a stack that is too deep to be shown whole."""
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
    python_gap: bool = False
    """Whether Python frames may be missing between the ends."""
    native_between: Optional[int] = None
    """Native frames between the ends, estimated from the bytes between them."""


def join(ends: Ends, overflowed: bool = False) -> Merged:
    """The merged stack; of a deep one, the middle is omitted. `overflowed`: the stack was used up."""
    deep = ends.python_total is not None
    native, native_outer = ends.native, ends.native_outer
    python, python_outer = ends.python, ends.python_outer
    if ends.native_cut and len(native) > INNER:
        # Python frames that the native frames at hand did not run lie further out: in the gap, or beyond it.
        groups, evaluations = runs(python), sum(map(is_evaluation, native))
        python = _frames(groups[:evaluations])
        python_outer = python_outer if deep else _frames(groups[evaluations:])
    elif deep:
        native, native_outer = _split(native, len(runs(python)), len(runs(python_outer)))
    inner = merge(native, python, native_cut=ends.native_cut, python_cut=deep or ends.python_cut, overflowed=overflowed)
    if inner.frames is None:
        return inner
    if not deep and not native_outer:
        is_whole = not ends.native or is_outermost(ends.native[-1].function)
        if ends.native_cut and not is_whole and (len(ends.native) >= WHOLE_STACK or repeating(ends.native)):
            shown = inner.frames if len(inner.frames) < WHOLE_STACK else inner.frames[:INNER]
            return Merged((*shown, elided(inner.frames, INNER, None), *python_outer[-OUTER:]))
        gap = (ElidedFrames(),) if ends.python_gap and python_outer else ()
        return Merged(shorten((*inner.frames, *gap, *python_outer)))
    outer = _merge_outer(native_outer, python_outer)
    cycle = repeating(inner.frames)
    left_out = _left_out(ends, cycle, inner.frames, outer)
    return Merged((*inner.frames[:INNER], ElidedFrames(count=left_out, cycle=tuple(map(_name, cycle))), *outer[-OUTER:]))


def shorten(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Both ends of a whole stack."""
    if len(frames) <= WHOLE_STACK:
        return tuple(frames)
    left_out = len(frames) - INNER - OUTER
    return (*frames[:INNER], elided(frames[INNER:-OUTER], 0, left_out), *frames[-OUTER:])


def elided(frames: Sequence[Frame], start: int, count: Optional[int]) -> ElidedFrames:
    """The marker for `count` omitted frames (None: unknown), with the cycle that `frames` repeat from `start` on."""
    return ElidedFrames(count=count, cycle=tuple(map(_name, repeating(frames[start:]))))


def repeating(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The shortest run of frames that the middle half of these repeats, or nothing.

    At either end a recursion looks different: it begins somewhere, and from 3.11 on its first rounds run other instructions.
    """
    half = frames[len(frames) // 4 : -(len(frames) // 4) or None]
    keys = [_key(frame) for frame in half]
    for period in range(1, min(_LONGEST_CYCLE, len(keys) // 3) + 1):
        if all(keys[index] == keys[index + period] for index in range(len(keys) - period)):
            return half[:period]
    return ()


def _split(native: tuple[NativeFrame, ...], inner: int, outer: int) -> tuple[tuple[NativeFrame, ...], tuple[NativeFrame, ...]]:
    """Of a whole native stack what ran the innermost `inner` runs of Python frames, and what ran the outermost `outer`."""
    evaluations = [index for index, frame in enumerate(native) if is_evaluation(frame)]
    if not 0 < inner <= len(evaluations):
        return native, ()
    end = evaluations[inner - 1]
    start = max(end, evaluations[-min(outer, len(evaluations))]) if outer else end + 1
    return native[: end + 1], native[start:]


def _merge_outer(native: Sequence[NativeFrame], python: Sequence[PythonFrame]) -> tuple[Frame, ...]:
    """The outer ends, matched from the outermost frame inward: nothing is known of where each begins."""
    groups = runs(python)
    evaluations = [index for index, frame in enumerate(native) if is_evaluation(frame)]
    common = min(len(groups), len(evaluations))
    if not common:
        return (*python, *native)
    start = evaluations[-common]
    matched = merge(native[start:], _frames(groups[-common:])).frames or ()
    return (*_frames(groups[:-common]), *native[:start], *matched)


def _frames(groups: Sequence[Sequence[PythonFrame]]) -> tuple[PythonFrame, ...]:
    return tuple(frame for group in groups for frame in group)


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
