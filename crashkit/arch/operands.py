"""What one machine instruction reads, writes and jumps to, given the registers before it ran.

x86-64 in full as far as capstone describes it (vector-indexed gathers are left unresolved), AArch64 for plain loads,
stores and indirect branches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

_U64 = 2**64 - 1

# Their memory operand is an address that is computed or hinted at, never accessed.
_NO_ACCESS = ("lea", "nop", "prefetch", "endbr", "prfm")


@dataclass(frozen=True, slots=True)
class Access:
    """One access to memory, or one jump."""

    kind: str
    """read, write, execute."""
    address: int
    size: int
    """Bytes; 0 where it is not known."""
    base: str | None = None
    """The register that an operand's address starts from."""
    index: str | None = None
    scale: int = 1
    offset: int = 0
    segment: str | None = None
    implied: bool = False
    """True where the stack pointer alone gives the address (push, call, ret)."""

    def covers(self, address: int) -> bool:
        return self.address <= address < self.address + max(self.size, 1)


class Decoded(NamedTuple):
    text: str
    """As a disassembler prints it, shortened: `mov rax, [rdi+0x18]`."""
    mnemonic: str
    size: int
    accesses: tuple[Access, ...]
    complete: bool
    """True where every access is among `accesses`, so that an address outside them was not accessed."""
    privileged: bool
    registers: tuple[str, ...]
    """Registers among its operands, those inside memory operands included."""
    divisor: str | None = None
    """The register that a division divides by."""


def decode(code: bytes, registers: Mapping[str, int]) -> Decoded | None:
    """Decode the first instruction of `code`, which lies at the program counter of `registers` (named as in gdb).

    None where the bytes are no instruction or the architecture is neither x86-64 nor AArch64.
    """
    if "rip" in registers:
        return _decode_x86(code, registers)
    if "x0" in registers and "pc" in registers:
        return _decode_aarch64(code, registers)
    return None


@cache
def _disassembler(architecture: str) -> Any:
    # capstone takes a tenth of a second to import and most reports never get here.
    import capstone

    if architecture == "x86-64":
        engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    else:
        engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    engine.detail = True
    return engine


def _first(architecture: str, code: bytes, pc: int) -> Any:
    return next(_disassembler(architecture).disasm(code[:16], pc, 1), None)


def _text(instruction: Any) -> str:
    text = f"{instruction.mnemonic} {instruction.op_str}".strip()
    for word in ("byte", "word", "dword", "qword", "xword", "tbyte", "xmmword", "ymmword", "zmmword"):
        text = text.replace(f" {word} ptr ", " ")
    return text.replace(" ptr [", " [").replace(" + ", "+").replace(" - ", "-")


def _is_access(mnemonic: str) -> bool:
    return not mnemonic.split()[-1].startswith(_NO_ACCESS)


def _kinds(access: int, always_writes: bool) -> tuple[str, ...]:
    """`access` is capstone's bit set: 1 read, 2 write. A page that is read and written faults as a write."""
    return ("write",) if access & 2 or always_writes else ("read",)


def _decode_x86(code: bytes, registers: Mapping[str, int]) -> Decoded | None:
    from capstone import x86

    pc = registers["rip"]
    instruction = _first("x86-64", code, pc)
    if instruction is None:
        return None
    mnemonic: str = instruction.mnemonic
    plain = mnemonic.split()[-1]
    accesses = _implied_x86(plain, registers, instruction)
    complete = True
    named: list[str] = []
    divisor = None
    branches = plain in ("call", "jmp")
    # capstone calls the operand of `lock cmpxchg` read-only; a locked operation always writes.
    writes = mnemonic.startswith("lock ")
    for position, operand in enumerate(instruction.operands):
        if operand.type == x86.X86_OP_REG:
            name = instruction.reg_name(operand.reg)
            named.append(name)
            if branches:
                accesses += _jump(registers.get(name))
            if plain in ("div", "idiv"):
                divisor = name
        elif operand.type == x86.X86_OP_IMM and branches:
            accesses += _jump(operand.imm & _U64)
        elif operand.type == x86.X86_OP_MEM and _is_access(mnemonic):
            # capstone 5 calls the target of an AVX-512 store read: the first operand of a move is what it writes.
            stores = position == 0 and plain.startswith(("mov", "vmov", "vpmov", "vextract", "vcompress", "vpcompress"))
            part = _memory_x86(instruction, operand, registers, writes or stores)
            named += [instruction.reg_name(r) for r in (operand.mem.base, operand.mem.index) if r]
            accesses += part
            complete = complete and bool(part)
    if plain.startswith(("xsave", "xrstor", "fxsave", "fxrstor", "maskmov", "xlat")) or "gather" in plain or "scatter" in plain:
        complete = False
    groups = {instruction.group_name(group) for group in instruction.groups}
    privileged = "privilege" in groups or plain in ("in", "out", "cli", "sti")
    return Decoded(_text(instruction), plain, instruction.size, tuple(accesses), complete, privileged, tuple(dict.fromkeys(named)), divisor)


def _memory_x86(instruction: Any, operand: Any, registers: Mapping[str, int], writes: bool) -> list[Access]:
    memory = operand.mem
    base = instruction.reg_name(memory.base) if memory.base else None
    index = instruction.reg_name(memory.index) if memory.index else None
    segment = instruction.reg_name(memory.segment) if memory.segment else None
    address = memory.disp
    for name, scale in ((base, 1), (index, memory.scale)):
        if name is None:
            continue
        value = read_register(name, registers)
        if value is None:
            return []
        address += value * scale
    if base in ("rip", "eip"):
        address += instruction.size
    if instruction.addr_size == 4:
        address &= 2**32 - 1
    if segment in ("fs", "gs"):
        if f"{segment}_base" not in registers:
            return []
        address += registers[f"{segment}_base"]
    else:
        segment = None
    return [
        Access(kind, address & _U64, operand.size, base, index, memory.scale, memory.disp, segment)
        for kind in _kinds(operand.access, writes)
    ]


def read_register(name: str, registers: Mapping[str, int]) -> int | None:
    """The value of a register or of its lower 32 bits (`eax`, `r8d`); None for one that is not known."""
    if name in registers:
        return registers[name]
    wide = "r" + name[1:] if name.startswith("e") else name.removesuffix("d")
    return registers[wide] & (2**32 - 1) if wide in registers else None


def _implied_x86(mnemonic: str, registers: Mapping[str, int], instruction: Any) -> list[Access]:
    """What the instruction does with the stack beside its operands."""
    if "rsp" not in registers:
        return []
    if mnemonic.startswith(("push", "call", "enter")):
        return [Access("write", (registers["rsp"] - 8) & _U64, 8, "rsp", implied=True)]
    if mnemonic.startswith(("pop", "ret")):
        return [Access("read", registers["rsp"], 8, "rsp", implied=True)]
    if mnemonic == "leave" and "rbp" in registers:
        return [Access("read", registers["rbp"], 8, "rbp", implied=True)]
    return []


def _jump(target: int | None) -> list[Access]:
    return [] if target is None else [Access("execute", target, 1)]


_LSL = 1
_BRANCHES = ("br", "blr", "ret")
_PAIRS = ("ldp", "stp", "ldnp", "stnp")


def _decode_aarch64(code: bytes, registers: Mapping[str, int]) -> Decoded | None:
    from capstone import arm64

    instruction = _first("aarch64", code, registers["pc"])
    if instruction is None:
        return None
    mnemonic: str = instruction.mnemonic
    names = [instruction.reg_name(operand.reg) for operand in instruction.operands if operand.type == arm64.ARM64_OP_REG]
    accesses: list[Access] = []
    if mnemonic in _BRANCHES:
        accesses += _jump(registers.get(names[0] if names else "x30"))
    complete = True
    for operand in instruction.operands:
        if operand.type == arm64.ARM64_OP_MEM and _is_access(mnemonic):
            part = _memory_aarch64(instruction, operand, registers, names)
            accesses += part
            complete = complete and bool(part)
    return Decoded(_text(instruction), mnemonic, instruction.size, tuple(accesses), complete, False, tuple(names))


def _memory_aarch64(instruction: Any, operand: Any, registers: Mapping[str, int], names: list[str]) -> list[Access]:
    memory = operand.mem
    base = instruction.reg_name(memory.base)
    index = instruction.reg_name(memory.index) if memory.index else None
    extended = operand.ext or operand.shift.type not in (0, _LSL)
    if base not in registers or (index and (index not in registers or extended)):
        return []
    scale = 1 << operand.shift.value if index else 1
    offset = 0 if "], " in instruction.op_str else memory.disp  # [x1], #8 moves the base afterwards
    address = registers[base] + offset + (registers[index] * scale if index else 0)
    kind = "write" if instruction.mnemonic.startswith("st") else "read"
    return [Access(kind, address & _U64, _size_aarch64(instruction.mnemonic, names), base, index, scale, offset)]


def _size_aarch64(mnemonic: str, names: list[str]) -> int:
    if mnemonic.endswith("b"):
        return 1
    if mnemonic.endswith("h"):
        return 2
    if mnemonic.endswith("sw"):
        return 4
    width = {"w": 4, "x": 8, "b": 1, "h": 2, "s": 4, "d": 8, "q": 16}.get(names[0][:1], 0) if names else 0
    return width * 2 if mnemonic in _PAIRS else width
