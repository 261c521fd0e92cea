"""Native frames: what gdb found, put in terms of the modules of the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

from crashkit.debugger.session import NativeRow, NativeThread
from crashkit.evidence.core.modules import ModuleIndex
from crashkit.model import Address, NativeFrame, Offset

Covered = Callable[[int], Optional[bool]]
"""Whether unwind tables cover a program counter; None where that is not known."""


def native_frames(rows: Sequence[NativeRow], modules: ModuleIndex, covered: Covered) -> tuple[NativeFrame, ...]:
    """Innermost first. A frame's trust says how the step that led to it was made."""
    frames = []
    trust = "scan" if rows and rows[0].found else "context"
    for row in rows:
        module = modules.at(row.pc)
        frames.append(
            NativeFrame(
                function=row.function,
                file=row.file,
                line=row.line or None,
                module=module.path if module else None,
                offset=Offset(row.pc - module.bias) if module else None,
                pc=Address(row.pc),
                trust={"inline": "inline", "signal": "signal"}.get(row.kind, trust),
                args=row.args,
                locals=row.locals,
            )
        )
        if row.kind != "inline":
            trust = _next_trust(row, covered)
    return tuple(frames)


def _next_trust(row: NativeRow, covered: Covered) -> str:
    """How gdb steps outward from this frame: by unwind tables, or by guessing from the code."""
    if row.kind == "signal":
        return "context"
    return "prologue" if covered(row.pc) is False else "cfi"


def frames_between(thread: NativeThread) -> Optional[int]:
    """How many frames lie between the ends of a deep stack, from the size of the outer half of its inner end."""
    half = [row.sp for row in thread.frames[len(thread.frames) // 2 :] if row.sp is not None]
    if not thread.outer or thread.outer[0].sp is None or len(half) < 2 or half[-1] <= half[0]:
        return None
    return (thread.outer[0].sp - half[-1]) * (len(half) - 1) // (half[-1] - half[0])
