"""What x86-64 code leaves in registers and on the stack, as far as following it in order tells: moves, pushes, the stack pointer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from crashkit.arch.contract import SLOT, Place, Value, Values


def follow(instructions: Any, start: int, end: int, kept: Sequence[str], arguments: Sequence[str]) -> Optional[tuple[Values, Values]]:
    """What is held before and after the last of a function's first instructions, from `start` to `end`; None if they are not valid.

    `kept` are the registers that calls preserve.
    """
    state: Values = {name: ("entry", name) for name in (*arguments, *kept)}
    state["rsp"] = ("stack", 0)
    before, at = state, start
    for instruction in instructions:
        at = instruction.address + instruction.size
        before = dict(state)
        _step(instruction, state, kept)
    return (before, state) if at == end else None


def _step(instruction: Any, state: Values, kept: Sequence[str]) -> None:
    from capstone import x86

    name = instruction.mnemonic.split()[-1]
    operands = instruction.operands
    if name == "call" or name in ("jmp", "ret"):
        # What follows a jump is reached from elsewhere: a preserved register still holds what it held in most cases.
        for place in [place for place in state if isinstance(place, str) and place not in (*kept, "rsp")]:
            del state[place]
        return
    if name in ("push", "pop"):
        _push_or_pop(name, instruction, state)
        return
    value: Optional[Value] = None
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


def _push_or_pop(name: str, instruction: Any, state: Values) -> None:
    stack = state.get("rsp")
    if not isinstance(stack, tuple) or stack[0] != "stack":
        return
    place = _place(instruction.operands[0], instruction, state)
    if name == "push":
        pushed = state.get(place) if place is not None else None
        state["rsp"] = ("stack", stack[1] - 8)
        _put(state, (SLOT, stack[1] - 8), pushed)
    else:
        if place is not None:
            _put(state, place, state.get((SLOT, stack[1])))
        state["rsp"] = ("stack", stack[1] + 8)


def _result(name: str, instruction: Any, state: Values) -> Optional[Value]:
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


def _address(memory: Any, instruction: Any, state: Values) -> Optional[Value]:
    if memory.index or memory.segment:
        return None
    base = instruction.reg_name(memory.base) if memory.base else None
    if base == "rip":
        return int(instruction.address + instruction.size + memory.disp)
    held = state.get(base) if base else None
    return ("stack", held[1] + memory.disp) if isinstance(held, tuple) and held[0] == "stack" else None


def _place(operand: Any, instruction: Any, state: Values) -> Optional[Place]:
    from capstone import x86

    if operand.type == x86.X86_OP_REG:
        return _wide(instruction.reg_name(operand.reg))
    if operand.type == x86.X86_OP_MEM:
        address = _address(operand.mem, instruction, state)
        return (SLOT, address[1]) if isinstance(address, tuple) else None
    return None


def _put(state: Values, place: Place, value: Optional[Value]) -> None:
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
