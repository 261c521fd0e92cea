"""What a function was called with, without debug info (x86-64): its code, and its caller's, show where the argument went or came from.

Registers for arguments are lost once the function has called another one. But a compiler keeps a value that is still needed in a register
that calls preserve, which unwind tables restore, or on the stack; and a constant stands in the caller's code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

from crashkit.arch import Architecture
from crashkit.evidence.core.walk import Frame

Read = Callable[[int, int], bytes]
"""Memory and code; short or empty where they are missing."""

_MOST_CODE = 1 << 15
_DEEPEST = 4
_SLOT = "slot"

_Place = Union[str, tuple[str, int]]
"""A register, or a slot on the stack, counted from the stack pointer at the function's entry."""
_Value = Union[int, tuple[str, Any]]
"""A constant; or what something was at the entry: an argument, a register, the stack pointer with what was added to it."""


def argument(frames: Sequence[Frame], index: int, register: str, read: Read, arch: Architecture, depth: int = 0) -> Optional[int]:
    """The value of an argument's register when the function of `frames[index]` was entered; None if it is lost."""
    if not arch.argument_registers or depth > _DEEPEST:
        return None
    inside = _flow(frames[index], read, arch)
    wanted: _Value = ("entry", register)
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


def _kept(
    state: dict[_Place, _Value], wanted: _Value, frames: Sequence[Frame], index: int, read: Read, arch: Architecture
) -> Optional[int]:
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


def _flow(frame: Frame, read: Read, arch: Architecture) -> Optional[dict[_Place, _Value]]:
    """What the registers and the stack hold when the frame's call is made, following its function's code in order."""
    if frame.start is None or not 0 < frame.pc - frame.start <= _MOST_CODE:
        return None
    code = read(frame.start, frame.pc - frame.start)
    state: dict[_Place, _Value] = {name: ("entry", name) for name in (*arch.argument_registers, *arch.preserved)}
    state["rsp"] = ("stack", 0)
    before = state
    end = frame.start
    for instruction in arch.disassembler().disasm(code, frame.start):
        end = instruction.address + instruction.size
        before = dict(state)
        _step(instruction, state, arch)
    if end != frame.pc:
        return None
    return before if frame.is_caller else state


def _step(instruction: Any, state: dict[_Place, _Value], arch: Architecture) -> None:
    from capstone import x86

    name = instruction.mnemonic.split()[-1]
    operands = instruction.operands
    if name == "call" or name in ("jmp", "ret"):
        # What follows a jump is reached from elsewhere: a preserved register still holds what it held in most cases.
        for place in [place for place in state if isinstance(place, str) and place not in (*arch.preserved, "rsp")]:
            del state[place]
        return
    if name in ("push", "pop"):
        _push_or_pop(name, instruction, state)
        return
    value: Optional[_Value] = None
    if name in ("mov", "movabs", "lea", "sub", "add", "xor") and len(operands) == 2:
        value = _result(name, instruction, state)
    target = _place(operands[0], instruction, state) if operands else None
    if name in ("mov", "movabs") and operands[0].type == x86.X86_OP_MEM:
        if target is not None:
            _put(state, target, value if operands[0].size == 8 else None)
        return
    for number in instruction.regs_access()[1]:
        written = _wide(instruction.reg_name(number))
        if written is not None:
            _put(state, written, value if written == target else None)


def _push_or_pop(name: str, instruction: Any, state: dict[_Place, _Value]) -> None:
    stack = state.get("rsp")
    if not isinstance(stack, tuple) or stack[0] != "stack":
        return
    place = _place(instruction.operands[0], instruction, state)
    if name == "push":
        pushed = state.get(place) if place is not None else None
        state["rsp"] = ("stack", stack[1] - 8)
        _put(state, (_SLOT, stack[1] - 8), pushed)
    else:
        if place is not None:
            _put(state, place, state.get((_SLOT, stack[1])))
        state["rsp"] = ("stack", stack[1] + 8)


def _result(name: str, instruction: Any, state: dict[_Place, _Value]) -> Optional[_Value]:
    """What a move or an addition to the stack pointer gives; None if that is unknown."""
    from capstone import x86

    target, source = instruction.operands
    if name == "xor":
        same = source.type == target.type == x86.X86_OP_REG and source.reg == target.reg
        return 0 if same else None
    if name == "lea":
        return _address(source.mem, instruction, state)
    if source.type == x86.X86_OP_IMM and name in ("sub", "add"):
        held = state.get(_wide(instruction.reg_name(target.reg)) or "") if target.type == x86.X86_OP_REG else None
        moved = -source.imm if name == "sub" else source.imm
        return ("stack", held[1] + moved) if isinstance(held, tuple) and held[0] == "stack" else None
    if name in ("sub", "add"):
        return None
    if source.type == x86.X86_OP_IMM:
        return int(source.imm) & ((1 << 64) - 1)
    place = _place(source, instruction, state)
    return state.get(place) if place is not None and source.size == 8 else None


def _address(memory: Any, instruction: Any, state: dict[_Place, _Value]) -> Optional[_Value]:
    if memory.index or memory.segment:
        return None
    base = instruction.reg_name(memory.base) if memory.base else None
    if base == "rip":
        return int(instruction.address + instruction.size + memory.disp)
    held = state.get(base) if base else None
    return ("stack", held[1] + memory.disp) if isinstance(held, tuple) and held[0] == "stack" else None


def _place(operand: Any, instruction: Any, state: dict[_Place, _Value]) -> Optional[_Place]:
    from capstone import x86

    if operand.type == x86.X86_OP_REG:
        return _wide(instruction.reg_name(operand.reg))
    if operand.type == x86.X86_OP_MEM:
        address = _address(operand.mem, instruction, state)
        return (_SLOT, address[1]) if isinstance(address, tuple) else None
    return None


def _put(state: dict[_Place, _Value], place: _Place, value: Optional[_Value]) -> None:
    if value is None:
        state.pop(place, None)
    else:
        state[place] = value


def _wide(name: str) -> Optional[str]:
    """The 64-bit register that a register is part of: a write to its lower half clears the upper one."""
    if name.startswith("r"):
        return name.rstrip("dwb") if name[1:2].isdigit() else name
    stem = name[1:] if name.startswith("e") and len(name) == 3 else name
    if len(stem) == 2 and stem[1] in "lh" and stem[0] in "abcd":
        stem = stem[0] + "x"
    return "r" + stem.removesuffix("l") if stem.removesuffix("l") in ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp") else None
