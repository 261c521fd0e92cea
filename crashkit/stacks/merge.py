"""One stack per thread: native and Python frames interleaved. Pure.

Each call of the interpreter's evaluation function ran a run of Python frames: exactly one up to CPython 3.10, one or more from 3.11
on, where only the outermost of a run was entered from C (`PythonFrame.entry`). So the n-th evaluation frame of the native stack is
replaced by the n-th run of the Python stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Optional

import msgspec

from crashkit.model import Frame, NativeFrame, PythonFrame
from crashkit.naming.functions import without_suffix
from crashkit.naming.machinery import EVALUATE as EVALUATE
from crashkit.naming.machinery import is_evaluation as is_evaluation

# Between an evaluation and whoever asked for it: they say nothing that the Python frame does not.
_AROUND = frozenset(
    (
        "_PyEval_EvalFrame PyEval_EvalFrameEx PyEval_EvalFrame _PyEval_Vector _PyEval_EvalCodeWithName _PyEval_EvalCode PyEval_EvalCode "
        "PyEval_EvalCodeEx function_code_fastcall _PyFunction_Vectorcall _PyFunction_FastCallDict _PyFunction_FastCallKeywords "
        "_PyFunction_FastCall fast_function call_function _PyEval_MakeFrameVector"
    ).split()
)

# They end a Python frame (Python/ceval.c, from 3.12 on), which no longer counts. What it held ends with it, and may run finalizers.
_ENDS_FRAME = frozenset("_PyEval_FrameClearAndPop _PyEvalFrameClearAndPop clear_gen_frame clear_thread_frame".split())


class Merged(msgspec.Struct, frozen=True):
    """`frames` is None if the stacks do not match; `why` says how they differ."""

    frames: Optional[tuple[Frame, ...]]
    why: Optional[str] = None


def is_interpreter(frame: NativeFrame) -> bool:
    """Whether the frame only serves to evaluate the Python frame beside it."""
    name = without_suffix(frame.function or "")
    return name == EVALUATE or name in _AROUND


def runs(frames: Sequence[PythonFrame]) -> list[list[PythonFrame]]:
    """Python frames grouped by the evaluation that ran them, innermost first."""
    groups: list[list[PythonFrame]] = []
    begin = True
    for frame in frames:
        if begin:
            groups.append([])
        groups[-1].append(frame)
        begin = frame.entry is not False
    return groups


def merge(
    native: Sequence[NativeFrame],
    python: Sequence[PythonFrame],
    native_cut: bool = False,
    python_cut: bool = False,
    overflowed: bool = False,
) -> Merged:
    """Both stacks of one thread as one, innermost first.

    `native_cut` and `python_cut` say that the outer end of that stack is missing: what there is of it is merged from the innermost end.
    An evaluation whose Python frames are missing stays. `overflowed`: the stack was used up, maybe while the innermost evaluation began.
    """
    if not python:
        return Merged(tuple(native))
    groups = runs(python)
    evaluations = sum(map(is_evaluation, native))
    if evaluations == 1 and all(frame.entry is None for frame in python):
        # faulthandler does not tell where runs begin: but here there is only one.
        groups = [list(python)]
    if evaluations == 0 and not native:
        return Merged(tuple(python))
    empty = _without_frames(native, evaluations - len(groups), overflowed)
    evaluations -= len(empty)
    if evaluations != len(groups) and not (native_cut and evaluations < len(groups)) and not (python_cut and evaluations > len(groups)):
        return Merged(None, f"{evaluations} interpreter calls on the native stack, {len(groups)} on the Python stack")
    merged: list[Frame] = []
    rest = iter(groups)
    dropping = False
    for index, frame in enumerate(native):
        group = next(rest, None) if is_evaluation(frame) and index not in empty else None
        if group is not None:
            merged.extend(group)
            dropping = True
        elif is_evaluation(frame) or not (dropping and is_interpreter(frame)):
            merged.append(frame)
            dropping = False
    for group in rest:
        merged.extend(group)
    return Merged(tuple(merged))


def _without_frames(native: Sequence[NativeFrame], missing: int, overflowed: bool) -> frozenset[int]:
    """The evaluations that have no Python frame any more, or none yet, if there are as many as are `missing`."""
    ending = _ending(native)
    if len(ending) == missing:
        return ending
    first = next((index for index, frame in enumerate(native) if is_evaluation(frame)), None)
    if overflowed and missing == 1 and first is not None and (first == 0 or native[first - 1].trust == "signal"):
        # Interrupted itself, where the stack is used up: it has not put its Python frame in place.
        return frozenset({first})
    return frozenset()


def _ending(native: Sequence[NativeFrame]) -> frozenset[int]:
    """The evaluations that were ending a Python frame: if it was the last one that they ran, they have none."""
    return frozenset(
        index
        for index, (inner, frame) in enumerate(pairwise(native), 1)
        if is_evaluation(frame) and without_suffix(inner.function or "") in _ENDS_FRAME
    )
