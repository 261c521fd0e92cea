"""AArch64 (arm64).

Sources: arch/arm64/include/uapi/asm/ptrace.h (order of registers), arch/arm64/kernel/signal.c and uapi/asm/sigcontext.h (signal frame),
arch/arm64/mm/fault.c (what becomes which signal), Arm ARM "ESR_EL1" (exception class, WnR, fault status).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import cache
from signal import SIGBUS, SIGSEGV
from typing import Any, Optional

from crashkit.arch.contract import Architecture, Meaning, Read, SignalFrame, SignalInfo, Trap
from crashkit.arch.operands import U64, Access, Decoded, is_access, jump, text

NT_ARM_TLS = 0x401

_NAMES = (*(f"x{number}" for number in range(31)), "sp", "pc", "cpsr")

# struct ucontext: flags and link, both 0; stack; from 40 on mask; from 176 on sigcontext: fault address, x0 to x30, sp, pc, pstate; from
# 464 on, 16-aligned, records that each begin with a magic number and a size. The kernel writes that of the floating-point registers first.
_MASK_AT, _MCONTEXT = 40, 176
_CONTEXT = struct.Struct(f"<QQ{_MASK_AT - 16}xQ{_MCONTEXT - _MASK_AT - 8}xQ34Q")
_RECORDS_AT = 464
_RECORDS_SIZE = 4096
_FPSIMD = struct.pack("<II", 0x46508001, 528)
_ESR_MAGIC = 0x45535201
# struct rt_sigframe: siginfo, 128 bytes, stands before the ucontext: si_signo, si_errno, si_code, si_addr.
_INFO = struct.Struct("<i4xi4xQ")
_INFO_SIZE = 128
_MODE = 0x1F
"""Bits of pstate: all 0 in user mode, 64 bit."""

_INSTRUCTION_ABORT, _DATA_ABORT = 0x20, 0x24
_WRITE, _CACHE_MAINTENANCE = 1 << 6, 1 << 8
_STATUS, _PERMISSION = 0x3C, 0x0C

# struct pthread (glibc, nptl/descr.h) ends at the thread pointer; its tid stands at 208, behind 24 words and a list's links.
_TID_AT = 208
_PTHREAD_SIZES = range(0x400, 0x1400, 16)


class AArch64(Architecture):
    """The 64-bit Arm architecture."""

    name = "aarch64"
    machine = 183
    registers = _NAMES
    program_counter = "pc"
    stack_pointer = "sp"
    frame_pointer = "x29"
    thread_pointer = "tpidr"
    register_notes = {NT_ARM_TLS: "tpidr"}
    dwarf_registers = _NAMES[:32]
    preserved = tuple(f"x{number}" for number in range(19, 30))
    dynamic_thread_vector = 0  # tcbhead_t (glibc, sysdeps/aarch64/nptl/tls.h)
    system_call = "x8"
    longest_instruction = 4
    instruction_step = 4
    trap_instructions = ("brk", "udf", "hlt")
    gdb = "aarch64"
    # No `scan`: a return address is stored at the low end of the frame that it leaves, so it does not tell where the caller's begins.

    def disassembler(self) -> Any:
        """The shared capstone engine, with instruction details."""
        return _disassembler()

    def jumps(self, code: bytes, address: int) -> Iterator[int]:
        """`b`, `b.eq` and its like, and those that compare a register or a bit of it with zero."""
        import capstone

        for _, _, mnemonic, operands in capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM).disasm_lite(code, address):
            target = operands.rpartition("#")[2]
            if (mnemonic == "b" or mnemonic.startswith(_JUMPS)) and target.startswith("0x"):
                yield int(target, 16)

    def decode(self, code: bytes, registers: Mapping[str, int]) -> Optional[Decoded]:
        """Decode plain loads, stores and indirect branches."""
        return _decode(code, registers) if "pc" in registers else None

    def value(self, register: str, registers: Mapping[str, int]) -> Optional[int]:
        """The value of a register, or of the lower 32 bits of one (`w3`)."""
        if register.startswith("w") and f"x{register[1:]}" in registers:
            return registers[f"x{register[1:]}"] & 0xFFFFFFFF
        return registers.get(register)

    def return_address(self, registers: Mapping[str, int], stack: bytes) -> Optional[int]:
        """The link register (`x30`); `stack` is not used."""
        return registers.get("x30")

    def is_own_raise(self, registers: Mapping[str, int], pid: Optional[int], number: int, to_thread: Optional[bool] = None) -> bool:
        """By the number of tgkill (131) or kill (129) in `x8` and the signal in `x2` or `x1`; `x0` holds the result by then."""
        return number == {131: registers.get("x2"), 129: registers.get("x1")}.get(registers.get("x8", 0))

    def signal_frames(self, memory: bytes, start: int) -> Iterator[SignalFrame]:
        """Find frames by their record of floating-point registers, and by the fields that are always 0."""
        at = memory.find(_FPSIMD)
        while at >= 0:
            context = at - _RECORDS_AT
            if (start + at) % 16 == 0 and context >= 0:
                flags, link, blocked, fault, *values = _CONTEXT.unpack_from(memory, context)
                if flags == link == 0 and values[-1] & _MODE == 0:
                    syndrome = _syndrome(memory[at : at + _RECORDS_SIZE])
                    trap = Trap(syndrome >> 26, syndrome, fault)
                    info = memory[context - _INFO_SIZE :][: _INFO.size] if context >= _INFO_SIZE else b""
                    told = SignalInfo(*_INFO.unpack(info)) if len(info) == _INFO.size else None
                    registers = dict(zip(_NAMES, values, strict=True))
                    yield SignalFrame(start + context, registers, trap, info=told, blocked=blocked)
            at = memory.find(_FPSIMD, at + 1)

    def meaning(self, trap: Trap) -> Optional[Meaning]:
        """Instruction and data aborts, decoded from ESR (Arm ARM, "ESR_EL1"); None for any other exception class."""
        if trap.number == _INSTRUCTION_ABORT:
            access = "execute"
        elif trap.number == _DATA_ABORT:
            access = "write" if trap.error & _WRITE and not trap.error & _CACHE_MAINTENANCE else "read"
        elif trap.error == 0 and trap.address:
            # No syndrome but an address: qemu-user. Linux writes both or neither.
            return Meaning("page", (SIGSEGV, SIGBUS))
        else:
            return None
        return Meaning("page", (SIGSEGV, SIGBUS), access, trap.error & _STATUS == _PERMISSION)

    def pthread(self, registers: Mapping[str, int], tid: int, read: Read) -> Optional[int]:
        """`struct pthread` ends at the thread pointer; its size differs between glibc versions, so the tid inside it is searched for."""
        pointer = registers.get("tpidr")
        if not pointer:
            return None
        longest = _PTHREAD_SIZES[-1]
        below = read(pointer - longest, longest)
        wanted = struct.pack("<i", tid)
        found = [size for size in _PTHREAD_SIZES if below[longest - size + _TID_AT :][:4] == wanted] if len(below) == longest else []
        return pointer - found[0] if len(found) == 1 else None


def _syndrome(records: bytes) -> int:
    """ESR, or 0: the kernel leaves the record out where the last exception had none."""
    at = 0
    while at + 16 <= len(records):
        magic, size = struct.unpack_from("<II", records, at)
        if magic == _ESR_MAGIC:
            return int(struct.unpack_from("<Q", records, at + 8)[0]) & 0xFFFFFFFF
        if magic == 0 or size < 16 or size % 16:
            break
        at += size
    return 0


@cache
def _disassembler() -> Any:
    # capstone takes a tenth of a second to import and most reports never get here.
    import capstone

    engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    engine.detail = True
    return engine


_LSL = 1
_BRANCHES = ("br", "blr", "ret")
_JUMPS = ("b.", "cbz", "cbnz", "tbz", "tbnz")
_PAIRS = ("ldp", "stp", "ldnp", "stnp")


def _decode(code: bytes, registers: Mapping[str, int]) -> Optional[Decoded]:
    from capstone import arm64

    instruction = next(_disassembler().disasm(code[:16], registers["pc"], 1), None)
    if instruction is None:
        return None
    mnemonic: str = instruction.mnemonic
    names = [instruction.reg_name(operand.reg) for operand in instruction.operands if operand.type == arm64.ARM64_OP_REG]
    accesses: list[Access] = []
    if mnemonic in _BRANCHES:
        accesses += jump(registers.get(names[0] if names else "x30"))
    complete = True
    for operand in instruction.operands:
        if operand.type == arm64.ARM64_OP_MEM and is_access(mnemonic):
            part = _memory(instruction, operand, registers, names)
            accesses += part
            complete = complete and bool(part)
    return Decoded(text(instruction), mnemonic, instruction.size, tuple(accesses), complete, False, tuple(names))


def _memory(instruction: Any, operand: Any, registers: Mapping[str, int], names: list[str]) -> list[Access]:
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
    return [Access(kind, address & U64, _size(instruction.mnemonic, names), base, index, scale, offset)]


def _size(mnemonic: str, names: list[str]) -> int:
    if mnemonic.endswith("b"):
        return 1
    if mnemonic.endswith("h"):
        return 2
    if mnemonic.endswith("sw"):
        return 4
    width = {"w": 4, "x": 8, "b": 1, "h": 2, "s": 4, "d": 8, "q": 16}.get(names[0][:1], 0) if names else 0
    return width * 2 if mnemonic in _PAIRS else width
