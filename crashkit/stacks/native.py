"""Native frames put in terms of the modules of the process. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

from msgspec.structs import replace

from crashkit.evidence.core.modules import ModuleIndex
from crashkit.model import NativeFrame, Offset

Covered = Callable[[int], Optional[bool]]
"""Whether unwind tables cover a program counter; None where that is not known."""


def placed(frames: Sequence[NativeFrame], modules: ModuleIndex, covered: Covered, trust: Optional[str] = None) -> tuple[NativeFrame, ...]:
    """The frames, innermost first, with their modules, their offsets, and how the step that led to each was made.

    `trust` is that of the first frame, unless the debugger says another.
    """
    done = []
    for frame in frames:
        module = modules.at(frame.pc) if frame.pc is not None else None
        done.append(
            replace(
                frame,
                module=module.path if module else frame.module,
                offset=Offset(frame.pc - module.bias) if module and frame.pc is not None else None,
                trust=frame.trust or trust,
            )
        )
        if frame.trust != "inline":
            trust = _next_trust(frame, covered, in_module=module is not None)
    return tuple(done)


def _next_trust(frame: NativeFrame, covered: Covered, in_module: bool) -> Optional[str]:
    """How an unwinder steps outward from this frame: by unwind tables, or by guessing from the code.

    Code of no file has no tables that the debugger knows, but for the vDSO, of which it knows the names as well.
    """
    if frame.trust == "signal":
        return "context"
    if frame.pc is None:
        return None
    if not in_module:
        return "cfi" if frame.function else "prologue"
    return "prologue" if covered(frame.pc) is False else "cfi"
