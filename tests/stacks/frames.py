"""Stacks made up by hypothesis as a real interpreter would run them: the merged stack first, the two that it came from after it."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from crashkit.model import Address, NativeFrame, PythonFrame

EVALUATE = "_PyEval_EvalFrameDefault"
# What stands between an evaluation and its caller, and goes with it.
AROUND = ("_PyEval_Vector", "_PyFunction_Vectorcall", "_PyEval_EvalFrame", "_PyEval_EvalCodeWithName.constprop.0")


def native(name: str | None, pc: int = 0) -> NativeFrame:
    return NativeFrame(function=name, pc=Address(pc))


def python(name: str, entry: bool | None = True, line: int = 1) -> PythonFrame:
    return PythonFrame(function=name, file=f"{name}.py", line=line, entry=entry)


def evaluation(pc: int = 0) -> NativeFrame:
    return native(EVALUATE, pc)


@dataclass(frozen=True)
class Stacks:
    """One thread, innermost first."""

    native: tuple[NativeFrame, ...]
    python: tuple[PythonFrame, ...]
    merged: tuple[NativeFrame | PythonFrame, ...]


@st.composite
def stacks(draw: st.DrawFn, most_calls: int = 12, most_run: int = 4, most_native: int = 4) -> Stacks:
    """C frames, then for each interpreter call a run of Python frames, its helpers, and the C frames that made it."""
    native_frames: list[NativeFrame] = []
    python_frames: list[PythonFrame] = []
    merged: list[NativeFrame | PythonFrame] = []

    def c_frames(least: int) -> None:
        for _ in range(draw(st.integers(least, most_native))):
            frame = native(draw(st.sampled_from(["strlen", "map_next", "list_sort", None, "PyObject_Call"])), len(native_frames))
            native_frames.append(frame)
            merged.append(frame)

    c_frames(0)
    for _ in range(draw(st.integers(0, most_calls))):
        native_frames.append(evaluation(len(native_frames)))
        size = draw(st.integers(1, most_run))
        for index in range(size):
            frame = python(f"f{len(python_frames)}", entry=index == size - 1)
            python_frames.append(frame)
            merged.append(frame)
        native_frames.extend(native(name, len(native_frames)) for name in draw(st.lists(st.sampled_from(AROUND), max_size=2)))
        c_frames(0)
    c_frames(1)
    return Stacks(tuple(native_frames), tuple(python_frames), tuple(merged))
