"""What a function was called with, without debug info: its code, and its caller's, show where the argument went or came from.

Registers for arguments are lost once the function has called another one. But a compiler keeps a value that is still needed in a register
that calls preserve, which unwind tables restore, or on the stack; and a constant stands in the caller's code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

from crashkit.arch import Architecture
from crashkit.arch.contract import Value, Values
from crashkit.evidence.core.walk import Frame

Read = Callable[[int, int], bytes]
"""Memory and code; short or empty where they are missing."""

_MOST_CODE = 1 << 15
_DEEPEST = 4


def argument(frames: Sequence[Frame], index: int, register: str, read: Read, arch: Architecture, depth: int = 0) -> Optional[int]:
    """The value of an argument's register when the function of `frames[index]` was entered; None if it is lost."""
    if not arch.argument_registers or depth > _DEEPEST:
        return None
    inside = _flow(frames[index], read, arch)
    wanted: Value = ("entry", register)
    if inside is not None:
        value = _kept(inside, wanted, frames, index, read, arch)
        if value is not None:
            return value
        handed = next((name for name in arch.argument_registers if inside.get(name) == wanted), None)
        if handed is not None and index > 0 and frames[index].is_caller:
            value = argument(frames, index - 1, handed, read, arch, depth + 1) if depth >= 0 else None
            if value is not None:
                return value
    return _passed(frames, index, register, read, arch, depth)


def _passed(frames: Sequence[Frame], index: int, register: str, read: Read, arch: Architecture, depth: int) -> Optional[int]:
    """What the caller's code put into the register."""
    if index + 1 >= len(frames) or not frames[index + 1].is_caller or depth > 0:
        return None
    around = _flow(frames[index + 1], read, arch)
    value = around.get(register) if around is not None else None
    if around is None or value is None:
        return None
    if isinstance(value, int):
        return value
    return _kept(around, value, frames, index + 1, read, arch)


def _kept(state: Values, wanted: Value, frames: Sequence[Frame], index: int, read: Read, arch: Architecture) -> Optional[int]:
    """The value where a preserved register or the stack still holds it."""
    frame = frames[index]
    for place, value in state.items():
        if value != wanted:
            continue
        if isinstance(place, str):
            if place in arch.preserved and place in frame.registers:
                return frame.registers[place]
        elif index + 1 < len(frames) and arch.stack_pointer in frames[index + 1].registers:
            # The caller's stack pointer after the return: at the entry, the return address was below it.
            data = read(frames[index + 1].registers[arch.stack_pointer] - 8 + place[1], 8)
            if len(data) == 8:
                return int.from_bytes(data, "little")
    return None


def _flow(frame: Frame, read: Read, arch: Architecture) -> Optional[Values]:
    """What the registers and the stack hold when the frame's call is made, following its function's code in order."""
    if frame.start is None or not 0 < frame.pc - frame.start <= _MOST_CODE:
        return None
    held = arch.values(read(frame.start, frame.pc - frame.start), range(frame.start, frame.pc))
    return None if held is None else held[0] if frame.is_caller else held[1]
