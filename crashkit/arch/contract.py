"""What crashkit needs to know about a processor; each processor has one file in this folder.

Only the name is required: anything else that is missing is reported as unknown. Everything here is pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Optional, Union

import msgspec

from crashkit.arch.operands import Decoded

Read = Callable[[int, int], bytes]
"""Memory: up to `size` bytes at an address."""


class Trap(msgspec.Struct, frozen=True):
    """The processor's exception as the kernel put it into a signal frame; `Architecture.meaning` interprets it.

    It is the thread's *last* exception, not necessarily the cause of this signal: check it against the instruction.
    """

    number: int
    """Its class. x86-64: trapno. AArch64: the exception class (EC) of ESR."""
    error: int
    """Its details. x86-64: err. AArch64: ESR."""
    address: int
    """The faulting address, for a memory fault."""


class Meaning(msgspec.Struct, frozen=True):
    """The meaning of a trap, in terms common to all processors."""

    kind: str
    """page: an access that the page tables do not allow; protection: one refused for another reason, address not reported;
    divide, floating-point, illegal, breakpoint."""
    signals: tuple[int, ...]
    """Signals that Linux sends for it."""
    access: Optional[str] = None
    """read, write, execute. None: determined by the instruction."""
    mapped: bool = False
    """True if a page is mapped there but forbids the access."""


class SignalInfo(msgspec.Struct, frozen=True):
    """The beginning of the `siginfo_t` in a signal frame: written only for a handler with SA_SIGINFO, else left-over memory."""

    number: int
    code: int
    address: int

    @property
    def pid(self) -> int:
        """Of the sender, where a process sent the signal: it lies where the address is."""
        return self.address & 0xFFFFFFFF


class SignalFrame(msgspec.Struct, frozen=True):
    """The kernel's frame of a signal handler: what was interrupted."""

    address: int
    """Address of its `struct ucontext`."""
    registers: dict[str, int]
    trap: Trap
    restorer: Optional[int] = None
    """The handler's return address, if the frame contains it; it points to executable memory."""
    info: Optional[SignalInfo] = None
    """None where the processor's frame was cut off before it."""
    blocked: Optional[int] = None
    """Signals that were blocked when this one arrived: bit n-1 for signal n."""


SLOT = "slot"
Place = Union[str, tuple[str, int]]
"""A register, or a SLOT on the stack, counted from the stack pointer at the function's entry."""
Value = Union[int, tuple[str, Any]]
"""A constant; or what something was at the entry: an argument, a register, the stack pointer with what was added to it."""
Values = dict[Place, Value]


class CallPattern(NamedTuple):
    """A call instruction of `len(mask)` bytes: the bits in `mask` must equal those of `value`."""

    mask: bytes
    value: bytes


class StackScan(msgspec.Struct, frozen=True):
    """How a caller's frame can be recognised on the stack by its return address alone."""

    calls: tuple[CallPattern, ...]
    """The call instructions that can precede a return address."""
    registers: tuple[str, str, str]
    """Program counter, stack pointer and frame pointer, as gdb names them."""


class Architecture:
    """Base of every processor's class. Registers are named as in gdb."""

    name: ClassVar[str]
    """As in `Process.architecture`."""
    machine: ClassVar[Optional[int]] = None
    """e_machine."""
    registers: ClassVar[Sequence[str]] = ()
    """In the order of `elf_gregset_t`, which NT_PRSTATUS holds."""
    program_counter: ClassVar[str] = "pc"
    stack_pointer: ClassVar[str] = "sp"
    frame_pointer: ClassVar[str] = ""
    thread_pointer: ClassVar[Optional[str]] = None
    """The register that points to a thread's thread-local storage."""
    register_notes: ClassVar[Mapping[int, str]] = {}
    """Maps types of notes that follow a thread's NT_PRSTATUS to the name of the one register that they contain."""
    dwarf_registers: ClassVar[Sequence[str]] = ()
    """The registers by their number in unwind tables."""
    preserved: ClassVar[Sequence[str]] = ()
    """The registers that a called function leaves as they were, the stack pointer excepted."""
    argument_registers: ClassVar[Sequence[str]] = ()
    """Those with a function's arguments, where `values` can follow the processor's code; else none."""
    descriptor_at_thread_pointer: ClassVar[bool] = False
    """Whether the thread pointer is the address of glibc's thread descriptor, `struct pthread`, rather than of what follows it."""
    dynamic_thread_vector: ClassVar[Optional[int]] = None
    """Where the C library keeps the pointer to the vector of a thread's storage, counted from the thread pointer in bytes."""
    system_call: ClassVar[Optional[str]] = None
    """The register with the number of the system call."""
    system_call_is_told: ClassVar[bool] = False
    """Whether that register has the number of a call only within one, so that the code need not show that it is one."""
    system_call_arguments: ClassVar[Sequence[str]] = ()
    """The registers with its arguments."""
    system_calls: ClassVar[Mapping[int, str]] = {}
    """The names of those that can wait, by number."""
    system_call_codes: ClassVar[tuple[bytes, ...]] = ()
    """The instructions that make one."""
    longest_instruction: ClassVar[int] = 16
    """Bytes."""
    instruction_step: ClassVar[int] = 1
    """Alignment of instructions in bytes."""
    non_canonical: ClassVar[range] = range(0)
    """Addresses that the processor rejects without reporting them."""
    trap_instructions: ClassVar[tuple[str, ...]] = ()
    """Instructions that compilers use to stop a program."""
    breakpoint: ClassVar[bytes] = b""
    """The instruction that the program counter is behind as its trap is reported."""
    divisions: ClassVar[tuple[str, ...]] = ()
    """Instructions that trap if they cannot divide."""
    floating_point: ClassVar[Optional[re.Pattern[str]]] = None
    """Instructions (the whole mnemonic) at which a floating-point exception that the program enabled traps."""
    signal_window: ClassVar[int] = 1 << 20
    """Bytes above the stack pointer to search for a signal frame: a handler that formats text uses much of its stack."""
    gdb: ClassVar[Optional[str]] = None
    """For gdb's `set architecture`."""
    scan: ClassVar[Optional[StackScan]] = None
    """None: the outer end of a deep stack is not searched for."""

    def disassembler(self) -> Any:
        """A capstone engine, or None."""
        return None

    def jumps(self, code: bytes, address: int) -> Iterator[int]:
        """Targets of the direct jumps in a function's code, which is at `address`; calls are none."""
        return iter(())

    def values(self, code: bytes, addresses: range) -> Optional[tuple[Values, Values]]:
        """What registers and stack hold before and after the last instruction of `code`, the beginning of a function at these addresses.

        None if the code is not valid, or cannot be followed.
        """
        return None

    def decode(self, code: bytes, registers: Mapping[str, int]) -> Optional[Decoded]:
        """Decode the first instruction of `code`, which is at the program counter; None if it is not valid."""
        return None

    def value(self, register: str, registers: Mapping[str, int]) -> Optional[int]:
        """The value of a register or of a part of one (`eax`, `w3`)."""
        return registers.get(register)

    def cannot_divide(self, instruction: Decoded, registers: Mapping[str, int], divisor: Optional[int]) -> bool:
        """Whether a division by `divisor` certainly traps: that is 0, or the quotient does not fit. False where an operand is not known."""
        return False

    def wants_alignment(self, mnemonic: str) -> bool:
        """Whether the instruction faults on an address that is not a multiple of its operand's size."""
        return False

    def return_address(self, registers: Mapping[str, int], stack: bytes) -> Optional[int]:
        """Return address at the entry of a function or at a return instruction; None if unknown. `stack`: bytes at the stack pointer."""
        return None

    def at_return(self, registers: Mapping[str, int], code: Read, word: Callable[[int], Optional[int]]) -> Optional[dict[str, int]]:
        """What the caller's registers will be once the code at these has returned: as far as known, with the program counter.

        None if the code does not return, or cannot be followed. `code` and `word` read the process's memory.
        """
        return None

    def called_before(self, address: int, code: Read, word: Callable[[int], Optional[int]]) -> Optional[int]:
        """What the call that ends at `address` called; 0 if only its registers would tell; None if there is no call."""
        return None

    def is_own_raise(self, registers: Mapping[str, int], pid: Optional[int], number: int, to_thread: Optional[bool] = None) -> bool:
        """Whether the registers are those after a successful tgkill(pid, ..., number) or kill(pid, number).

        `to_thread`: that it can only have been the former, or the latter.
        """
        return False

    def sends_nothing(self, registers: Mapping[str, int]) -> bool:
        """Whether the registers of a thread as it died show that it was in no call that sends a signal; False where they do not tell."""
        return False

    def signal_frames(self, memory: bytes, start: int) -> Iterator[SignalFrame]:
        """Yield what looks like a signal frame in this piece of a stack at address `start`, innermost first."""
        return iter(())

    def meaning(self, trap: Trap) -> Optional[Meaning]:
        """The meaning of a trap; None if it explains no signal."""
        return None

    def pthread(self, registers: Mapping[str, int], tid: int, read: Read) -> Optional[int]:
        """The thread's pthread_self(), which Python and faulthandler use to identify it; None if unknown."""
        return None
