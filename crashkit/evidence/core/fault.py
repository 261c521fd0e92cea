"""Explains why the process received its signal: what was accessed, how, and why that failed.

The kernel reports the signal, its si_code and an address; the registers and the bytes at the program counter show the rest. A reason
is given only if these facts allow no other; otherwise `reason` stays None and `detail` says what is known.

Everything that differs between processors is in `crashkit.arch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from crashkit.arch import Architecture
from crashkit.arch.contract import Meaning, Read, SignalInfo, Trap
from crashkit.arch.operands import Access, Decoded, jump
from crashkit.model import Address, Signal
from crashkit.model import Mapping as Range
from crashkit.naming.addresses import fill_of, is_no_function, is_null
from crashkit.naming.musl import is_musl
from crashkit.naming.signals import (
    FAULTS,
    NOT_FROM_PROCESS,
    SI_KERNEL,
    SI_QUEUE,
    SI_TIMER,
    SI_USER,
    SIGABRT,
    SIGBUS,
    SIGFPE,
    SIGILL,
    SIGSEGV,
    SIGSYS,
    SIGTRAP,
    SIGXFSZ,
    code_name,
    sender_name,
    signal_name,
)

_TOP = 2**64
_KERNEL_HALF = 1 << 63
_PAGE = 4096
_WORD = 8

# From here on a number of bytes is said in hexadecimal.
_LARGE_COUNT = 1 << 16

# An index or offset of up to this size is one; above it, it is more likely the pointer itself.
_LARGE_OFFSET = 1 << 31

# How far below the stack pointer or beside it an overflowing frame may reach, and how far below its stack: the kernel keeps
# stack_guard_gap (256 pages) free there.
_NEAR_STACK_POINTER = 64 * 1024
_STACK_GAP = 256 * _PAGE + _NEAR_STACK_POINTER

# What a function may take of the stack at once, to be believed.
_LARGEST_FRAME = 1 << 34

_SEGV_MAPERR, _SEGV_ACCERR, _SEGV_PKUERR, _SEGV_MTEAERR, _SEGV_MTESERR, _SEGV_CPERR = 1, 2, 4, 8, 9, 10
_BUS_ADRALN, _BUS_ADRERR, _BUS_MCEERR_AR, _BUS_MCEERR_AO = 1, 2, 4, 5
_FPE_INTDIV, _FPE_FLTUNK = 1, 14
# From FPE_FLTDIV to FPE_FLTSUB.
_FLOATING_POINT = {
    3: "a floating-point number was divided by zero",
    4: "a floating-point result was too large for its type",
    5: "a floating-point result was too small for its type",
    6: "a floating-point result was not exact",
    7: "a floating-point operation was not valid (as 0 / 0, or with a signaling NaN)",
    8: "a floating-point operand was out of range",
}
_ILL_ILLOPN = 2
_SYS_SECCOMP = 1
_TRAP_BRKPT = 1


def _unreadable(_address: int, _size: int) -> bytes:
    return b""


def explain(
    signal: Signal,
    architecture: Architecture,
    registers: Mapping[str, int],
    code: bytes = b"",
    mappings: Sequence[Range] = (),
    trap: Trap | None = None,
    *,
    pid: int | None = None,
    stack: bytes = b"",
    info: SignalInfo | None = None,
    handled: frozenset[int] = frozenset(),
    before: bytes = b"",
    read: Read = _unreadable,
) -> Signal:
    """`signal` with access, reason and detail added, its address corrected, and its code recovered if a handler hid it.

    `registers` are those at the fault, named as in gdb: if a signal handler ran, those of the interrupted code. `code` are the bytes
    at the program counter and `stack` those at the stack pointer; both may be empty. `trap` and `info` come from the signal frame, if
    there is one, `handled` are the signals that were blocked since it was made: that of the handler among them, if any is. `before` are
    the bytes in front of the program counter.
    `pid` is that of the crashed process, to distinguish signals that it sent itself from signals sent by others. `read` reads its memory.
    """
    scene = _Scene.of(architecture, registers, code, mappings, stack, pid, handled, before, read)
    if signal.code is None:
        return signal
    if signal.code > 0 and trap is not None:
        # The handler of the first fault failed itself.
        first = _recover(msgspec.structs.replace(signal, ended_with=signal.name), trap, info, scene)
        return _explain_fault(first, scene) if first else signal
    if signal.code <= 0:
        recovered = _recover(signal, trap, info, scene) if trap else _delayed(signal, scene)
        return _explain_fault(recovered, scene) if recovered else _explain_sent(signal, trap is not None, scene)
    return _explain_fault(signal, scene)


class _Scene(msgspec.Struct, frozen=True):
    architecture: Architecture
    registers: Mapping[str, int]
    pc: int | None
    sp: int | None
    instruction: Decoded | None
    mappings: Sequence[Range]
    stack: bytes
    pid: int | None
    handled: frozenset[int]
    before: bytes
    read: Read

    @classmethod
    def of(
        cls,
        architecture: Architecture,
        registers: Mapping[str, int],
        code: bytes,
        mappings: Sequence[Range],
        stack: bytes,
        pid: int | None,
        handled: frozenset[int],
        before: bytes,
        read: Read,
    ) -> _Scene:
        registers = {name: value % _TOP for name, value in registers.items()}
        instruction = architecture.decode(code, registers) if code else None
        pc, sp = registers.get(architecture.program_counter), registers.get(architecture.stack_pointer)
        return cls(architecture, registers, pc, sp, instruction, mappings, stack, pid, handled, before, read)

    @property
    def accesses(self) -> tuple[Access, ...]:
        return (*self.instruction.accesses, *self._indirect()) if self.instruction else ()

    def _indirect(self) -> list[Access]:
        """Where a call or jump of x86 through memory leads: through a table of virtual functions, through an entry for a library's."""
        instruction = self.instruction
        if instruction is None or instruction.mnemonic.split()[-1] not in ("call", "jmp"):
            return []
        operand = next((access for access in instruction.accesses if access.kind == "read" and access.size), None)
        data = self.read(operand.address, operand.size) if operand is not None else b""
        return jump(int.from_bytes(data, "little")) if operand is not None and len(data) == operand.size else []

    @property
    def divisor(self) -> int | None:
        """What a division divided by, from its register or from memory; None if it is not known."""
        if self.instruction is None or self.instruction.mnemonic not in self.architecture.divisions:
            return None
        if self.instruction.divisor is not None:
            return self.architecture.value(self.instruction.divisor, self.registers)
        operand = next(iter(self.accesses), None)
        data = self.read(operand.address, operand.size) if operand is not None and operand.size else b""
        return int.from_bytes(data, "little") if operand is not None and len(data) == operand.size > 0 else None

    def mapping_at(self, address: int) -> Range | None:
        return next((m for m in self.mappings if m.start <= address < m.end), None)

    def access_to(self, address: int, kind: str | None) -> Access | None:
        """The instruction's access to that address; a write where it both reads and writes there."""
        found = [a for a in self.accesses if a.kind != "execute" and a.covers(address) and kind in (None, a.kind)]
        return min(found, key=lambda access: access.kind != "write", default=None)

    def is_fetch(self, address: int) -> bool:
        """Whether reading the instruction itself touched the address."""
        if self.pc is None:
            return False
        home = self.mapping_at(self.pc)
        if address == self.pc and home is not None and home.permissions is not None and "x" not in home.permissions:
            # Zeros are an instruction that accesses memory (add [rax], al), and `call rax` has left that very address there.
            return True
        if self.access_to(address, None):
            return False
        crosses = address % _PAGE == 0 and self.pc < address < self.pc + self.architecture.longest_instruction and self.instruction is None
        return address == self.pc or crosses

    def quote(self) -> str:
        """` (mov rax, [rdi+0x18], rdi = 0)`, or nothing."""
        if self.instruction is None:
            return ""
        values = [f"{name} = {_hex(self.registers[name])}" for name in self.instruction.registers if self._speaks(name)]
        return f" ({', '.join([self.instruction.text, *values])})"

    def _speaks(self, name: str) -> bool:
        used = {a.base for a in self.accesses} | {a.index for a in self.accesses}
        jumps = any(a.kind == "execute" for a in self.accesses)
        return name in self.registers and name != self.architecture.program_counter and (name in used or jumps)


# Signals that a handler re-raised.


def _recover(signal: Signal, trap: Trap, info: SignalInfo | None, scene: _Scene) -> Signal | None:
    """The signal as the kernel first sent it, or None where the trap does not fit it: then no instruction caused it."""
    meaning = scene.architecture.meaning(trap)
    if meaning is None:
        return None
    number = _first_signal(signal, trap, meaning, info, scene)
    if number is None:
        return None
    if number != signal.number:
        # The handler of the fault ended the process with another signal.
        signal = msgspec.structs.replace(signal, number=number, name=signal_name(number), ended_with=signal.ended_with or signal.name)
    code = None
    address = None
    access = None
    if meaning.kind == "page":
        access = _touching(trap.address, meaning, scene)
        if access is None:
            return None
        address = Address(trap.address)
        code = _BUS_ADRERR if number == SIGBUS else _SEGV_ACCERR if _refused(trap.address, meaning, access, scene) else _SEGV_MAPERR
    elif meaning.kind == "protection":
        code = SI_KERNEL if _could_be_refused(signal, scene) else None
    elif meaning.kind == "divide":
        code = _FPE_INTDIV if scene.instruction and scene.instruction.mnemonic in scene.architecture.divisions else None
    elif meaning.kind == "floating-point":
        code = info.code if info is not None and info.number == number and info.code in _FLOATING_POINT else _FPE_FLTUNK
    elif meaning.kind == "illegal":
        code = _ILL_ILLOPN
    elif meaning.kind == "breakpoint":
        code = SI_KERNEL
    if code is None:
        return None
    name = code_name(number, code)
    return msgspec.structs.replace(signal, code=code, code_name=name, address=address, access=access, sender_pid=None, recovered=True)


def _first_signal(signal: Signal, trap: Trap, meaning: Meaning, info: SignalInfo | None, scene: _Scene) -> int | None:
    """The number of the trap's signal. None where the trap may be left over from before: it must still be what the instruction does."""
    if info is not None and info.number in meaning.signals and info.code > 0 and (meaning.kind != "page" or info.address == trap.address):
        return info.number
    came = scene.handled & FAULTS
    if len(came) == 1 and came <= {*meaning.signals} and not _raises(next(iter(came)), scene):
        return next(iter(came))
    does = next((number for number in meaning.signals if _would_fault(number, scene) is not None), None)
    if does is not None:
        return does
    arithmetic = scene.architecture.floating_point
    if meaning.kind == "floating-point" and arithmetic and scene.instruction and arithmetic.fullmatch(scene.instruction.mnemonic):
        return meaning.signals[0]
    if meaning.kind == "page" and SIGBUS in meaning.signals and _lacked_page(trap.address, meaning, scene):
        return SIGBUS
    if meaning.kind == "protection" and _general_protection(signal, scene).reason is not None:
        return meaning.signals[0]
    # Linux keeps the address of a fault that it sent a signal for (arch/x86/mm/fault.c, set_signal_archinfo): the memory was mapped since.
    if meaning.kind == "page" and signal.number == SIGABRT and any(access.address == trap.address for access in scene.accesses):
        return meaning.signals[0]
    if meaning.kind == "breakpoint" and scene.architecture.breakpoint and scene.before.endswith(scene.architecture.breakpoint):
        return meaning.signals[0]
    return signal.number if signal.number in meaning.signals else None


def _lacked_page(address: int, meaning: Meaning, scene: _Scene) -> bool:
    """Whether an access failed that its mapping allows, because the file had no such page: Linux calls that SIGBUS."""
    mapping, access = scene.mapping_at(address), scene.access_to(address, meaning.access)
    if mapping is None or access is None or meaning.mapped or not mapping.path or mapping.path.startswith("["):
        return False
    return {"read": "r", "write": "w"}[access.kind] in (mapping.permissions or "")


def _delayed(signal: Signal, scene: _Scene) -> Signal | None:
    """A handler raised the signal while it was blocked, and returned: the kernel then sent it at the instruction that had faulted."""
    if scene.pid is None or signal.sender_pid not in (None, scene.pid):
        return None
    found = _would_fault(signal.number, scene)
    if found is None:
        return None
    code, access, address = found
    name = code_name(signal.number, code)
    return msgspec.structs.replace(signal, code=code, code_name=name, access=access, address=address, sender_pid=None)


def _would_fault(number: int, scene: _Scene) -> tuple[int, str | None, Address | None] | None:
    """si_code, access and address with which the instruction at the program counter certainly fails, with this signal; else None."""
    instruction, architecture = scene.instruction, scene.architecture
    if number == SIGSEGV and scene.mappings:
        # The instruction itself is fetched first.
        accesses = [*([Access("execute", scene.pc, 1)] if scene.pc is not None else []), *scene.accesses]
        for access in accesses:
            if access.address in architecture.non_canonical:
                return SI_KERNEL, None, None
            mapping = scene.mapping_at(access.address)
            needed = {"read": "r", "write": "w", "execute": "x"}[access.kind]
            if mapping is None or (mapping.permissions is not None and needed not in mapping.permissions):
                return (_SEGV_MAPERR if mapping is None else _SEGV_ACCERR), access.kind, Address(access.address)
    elif number == SIGFPE and instruction is not None and architecture.cannot_divide(instruction, scene.registers, scene.divisor):
        return _FPE_INTDIV, None, None
    elif number == SIGILL and instruction is not None and instruction.mnemonic in architecture.trap_instructions:
        return _ILL_ILLOPN, None, None
    return None


def _refused(address: int, meaning: Meaning, access: str, scene: _Scene) -> bool:
    """Whether Linux called it SEGV_ACCERR: by what the mapping allows, since a page that was never touched lacks the protection bit."""
    mapping = scene.mapping_at(address)
    if mapping is not None and mapping.permissions is not None:
        return {"read": "r", "write": "w", "execute": "x"}[access] not in mapping.permissions
    # For the kernel's half of the addresses the processor reports protection, Linux SEGV_MAPERR.
    return meaning.mapped and address < _KERNEL_HALF


def _touching(address: int, meaning: Meaning, scene: _Scene) -> str | None:
    """How the interrupted instruction touched the address; None where it certainly does not: then the trap is left over from before."""
    if meaning.access == "execute":
        near = scene.pc is not None and scene.pc <= address < scene.pc + scene.architecture.longest_instruction
        return "execute" if near else None
    found = scene.access_to(address, None)
    if meaning.access is None:
        return found.kind if found else "execute" if scene.is_fetch(address) else None
    unsure = scene.instruction is None or not scene.instruction.complete
    return meaning.access if unsure or found else None


def _could_be_refused(signal: Signal, scene: _Scene) -> bool:
    """False where the interrupted instruction certainly raises no general protection fault."""
    instruction = scene.instruction
    return instruction is None or not instruction.complete or _general_protection(signal, scene).reason is not None


def _explain_sent(signal: Signal, handled: bool, scene: _Scene) -> Signal:
    """A signal sent by a process: si_addr overlays the sender and is not an address."""
    signal = msgspec.structs.replace(signal, address=None, access=None)
    if signal.code == SI_TIMER and not handled:
        return _reason(signal, "timer", "a timer that the process had set (timer_create) sent it, not caused by an instruction")
    if signal.code in NOT_FROM_PROCESS and not handled:
        return _reason(signal, "sent", f"the kernel sent it because the process had asked for it ({signal.code_name})")
    own = scene.pid is not None and signal.sender_pid == scene.pid
    if signal.sender_pid is not None and scene.pid is not None and not own:
        return _reason(
            signal, "sent-from-outside", f"sent by {sender_name(signal.sender_pid)}, not caused by an instruction of this process"
        )
    if handled and not _raises(signal.number, scene):
        # The handler passed the signal on in its own name.
        signal = msgspec.structs.replace(signal, sender_pid=None)
        if scene.instruction is None:
            return _reason(signal, None, "a signal handler hid its origin, and the interrupted instruction's bytes are missing")
        return _reason(
            signal,
            "sent",
            f"the interrupted instruction cannot have caused it: {signal.name} was sent, and a signal handler hid the sender",
        )
    itself = handled or not scene.architecture.sends_nothing(scene.registers)
    if signal.number == SIGABRT and itself and (own or signal.sender_pid is None) and signal.code not in (SI_USER, SI_QUEUE):
        return _reason(signal, "abort", "the process aborted itself")
    if own and signal.number == SIGXFSZ and signal.code == SI_USER and not _raises(signal.number, scene):
        # generic_write_check_limits() in fs/read_write.c names the process itself as the sender.
        signal = msgspec.structs.replace(signal, sender_pid=None)
        return _reason(signal, None, "a write would have made a file larger than the process may (RLIMIT_FSIZE)")
    if own and (handled or signal.code in (SI_USER, SI_QUEUE)):
        return _reason(signal, "raised", "the process sent the signal to itself")
    if own and scene.stack and scene.instruction is not None and not _raises(signal.number, scene):
        told = (
            "the process raised the signal itself, in a handler that has returned or in another thread: this one was in no call that does"
        )
        return _reason(signal, "raised", told)
    if own and scene.stack:
        # The frame of a handler that raised it again would have been found.
        return _reason(signal, "raised", "the process raised the signal itself, outside of a signal handler")
    if own:
        return _reason(
            signal, None, "the process raised the signal itself: a handler hid the original fault, or the program called raise()"
        )
    return _reason(signal, None, "sent with kill() or raise(), sender unknown")


def _raises(number: int, scene: _Scene) -> bool:
    """Whether the interrupted code has just returned from its own tgkill(pid, tid, number)."""
    return scene.architecture.is_own_raise(scene.registers, scene.pid, number)


# Faults.


def _explain_fault(signal: Signal, scene: _Scene) -> Signal:
    if signal.code == SI_KERNEL and signal.number in (SIGSEGV, SIGBUS):
        refused = _general_protection(msgspec.structs.replace(signal, address=None), scene)
        return refused if refused.reason is not None or signal.recovered else _without_room(signal, scene) or refused
    explainer = {
        SIGSEGV: _segmentation_fault,
        SIGBUS: _bus_error,
        SIGFPE: _arithmetic,
        SIGILL: _illegal,
        SIGTRAP: _trap,
        SIGSYS: _bad_system_call,
    }.get(signal.number)
    return explainer(signal, scene) if explainer else signal


def _segmentation_fault(signal: Signal, scene: _Scene) -> Signal:
    if signal.address is None:
        return signal
    address = int(signal.address)
    fetch = signal.access == "execute" or (signal.access is None and scene.is_fetch(address))
    if fetch:
        return _bad_jump(msgspec.structs.replace(signal, access="execute"), address, scene)
    access = scene.access_to(address, signal.access) or scene.access_to(address, None)
    signal = msgspec.structs.replace(signal, access=signal.access or (access.kind if access else None))
    what = _describe(signal.access, access, address)
    quote = scene.quote()

    stack = _overflowed_stack(address, scene, unmapped=signal.code == _SEGV_MAPERR)
    if stack:
        size = _size(stack.end - stack.start)
        return _reason(signal, "stack-overflow", f"{what}: below the end of the thread's stack ({size}, all used){quote}")
    if signal.code in (_SEGV_MAPERR, _SEGV_ACCERR) and (left := _left_stack(address, scene)) is not None:
        text = f"{what}: {_size(left.start - address)} below the end of the thread's stack, which a function took at once"
        return _reason(signal, "stack-overflow", text + quote)
    special = _SPECIAL_CODES.get(signal.code or 0)
    if special:
        return _reason(signal, special[0], f"{what}: {special[1]}{quote}")
    if _is_null(address, access, scene) and signal.code == _SEGV_MAPERR:
        return _reason(signal, "null-pointer", f"{what}: {_null(address, access, scene)}{quote}")
    mapping = scene.mapping_at(address)
    if signal.code == _SEGV_ACCERR:
        return _forbidden(signal, mapping, what, quote, scene)
    if signal.code == _SEGV_MAPERR:
        return _reason(signal, "unmapped", f"{what}: {_unmapped(address, access, mapping, scene)}{quote}")
    return _reason(signal, None, f"{what}{quote}")


_SPECIAL_CODES = {
    _SEGV_PKUERR: ("protection-key", "the thread's protection keys forbid it"),
    _SEGV_MTEAERR: ("memory-tag", "the pointer's tag does not match the memory's tag"),
    _SEGV_MTESERR: ("memory-tag", "the pointer's tag does not match the memory's tag"),
    _SEGV_CPERR: ("control-protection", "the return address does not match the shadow stack"),
}


def _bad_jump(signal: Signal, address: int, scene: _Scene) -> Signal:
    came_from = _caller(scene)
    if is_null(address) and not is_no_function(address):
        pointer = "a null function pointer" if address == 0 else f"a null pointer plus {_bytes(address)}"
        return _reason(signal, "null-pointer", f"execution at {_hex(address)}: {pointer} was called{came_from}")
    mapping = scene.mapping_at(address)
    if signal.code == _SEGV_ACCERR:
        return _reason(signal, "no-exec", f"execution at {_hex(address)}: {_in_mapping(mapping)} is not executable{came_from}")
    if signal.code == _SEGV_MAPERR:
        text = f"execution at {_hex(address)}: nothing is mapped there; the function pointer or return address is wrong{came_from}"
        return _reason(signal, "unmapped", text + _pattern(address, None, scene))
    return signal


def _caller(scene: _Scene) -> str:
    """What was called by a wrong pointer has its return address where calls leave it; only one that is executable is believed."""
    value = scene.architecture.return_address(scene.registers, scene.stack)
    mapping = scene.mapping_at(value) if value is not None else None
    return f"; the caller's return address is {_hex(value or 0)}" if mapping and "x" in (mapping.permissions or "") else ""


def _overflowed_stack(address: int, scene: _Scene, unmapped: bool) -> Range | None:
    """The exhausted stack, if the access was just below it and the stack pointer is there too; else None."""
    sp = scene.sp
    if sp is None or abs(address - sp) > _NEAR_STACK_POINTER:
        return None
    home = scene.mapping_at(sp)
    if home and _is_open(home) and home.end <= address:
        return None  # over the top of its own stack, into the guard of the next one
    place = scene.mapping_at(address)
    if place and _is_open(place):
        # A guard that madvise(MADV_GUARD_INSTALL) put into the stack's own mapping (glibc 2.42): mapped, yet reported as not.
        return place if unmapped and place is home and address - place.start < _STACK_GAP else None
    if place and place.permissions and "r" in place.permissions:
        return None
    above = [m for m in scene.mappings if m.start > address and m.start - (place.end if place else address) <= _STACK_GAP]
    nearest = min(above, key=lambda m: m.start, default=None)
    if nearest is None or not _is_open(nearest) or (home and _is_open(home) and home is not nearest):
        return None
    return nearest


def _left_stack(address: int, scene: _Scene) -> Range | None:
    """The stack that a function with very large local variables left, past the guard below it: else None.

    The stack pointer is where no stack can be: nothing is mapped there, or a file's code or constants. The frame pointer is still in the
    stack, or the next mapping above is the main thread's stack.
    """
    sp = scene.sp
    home = scene.mapping_at(sp) if sp is not None else None
    if sp is None or abs(address - sp) > _NEAR_STACK_POINTER or (home is not None and _is_open(home)):
        return None
    above = [mapping for mapping in scene.mappings if sp < mapping.start <= sp + _LARGEST_FRAME]
    frame = scene.registers.get(scene.architecture.frame_pointer)
    stack = next((mapping for mapping in above if frame is not None and mapping.start <= frame < mapping.end and _is_open(mapping)), None)
    nearest = min(above, key=lambda mapping: mapping.start, default=None)
    return stack or (nearest if nearest is not None and nearest.path == "[stack]" else None)


def _is_open(mapping: Range) -> bool:
    return (mapping.permissions or "").startswith("rw")


def _is_null(address: int, access: Access | None, scene: _Scene) -> bool:
    if is_null(address):
        return _small_number(access, scene) is None
    if access is None or access.base is None or access.segment or access.implied:
        return False
    registers = scene.registers
    if registers.get(access.base) != 0:
        return False
    if access.index is None:
        return True
    # [rax+rcx] may hold its pointer in either register; a scaled or small one is an index.
    index = registers.get(access.index, 0)
    return access.scale > 1 or min(index, _TOP - index) < _LARGE_OFFSET


def _small_number(access: Access | None, scene: _Scene) -> int | None:
    """The number that was used as a pointer to a word and is none, nor a null pointer plus an offset: words are aligned."""
    if access is None or access.base is None or access.index is not None or access.size != _WORD:
        return None
    base = scene.registers.get(access.base, 0)
    return base if is_null(base) and base % _WORD else None


def _null(address: int, access: Access | None, scene: _Scene) -> str:
    if address == 0:
        return "a null pointer"
    if access is not None and access.base is not None and access.index is None and scene.registers.get(access.base) == address:
        return f"{address} was used as a pointer: a number, or a null pointer plus an offset"
    if address >= _KERNEL_HALF:
        return f"a null pointer minus an offset of {_bytes(_TOP - address)}"
    return f"a null pointer plus an offset of {_bytes(address)}"


def _unmapped(address: int, access: Access | None, mapping: Range | None, scene: _Scene) -> str:
    if (number := _small_number(access, scene)) is not None and is_null(address):
        return f"{_hex(number)} was used as a pointer, a number that is too small for one"
    base = scene.registers.get(access.base) if access and access.base else None
    if base == _TOP - 1:
        return "-1 was used as a pointer: an error that went unchecked (MAP_FAILED is -1), or memory that is filled with 0xff"
    if address >= _KERNEL_HALF:
        return "an address in the kernel's half, not a pointer of this process" + _pattern(address, access, scene)
    if mapping:
        return f"nothing was mapped there at the time of the access; {_in_mapping(mapping)} is there now"
    return "nothing is mapped there" + (_neighbour(address, scene.mappings) or _pattern(address, access, scene))


def _neighbour(address: int, mappings: Iterable[Range]) -> str:
    below = max((m for m in mappings if m.end <= address), key=lambda m: m.end, default=None)
    if below is None or address - below.end > _PAGE:
        return ""
    behind = f"{_bytes(address - below.end)} past the end of" if address > below.end else "directly after"
    return f", {behind} {_in_mapping(below)}"


def _forbidden(signal: Signal, mapping: Range | None, what: str, quote: str, scene: _Scene) -> Signal:
    place = _in_mapping(mapping)
    permissions = mapping.permissions if mapping else None
    if permissions is not None and permissions.startswith("---"):
        behind = _neighbour(int(signal.address or 0), [one for one in scene.mappings if one is not mapping])
        return _reason(signal, "no-access", f"{what}: {place} allows no access{behind}{quote}")
    if signal.access == "write" and "w" not in (permissions or ""):
        return _reason(signal, "read-only", f"{what}: {place} is read-only{quote}")
    return _reason(signal, None, f"{what}: {place} did not allow it{quote}")


def _general_protection(signal: Signal, scene: _Scene) -> Signal:
    """The processor refused the instruction without reporting an address; si_addr 0 has no meaning here."""
    pc, instruction = scene.pc, scene.instruction
    if pc is not None and pc in scene.architecture.non_canonical:
        return _non_canonical(signal, "execute", pc, f"execution at {_hex(pc)}", scene)
    if instruction is None:
        return _reason(
            signal, None, "general protection fault: the kernel did not report the fault address, and the instruction's bytes are missing"
        )
    for access in scene.accesses:
        if access.address in scene.architecture.non_canonical:
            return _non_canonical(signal, access.kind, access.address, _describe(access.kind, access, access.address), scene)
        stack = None if access.kind == "execute" else _overflowed_stack(access.address, scene, unmapped=False)
        if stack:
            return _handler_without_stack(signal, access, stack, scene)
    if instruction.mnemonic.startswith("ret"):
        return _bad_return(signal, scene)
    home = scene.mapping_at(pc) if pc is not None else None
    if instruction.mnemonic == "hlt" and home is not None and is_musl(home.path or ""):
        return _reason(signal, "trap", "hlt: musl stopped the process, because one of its checks failed; it prints nothing")
    if instruction.privileged:
        return _reason(signal, "privileged-instruction", f"{instruction.text}: only the kernel may execute it, so control flow went wrong")
    for access in instruction.accesses:
        if access.size in (16, 32, 64) and access.address % access.size and scene.architecture.wants_alignment(instruction.mnemonic):
            what = _describe(access.kind, access, access.address)
            signal = msgspec.structs.replace(signal, address=Address(access.address), access=access.kind)
            return _reason(signal, "misaligned", f"{what}: the instruction requires a multiple of {access.size}{scene.quote()}")
    return _reason(signal, None, f"general protection fault: the kernel did not report the fault address{scene.quote()}")


def _handler_without_stack(signal: Signal, access: Access, stack: Range, scene: _Scene) -> Signal:
    """A thread without an alternate stack overflowed its own: the kernel had no room for the handler's frame and sent SI_KERNEL instead."""
    what = _describe(access.kind, access, access.address)
    text = f"{what}: below the end of the thread's stack ({_size(stack.end - stack.start)}, all used), so no signal handler could run"
    signal = msgspec.structs.replace(signal, address=Address(access.address), access=access.kind)
    return _reason(signal, "stack-overflow", text + scene.quote())


def _without_room(signal: Signal, scene: _Scene) -> Signal | None:
    """A signal whose handler's frame did not fit on its stack, such as a small alternate one: SI_KERNEL says only that.

    None where the instruction may have been refused all the same.
    """
    for number in (signal.number, SIGFPE, SIGILL):
        found = _would_fault(number, scene)
        if found is None:
            continue
        code, access, address = found
        told = msgspec.structs.replace(signal, number=number, name=signal_name(number), code=code, code_name=code_name(number, code))
        told = _explain_fault(msgspec.structs.replace(told, access=access, address=address), scene)
        ended = None if number == signal.number else signal.name
        return msgspec.structs.replace(told, ended_with=ended, detail=f"{told.detail}; its handler could not run: {_NO_ROOM}")
    instruction = scene.instruction
    if instruction is None or not instruction.complete or instruction.accesses:
        return None
    return _reason(signal, "no-room", f"a signal's handler could not run: {_NO_ROOM} (the instruction did not fail: {instruction.text})")


_NO_ROOM = "there was no room for its frame on the handler's stack"


def _non_canonical(signal: Signal, access: str, address: int, what: str, scene: _Scene) -> Signal:
    signal = msgspec.structs.replace(signal, address=Address(address), access=access)
    text = f"{what}: not a valid address on this processor (non-canonical); the pointer was overwritten or was never a pointer"
    return _reason(signal, "non-canonical", f"{text}{_pattern(address, scene.access_to(address, access), scene)}{scene.quote()}")


def _bad_return(signal: Signal, scene: _Scene) -> Signal:
    value = scene.architecture.return_address(scene.registers, scene.stack)
    if value is None:
        return _reason(signal, None, "return to an invalid address: the return address on the stack was overwritten")
    if value not in scene.architecture.non_canonical:
        return _reason(signal, None, f"general protection fault at a return to {_hex(value)}")
    return _non_canonical(signal, "execute", value, f"return to {_hex(value)}", scene)


def _bus_error(signal: Signal, scene: _Scene) -> Signal:
    if signal.code in (_BUS_MCEERR_AR, _BUS_MCEERR_AO):
        return _reason(signal, "hardware-memory-error", "the memory hardware reported an uncorrectable error")
    if signal.address is None:
        return signal
    address = int(signal.address)
    access = scene.access_to(address, signal.access)
    kind = signal.access or (access.kind if access else None) or ("execute" if scene.is_fetch(address) else None)
    signal = msgspec.structs.replace(signal, access=kind)
    what = _describe(kind, access, address)
    if signal.code == _BUS_ADRALN:
        return _reason(signal, "misaligned", f"{what}: not aligned as the instruction requires{scene.quote()}")
    mapping = scene.mapping_at(address)
    if signal.code == _BUS_ADRERR and mapping and mapping.path and not mapping.path.startswith("["):
        text = (
            f"{what}: {mapping.path} is mapped there but ends before this address (truncated), or its filesystem could not provide the page"
        )
        return _reason(signal, "bus-truncated-file", text + scene.quote())
    return _reason(signal, None, f"{what}: the memory behind {_in_mapping(mapping)} could not be provided{scene.quote()}")


def _arithmetic(signal: Signal, scene: _Scene) -> Signal:
    signal = msgspec.structs.replace(signal, address=None)
    if signal.code != _FPE_INTDIV:
        unknown = f"an operation with floating-point numbers failed ({signal.code_name or signal.code})"
        what = _FLOATING_POINT.get(signal.code or 0, unknown)
        return _reason(signal, "floating-point", f"{what}, which the program had made a signal{scene.quote()}")
    value = scene.divisor
    if value is None:
        cause = "an integer was divided by zero, or the quotient does not fit"
    else:
        cause = "an integer was divided by zero" if value == 0 else f"the quotient of an integer division by {_hex(value)} does not fit"
    return _reason(signal, "quotient-overflow" if value else "integer-divide", cause + scene.quote())


def _illegal(signal: Signal, scene: _Scene) -> Signal:
    signal = msgspec.structs.replace(signal, address=signal.address or (Address(scene.pc) if scene.pc is not None else None))
    instruction = scene.instruction
    if instruction is None:
        return _reason(signal, "illegal-instruction", "the processor does not recognize the instruction")
    if instruction.mnemonic in scene.architecture.trap_instructions:
        text = f"{instruction.text}: inserted by a compiler to stop the program (a failed check, or unreachable code)"
        return _reason(signal, "trap", text)
    return _reason(signal, "illegal-instruction", f"this processor does not support the instruction {instruction.text}")


def _trap(signal: Signal, scene: _Scene) -> Signal:
    if signal.code in (SI_KERNEL, _TRAP_BRKPT):
        return _reason(msgspec.structs.replace(signal, address=None), "trap", "a breakpoint instruction was executed without a debugger")
    return signal


def _bad_system_call(signal: Signal, scene: _Scene) -> Signal:
    if signal.code != _SYS_SECCOMP:
        return signal
    number = scene.registers.get(scene.architecture.system_call or "")
    which = "a system call" if number is None else f"system call {number}"
    return _reason(signal, "seccomp", f"{which} is forbidden by the process's seccomp filter (a sandbox or container profile)")


# Words.


def _reason(signal: Signal, reason: str | None, detail: str) -> Signal:
    return msgspec.structs.replace(signal, reason=reason, detail=detail)


def _describe(kind: str | None, access: Access | None, address: int) -> str:
    kind = {"execute": "execution"}.get(kind or "", kind or "access")
    if access and access.size and access.kind != "execute":
        return f"{kind} of {'up to ' if access.masked else ''}{_bytes(access.size)} at {_hex(address)}"
    return f"{kind} at {_hex(address)}"


def _in_mapping(mapping: Range | None) -> str:
    if mapping is None:
        return "the memory there"
    name = mapping.path or "the anonymous memory"
    return f"{name} ({mapping.permissions})" if mapping.permissions else name


def _pattern(address: int, access: Access | None, scene: _Scene) -> str:
    """What the bytes of a wild pointer look like: of the one that an offset or an index was added to, where that is known."""
    registers = (access.base, access.index if access.scale == 1 else None) if access is not None and not access.implied else ()
    pointers = [(f"the bytes of {name} match", f"the bytes of {name} read", scene.registers.get(name)) for name in registers if name]
    for match, read, pointer in [*pointers, ("its bytes match", "its bytes read", address)]:
        if pointer is None:
            continue
        if (fill := fill_of(pointer)) is not None:
            return f"; {match} {fill.meaning}"
        # A string may end within the pointer.
        text = pointer.to_bytes(8, "little").removesuffix(b"\0")
        if all(0x20 <= byte < 0x7F for byte in text):
            return f"; {read} {text.decode('ascii')!r}, so it was overwritten with text"
    return ""


def _hex(value: int) -> str:
    return hex(value) if value else "0"


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes" if count < _LARGE_COUNT else f"{count:#x} bytes"


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 1024:.0f} KiB"
