"""x86-64.

Sources: arch/x86/include/asm/user_64.h (order of registers), arch/x86/include/asm/sigframe.h and uapi/asm/sigcontext.h (signal
frame), arch/x86/mm/fault.c and arch/x86/kernel/traps.c (which trap becomes which signal), Intel SDM volume 3, "Page-fault exception
(#PF)" (bits of the error code).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from signal import SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP
from typing import Any, Optional

from msgspec.structs import replace

from crashkit.arch.contract import Architecture, CallPattern, Meaning, Read, SignalFrame, SignalInfo, StackScan, Trap, Values
from crashkit.arch.operands import U64, Access, Decoded, is_access, jump, text
from crashkit.arch.x86_64_flow import follow
from crashkit.arch.x86_64_return import called_before, to_return

_REGISTERS = "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs".split()
_UCONTEXT_REGISTERS = (
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"),
    *("rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp", "rip", "eflags"),
)
# System V ABI for AMD64, "DWARF Register Number Mapping".
_DWARF = ("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", *(f"r{number}" for number in range(8, 16)))
_MCONTEXT = 0x28
_UCONTEXT = struct.Struct(f"<{_MCONTEXT}x18Q8xQQ8xQ")
UCONTEXT_SIZE = _UCONTEXT.size
"""Bytes that `read_ucontext` needs."""

_SELECTORS_AT = 0xB8
# cs = 0x33 and ss = 0x2b with gs and fs 0 between them: every 64-bit process on Linux.
_SELECTORS = struct.pack("<HHHH", 0x33, 0, 0, 0x2B)
_MOST_TRAP = 32

# uc_sigmask ends the ucontext; struct siginfo stands behind that in struct rt_sigframe: si_signo, si_errno, si_code, si_addr.
_MASK_AT, _INFO_AT = 0x128, 0x130
_INFO = struct.Struct("<i4xi4xQ")

_PROTECTION, _WRITE, _FETCH = 1, 2, 16
_MASK = re.compile(r"k[1-7]")
"""Intel SDM volume 1, "Opmask Register and Predication"; k0 masks nothing."""
_DIVIDE, _BREAKPOINT, _INVALID_OPCODE, _STACK_SEGMENT, _GENERAL_PROTECTION, _PAGE_FAULT = 0, 3, 6, 12, 13, 14
_X87, _SIMD = 16, 19

# e8 rel32; ff /2 with a register, or with a displacement of 0, 1 or 4 bytes.
_CALLS = (
    CallPattern(bytes([0xFF, 0, 0, 0, 0]), bytes([0xE8, 0, 0, 0, 0])),
    *(CallPattern(bytes([0xFF, 0x38]).ljust(size, b"\0"), bytes([0xFF, 0x10]).ljust(size, b"\0")) for size in (2, 3, 4, 6, 7)),
)


# arch/x86/entry/syscalls/syscall_64.tbl
_SENDING = (62, 129, 200, 234, 297, 14)
"""kill, rt_sigqueueinfo, tkill, tgkill, rt_tgsigqueueinfo; and rt_sigprocmask, with which raise() of musl and of older glibc ends."""
_SYSTEM_CALLS = {
    0: "read",
    1: "write",
    2: "open",
    7: "poll",
    17: "pread64",
    18: "pwrite64",
    19: "readv",
    20: "writev",
    23: "select",
    34: "pause",
    35: "nanosleep",
    42: "connect",
    43: "accept",
    44: "sendto",
    45: "recvfrom",
    46: "sendmsg",
    47: "recvmsg",
    61: "wait4",
    65: "semop",
    72: "fcntl",
    73: "flock",
    74: "fsync",
    75: "fdatasync",
    128: "rt_sigtimedwait",
    130: "rt_sigsuspend",
    202: "futex",
    230: "clock_nanosleep",
    232: "epoll_wait",
    247: "waitid",
    257: "openat",
    270: "pselect6",
    271: "ppoll",
    281: "epoll_pwait",
    288: "accept4",
    299: "recvmmsg",
    441: "epoll_pwait2",
    449: "futex_waitv",
}


class X86_64(Architecture):
    """The x86-64 (AMD64) architecture."""

    name = "x86_64"
    machine = 62
    registers = _REGISTERS
    program_counter = "rip"
    stack_pointer = "rsp"
    frame_pointer = "rbp"
    thread_pointer = "fs_base"
    dwarf_registers = _DWARF
    preserved = ("rbx", "rbp", "r12", "r13", "r14", "r15")
    argument_registers = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")  # System V ABI for AMD64, "Parameter Passing"
    descriptor_at_thread_pointer = True
    dynamic_thread_vector = 8  # tcbhead_t (glibc, sysdeps/x86_64/nptl/tls.h)
    system_call = "orig_rax"
    system_call_is_told = True  # -1 or less where an exception or an interrupt entered the kernel (arch/x86/entry/entry_64.S)
    system_call_arguments = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
    system_calls = _SYSTEM_CALLS
    system_call_codes = (b"\x0f\x05",)
    longest_instruction = 15
    non_canonical = range(1 << 47, 2**64 - (1 << 47))
    trap_instructions = ("ud0", "ud1", "ud2", "ud2b", "int3", "hlt")
    breakpoint = b"\xcc"
    divisions = ("div", "idiv")
    # SSE's and AVX's arithmetic traps itself; the x87's at the next of its instructions that waits for it (Intel SDM 1, 8.7 and 11.5).
    floating_point = re.compile(
        r"v?(?:add|sub|addsub|hadd|hsub|mul|div|sqrt|max|min|cmp\w{0,8}|u?comi|round|dp|fn?m(?:add|sub)\w{0,8})[sp][sd]|v?cvt\w{1,12}|f(?!n)\w{1,12}|wait"
    )
    gdb = "i386:x86-64"
    scan = StackScan(_CALLS, ("rip", "rsp", "rbp"))

    def disassembler(self) -> Any:
        """The shared capstone engine, with instruction details."""
        return _disassembler()

    def jumps(self, code: bytes, address: int) -> Iterator[int]:
        """`jmp`, and `je` and its like, where the target is in the instruction."""
        import capstone

        for _, _, mnemonic, operands in capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64).disasm_lite(code, address):
            if mnemonic.startswith("j") and operands.startswith("0x"):
                yield int(operands, 16)

    def values(self, code: bytes, addresses: range) -> Optional[tuple[Values, Values]]:
        """By following the code in order: what jumps over parts of it is not seen."""
        instructions = _disassembler().disasm(code, addresses.start)
        return follow(instructions, addresses.start, addresses.stop, self.preserved, self.argument_registers)

    def decode(self, code: bytes, registers: Mapping[str, int]) -> Optional[Decoded]:
        """Decode everything that capstone describes; vector-indexed gathers stay unresolved."""
        return _decode(code, registers) if "rip" in registers else None

    def value(self, register: str, registers: Mapping[str, int]) -> Optional[int]:
        """The value of a register, or of the lower 32 bits of one (`eax`, `r8d`)."""
        return _value(register, registers)

    def cannot_divide(self, instruction: Decoded, registers: Mapping[str, int], divisor: Optional[int]) -> bool:
        """The dividend is in rdx:rax or edx:eax, the divisor as wide in a register or in memory (Intel SDM volume 2, DIV and IDIV)."""
        if divisor is None or instruction.mnemonic not in self.divisions:
            return False
        if divisor == 0:
            return True
        size = instruction.accesses[0].size if instruction.accesses else 8 if instruction.divisor in registers else 4
        if size not in (4, 8):
            return False
        bits, names = (64, ("rax", "rdx")) if size == 8 else (32, ("eax", "edx"))
        low, high = (self.value(name, registers) for name in names)
        if low is None or high is None:
            return False
        dividend = high << bits | low
        if instruction.mnemonic == "div":
            return dividend // divisor >> bits != 0
        dividend, divisor = _signed(dividend, 2 * bits), _signed(divisor, bits)
        quotient = abs(dividend) // abs(divisor) * (1 if (dividend < 0) == (divisor < 0) else -1)
        return not -(1 << bits - 1) <= quotient < 1 << bits - 1

    def wants_alignment(self, mnemonic: str) -> bool:
        """Legacy SSE requires aligned 16-byte operands except in its unaligned moves; AVX only in its aligned moves."""
        if mnemonic.startswith("v"):
            return mnemonic.startswith(("vmova", "vmovdqa", "vmovnt"))
        return not mnemonic.startswith(("movu", "movdqu", "lddqu", "pcmpestr", "pcmpistr", "cmpxchg"))

    def return_address(self, registers: Mapping[str, int], stack: bytes) -> Optional[int]:
        """The word at the stack pointer; None if `stack` has fewer than 8 bytes."""
        return int.from_bytes(stack[:8], "little") if len(stack) >= 8 and "rsp" in registers else None

    def at_return(self, registers: Mapping[str, int], code: Read, word: Callable[[int], Optional[int]]) -> Optional[dict[str, int]]:
        """By following the code on one of the ways to its return."""
        return to_return(_disassembler(), registers, code, word, self.preserved)

    def called_before(self, address: int, code: Read, word: Callable[[int], Optional[int]]) -> Optional[int]:
        """Of `call rel32` and `call [rip+disp32]`, through entries of the procedure linkage table; 0 for other calls."""
        return called_before(address, code, word, _CALLS)

    def is_own_raise(self, registers: Mapping[str, int], pid: Optional[int], number: int, to_thread: Optional[bool] = None) -> bool:
        """By the arguments of tgkill in `rdi` and `rdx`, or of kill in `rdi` and `rsi`, and the result 0 in `rax`."""
        holders = {True: ("rdx",), False: ("rsi",), None: ("rdx", "rsi")}[to_thread]
        return (registers.get("rax"), registers.get("rdi")) == (0, pid) and number in [registers.get(name) for name in holders]

    def sends_nothing(self, registers: Mapping[str, int]) -> bool:
        """By the number of the system call that the kernel keeps in `orig_rax`: -1 outside of one."""
        return registers.get("orig_rax", _SENDING[0]) not in _SENDING

    def signal_frames(self, memory: bytes, start: int) -> Iterator[SignalFrame]:
        """Find frames by the selector words that all of them contain, and the return address below."""
        at = memory.find(_SELECTORS)
        while at >= 0:
            context = at - _SELECTORS_AT
            if at % 8 == 0 and 8 <= context <= len(memory) - UCONTEXT_SIZE:
                (restorer,) = struct.unpack_from("<Q", memory, context - 8)
                registers, trap = read_ucontext(memory[context : context + UCONTEXT_SIZE])
                if trap.number <= _MOST_TRAP:
                    info = memory[context + _INFO_AT : context + _INFO_AT + _INFO.size]
                    told = SignalInfo(*_INFO.unpack(info)) if len(info) == _INFO.size else None
                    mask = memory[context + _MASK_AT : context + _INFO_AT]
                    blocked = int.from_bytes(mask, "little") if len(mask) == _INFO_AT - _MASK_AT else None
                    yield SignalFrame(start + context, registers, trap, restorer, told, blocked)
            at = memory.find(_SELECTORS, at + 1)

    def meaning(self, trap: Trap) -> Optional[Meaning]:
        """The trap numbers of arch/x86/include/asm/trapnr.h; page faults are decoded from the error code (Intel SDM volume 3)."""
        if trap.number == _PAGE_FAULT:
            access = "execute" if trap.error & _FETCH else "write" if trap.error & _WRITE else "read"
            return Meaning("page", (SIGSEGV, SIGBUS), access, bool(trap.error & _PROTECTION))
        return _MEANINGS.get(trap.number)

    def pthread(self, registers: Mapping[str, int], tid: int, read: Read) -> Optional[int]:
        """The thread control block at fs is the beginning of `struct pthread` (glibc, sysdeps/x86_64/nptl/tls.h)."""
        return registers.get("fs_base")


_MEANINGS = {
    _GENERAL_PROTECTION: Meaning("protection", (SIGSEGV,)),
    _STACK_SEGMENT: Meaning("protection", (SIGBUS,)),
    _DIVIDE: Meaning("divide", (SIGFPE,)),
    _X87: Meaning("floating-point", (SIGFPE,)),
    _SIMD: Meaning("floating-point", (SIGFPE,)),
    _INVALID_OPCODE: Meaning("illegal", (SIGILL,)),
    _BREAKPOINT: Meaning("breakpoint", (SIGTRAP,)),
}


def read_ucontext(data: bytes) -> tuple[dict[str, int], Trap]:
    """The interrupted registers and the trap from the `struct ucontext` of a signal frame: trapno, err and cr2.

    `data` starts where rsp points in the frame that gdb calls `<signal handler called>`.

    Raises ValueError if it is shorter than `UCONTEXT_SIZE`.
    """
    if len(data) < UCONTEXT_SIZE:
        raise ValueError(f"a ucontext takes {UCONTEXT_SIZE} bytes, got {len(data)}")
    *values, error, number, address = _UCONTEXT.unpack_from(data)
    return dict(zip(_UCONTEXT_REGISTERS, values, strict=True)), Trap(number, error, address)


@cache
def _disassembler() -> Any:
    # capstone takes a tenth of a second to import and most reports never get here.
    import capstone

    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    engine.detail = True
    return engine


def _kinds(access: int, always_writes: bool) -> tuple[str, ...]:
    """`access` is capstone's bit set: 1 read, 2 write. A page that is read and written faults as a write."""
    return ("write",) if access & 2 or always_writes else ("read",)


def _decode(code: bytes, registers: Mapping[str, int]) -> Optional[Decoded]:
    from capstone import x86

    pc = registers["rip"]
    instruction = next(_disassembler().disasm(code[:16], pc, 1), None)
    if instruction is None:
        return None
    mnemonic: str = instruction.mnemonic
    plain = mnemonic.split()[-1]
    accesses = _implied(plain, registers, instruction)
    complete = True
    named: list[str] = []
    divisor = None
    masked = False
    branches = plain in ("call", "jmp")
    # capstone calls the operand of `lock cmpxchg` read-only; a locked operation always writes.
    writes = mnemonic.startswith("lock ")
    for position, operand in enumerate(instruction.operands):
        if operand.type == x86.X86_OP_REG:
            name = instruction.reg_name(operand.reg)
            named.append(name)
            masked = masked or (position > 0 and _MASK.fullmatch(name) is not None)
            if branches:
                accesses += jump(registers.get(name))
            if plain in ("div", "idiv"):
                divisor = name
        elif operand.type == x86.X86_OP_IMM and branches:
            accesses += jump(operand.imm & U64)
        elif operand.type == x86.X86_OP_MEM and is_access(mnemonic):
            # capstone 5 calls the target of an AVX-512 store read: the first operand of a move is what it writes.
            stores = position == 0 and plain.startswith(("mov", "vmov", "vpmov", "vextract", "vcompress", "vpcompress"))
            part = _memory(instruction, operand, registers, writes or stores)
            named += [instruction.reg_name(r) for r in (operand.mem.base, operand.mem.index) if r]
            accesses += part
            complete = complete and bool(part)
    if plain.startswith(("xsave", "xrstor", "fxsave", "fxrstor", "maskmov", "xlat")) or "gather" in plain or "scatter" in plain:
        complete = False
    if masked:
        accesses = [replace(access, masked=True) for access in accesses]
    groups = {instruction.group_name(group) for group in instruction.groups}
    privileged = "privilege" in groups or plain in ("in", "out", "cli", "sti", "int")
    return Decoded(text(instruction), plain, instruction.size, tuple(accesses), complete, privileged, tuple(dict.fromkeys(named)), divisor)


def _memory(instruction: Any, operand: Any, registers: Mapping[str, int], writes: bool) -> list[Access]:
    memory = operand.mem
    base = instruction.reg_name(memory.base) if memory.base else None
    index = instruction.reg_name(memory.index) if memory.index else None
    segment = instruction.reg_name(memory.segment) if memory.segment else None
    address = memory.disp
    for name, scale in ((base, 1), (index, memory.scale)):
        if name is None:
            continue
        value = _value(name, registers)
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
        Access(kind, address & U64, operand.size, base, index, memory.scale, memory.disp, segment)
        for kind in _kinds(operand.access, writes)
    ]


def _value(name: str, registers: Mapping[str, int]) -> Optional[int]:
    """The value of a register or of its lower 32 bits (`eax`, `r8d`); None for one that is not known."""
    if name in registers:
        return registers[name]
    wide = "r" + name[1:] if name.startswith("e") else name.removesuffix("d")
    return registers[wide] & (2**32 - 1) if wide in registers else None


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def _implied(mnemonic: str, registers: Mapping[str, int], instruction: Any) -> list[Access]:
    """What the instruction does with the stack beside its operands."""
    if "rsp" not in registers:
        return []
    if mnemonic.startswith(("push", "call", "enter")):
        return [Access("write", (registers["rsp"] - 8) & U64, 8, "rsp", implied=True)]
    if mnemonic.startswith(("pop", "ret")):
        return [Access("read", registers["rsp"], 8, "rsp", implied=True)]
    if mnemonic == "leave" and "rbp" in registers:
        return [Access("read", registers["rbp"], 8, "rbp", implied=True)]
    return []
