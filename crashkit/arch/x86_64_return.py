"""What x86-64 code does to stack and registers on its way to its return: who called it, where no unwind table tells.

Code on the way to a return takes back what the function did to the stack, whichever branches it takes: one way there is enough.
Functions that are called are taken to leave the stack and the preserved registers as they were, as the ABI demands.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from crashkit.arch.contract import CallPattern

_MOST_STEPS = 4000
_MOST_WAYS = 64
_PIECE = 256
_WORD = 8
_LONGEST = 15
_STOPS = ("ud2", "int3", "ud0", "ud1")
"""`hlt` is none: musl stops with it where a check fails, and the code goes on behind it as if it returned."""

ReadCode = Callable[[int, int], bytes]
ReadWord = Callable[[int], Optional[int]]


class _Way(NamedTuple):
    """What has to be followed yet: from where, and what the registers hold there."""

    pc: int
    registers: dict[str, int]
    stored: dict[int, Optional[int]]


def to_return(engine: Any, registers: Mapping[str, int], code: ReadCode, word: ReadWord, kept: tuple[str, ...]) -> Optional[dict[str, int]]:
    """The caller's registers, as far as they are known: `rip`, `rsp` and the preserved ones. None if no way leads to a return.

    `registers` are those at the instruction that is next; `engine` is capstone's, with details. `kept` are the preserved registers.
    """
    if "rip" not in registers or "rsp" not in registers:
        return None
    first = {name: value for name, value in registers.items() if name in (*kept, "rsp")}
    ways = [_Way(registers["rip"], first, {})]
    seen: set[int] = set()
    steps = 0
    while ways and len(seen) < _MOST_STEPS:
        pc, known, stored = ways.pop()
        data, start = b"", pc
        while pc not in seen and steps < _MOST_STEPS:
            steps += 1
            seen.add(pc)
            if not start <= pc <= start + len(data) - _LONGEST:
                data, start = code(pc, _PIECE), pc
            instruction = next(engine.disasm(data[pc - start : pc - start + _LONGEST], pc, 1), None)
            if instruction is None or instruction.mnemonic in _STOPS:
                break
            name = instruction.mnemonic.split()[-1]
            if name == "ret":
                return _returned(known, stored, word, kept)
            if name.startswith("j"):
                target = instruction.operands[0].imm if instruction.operands[0].type == _IMMEDIATE else None
                if name == "jmp":
                    if target is None:
                        break
                    pc = target
                    continue
                if target is not None and len(ways) < _MOST_WAYS:
                    ways.append(_Way(target, dict(known), dict(stored)))
            elif not _step(name, instruction, known, stored, word, kept):
                break
            pc += instruction.size
    return None


_REGISTER, _IMMEDIATE, _MEMORY = 1, 2, 3
"""capstone's x86.X86_OP_*."""
_WRITES = 2
"""capstone's CS_AC_WRITE."""


def _store(name: str, instruction: Any, known: Mapping[str, int], stored: dict[int, Optional[int]]) -> None:
    """Note what the instruction writes to the stack: a function may keep a register there late, just before it needs it."""
    first, *others = instruction.operands
    base = known.get(instruction.reg_name(first.mem.base) if first.mem.base else "")
    if base is None or first.mem.index or first.mem.segment:
        return
    place = (base + first.mem.disp) % (1 << 64)
    whole = name == "mov" and first.size == _WORD and others[0].type == _REGISTER
    stored.update(dict.fromkeys(range(place - place % _WORD, place + first.size, _WORD)))
    if whole and place % _WORD == 0:
        stored[place] = known.get(instruction.reg_name(others[0].reg))


def _returned(known: dict[str, int], stored: dict[int, Optional[int]], word: ReadWord, kept: tuple[str, ...]) -> Optional[dict[str, int]]:
    sp = known.get("rsp")
    address = None if sp is None or sp in stored else word(sp)
    if sp is None or not address:
        return None
    return {name: known[name] for name in kept if name in known} | {"rsp": sp + _WORD, "rip": address}


def _step(
    name: str, instruction: Any, known: dict[str, int], stored: dict[int, Optional[int]], word: ReadWord, kept: tuple[str, ...]
) -> bool:
    """Do to the registers what the instruction does. False where it is no longer known where the stack is."""
    operands = instruction.operands
    target = instruction.reg_name(operands[0].reg) if operands and operands[0].type == _REGISTER else None
    sp = known.get("rsp")
    if sp is None:
        return False

    def at(place: int) -> Optional[int]:
        # What it stores on the way is not in the process's memory yet.
        return stored[place] if place in stored else word(place)

    if name == "call":
        return True
    if name in ("push", "pushfq"):
        known["rsp"] = sp - _WORD
        stored[sp - _WORD] = known.get(target or "")
        return True
    if name in ("pop", "popfq"):
        known["rsp"] = sp + _WORD
        _put(known, target, at(sp), kept)
        return target != "rsp"
    if name == "leave":
        base = known.get("rbp")
        if base is None:
            return False
        known["rsp"] = base + _WORD
        _put(known, "rbp", at(base), kept)
        return True
    if operands and operands[0].type == _MEMORY and operands[0].access & _WRITES:
        _store(name, instruction, known, stored)
    value = _value(name, instruction, known, at)
    written = {instruction.reg_name(number) for number in instruction.regs_access()[1]}
    wide = {_WHOLE.get(one, one) for one in written}
    for one in wide & {*kept, "rsp"}:
        if one == target and value is not None:
            known[one] = value
        else:
            known.pop(one, None)
    return "rsp" in known


_WHOLE = {
    **{f"r{number}{part}": f"r{number}" for number in range(8, 16) for part in ("d", "w", "b")},
    **{f"{part}{name}{end}": f"r{name}{end or ''}" for name, end in (("b", "x"), ("b", "p"), ("s", "p")) for part in ("e", "")},
    "bl": "rbx",
    "bh": "rbx",
    "bpl": "rbp",
    "spl": "rsp",
}
"""The preserved registers by the names of their parts."""


def _put(known: dict[str, int], target: Optional[str], value: Optional[int], kept: tuple[str, ...]) -> None:
    if target in kept:
        known.pop(target, None)
        if value is not None:
            known[target] = value


def _value(name: str, instruction: Any, known: Mapping[str, int], word: ReadWord) -> Optional[int]:
    """What the instruction writes to its first operand, a register; None if unknown."""
    operands = instruction.operands
    if len(operands) != 2 or operands[0].type != _REGISTER or operands[0].size != _WORD:
        return None
    second = operands[1]
    own = known.get(instruction.reg_name(operands[0].reg))
    if name == "mov" and second.type == _REGISTER:
        return known.get(instruction.reg_name(second.reg))
    if name in ("mov", "lea") and second.type == _MEMORY and not second.mem.index and not second.mem.segment:
        base = known.get(instruction.reg_name(second.mem.base) if second.mem.base else "")
        if base is None:
            return None
        place: int = (base + second.mem.disp) % (1 << 64)
        return place if name == "lea" else word(place)
    if name in ("add", "sub") and second.type == _IMMEDIATE and own is not None:
        added: int = second.imm if name == "add" else -second.imm
        return (own + added) % (1 << 64)
    return None


_STUB = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\xf2?\xff\x25(.{4})", re.DOTALL)
"""`jmp [rip+disp32]`, which a `bnd` and an `endbr64` may precede: an entry of the procedure linkage table."""


def called_before(address: int, code: ReadCode, word: ReadWord, calls: Sequence[CallPattern]) -> Optional[int]:
    """What the call that ends at `address` called, through the procedure linkage table; 0 if only registers told; None without a call."""
    longest = max(len(call.mask) for call in calls)
    data = code(address - longest, longest)
    if len(data) < longest:
        return None
    if data[-5] == 0xE8:
        (distance,) = struct.unpack("<i", data[-4:])
        target = address + distance
        stub = _STUB.match(code(target, 16))
        if stub is not None:
            (distance,) = struct.unpack("<i", stub[1])
            return word(target + stub.end() + distance)
        return target if len(code(target, 1)) == 1 else None
    if data[-6:-4] == b"\xff\x15":
        (distance,) = struct.unpack("<i", data[-4:])
        return word(address + distance)
    for call in calls:
        size = len(call.mask)
        mask, value = (int.from_bytes(part, "little") for part in call)
        if size != 5 and int.from_bytes(data[-size:], "little") & mask == value:
            return 0
    return None
