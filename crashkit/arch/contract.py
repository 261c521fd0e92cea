"""What crashkit wants to know of a processor. One file of this folder answers for one processor.

Only the name is needed: what a processor's file leaves out is reported as not known. Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Optional

from crashkit.arch.operands import Decoded

Read = Callable[[int, int], bytes]
"""Memory: up to `size` bytes at an address."""


class Trap(NamedTuple):
    """The processor's exception as the kernel put it into a signal frame; `Architecture.meaning` interprets it.

    It is the thread's *last* exception, which need not be why this signal came: whoever reads it checks it against the instruction.
    """

    number: int
    """Its class. x86-64: trapno. AArch64: the exception class (EC) of ESR."""
    error: int
    """Its details. x86-64: err. AArch64: ESR."""
    address: int
    """The address that faulted, if it was a fault of memory."""


class Meaning(NamedTuple):
    """What a trap says, in terms that all processors share."""

    kind: str
    """page: an access that the page tables do not allow; protection: one refused for another reason, its address untold;
    divide, illegal, breakpoint."""
    signals: tuple[int, ...]
    """Those that Linux sends for it."""
    access: Optional[str] = None
    """read, write, execute. None: the instruction must tell."""
    mapped: bool = False
    """True where the processor found a page there, one that forbids the access."""


class SignalFrame(NamedTuple):
    """The kernel's frame of a signal handler: what was interrupted."""

    address: int
    """Where its `struct ucontext` lies."""
    registers: dict[str, int]
    trap: Trap
    restorer: Optional[int] = None
    """The handler's return address, where the frame holds it: it lies in executable memory."""


class CallPattern(NamedTuple):
    """A call instruction of `len(mask)` bytes, told by the bits in `mask`."""

    mask: bytes
    value: bytes


class StackScan(NamedTuple):
    """How a caller's frame can be recognised on the stack by its return address alone."""

    calls: tuple[CallPattern, ...]
    """What stands before a return address."""
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
    thread_pointer: ClassVar[Optional[str]] = None
    """The register from which a thread finds its thread-local storage."""
    register_notes: ClassVar[Mapping[int, str]] = {}
    """Types of the notes that hold one more register, behind the NT_PRSTATUS of the thread, and its name."""
    system_call: ClassVar[Optional[str]] = None
    """The register with the number of the system call."""
    longest_instruction: ClassVar[int] = 16
    """Bytes."""
    instruction_step: ClassVar[int] = 1
    """Bytes of which every instruction's address is a multiple."""
    non_canonical: ClassVar[range] = range(0)
    """Addresses that the processor refuses without telling which it was."""
    trap_instructions: ClassVar[tuple[str, ...]] = ()
    """Those that compilers use to stop a program."""
    divisions: ClassVar[tuple[str, ...]] = ()
    """Those that trap where they cannot divide."""
    signal_window: ClassVar[int] = 1 << 20
    """How far above the stack pointer a signal frame is looked for: a handler that formats text uses a good part of its stack."""
    gdb: ClassVar[Optional[str]] = None
    """For gdb's `set architecture`."""
    scan: ClassVar[Optional[StackScan]] = None
    """None: no search for the outer end of a deep stack."""

    def disassembler(self) -> Any:
        """A capstone engine, or None."""
        return None

    def decode(self, code: bytes, registers: Mapping[str, int]) -> Optional[Decoded]:
        """The first instruction of `code`, which lies at the program counter; None where the bytes are none."""
        return None

    def value(self, register: str, registers: Mapping[str, int]) -> Optional[int]:
        """The value of a register or of a part of one (`eax`, `w3`)."""
        return registers.get(register)

    def wants_alignment(self, mnemonic: str) -> bool:
        """Whether the instruction faults on an address that is no multiple of its operand's size."""
        return False

    def return_address(self, registers: Mapping[str, int], stack: bytes) -> Optional[int]:
        """Where a function that was just entered returns to, or where a return instruction goes; `stack`: bytes at the stack pointer."""
        return None

    def is_own_raise(self, registers: Mapping[str, int], pid: Optional[int], number: int) -> bool:
        """Whether the registers are those behind a successful tgkill(pid, ..., number)."""
        return False

    def signal_frames(self, memory: bytes, start: int) -> Iterator[SignalFrame]:
        """What looks like a signal frame in this piece of a stack, which lies at `start`; innermost first."""
        return iter(())

    def meaning(self, trap: Trap) -> Optional[Meaning]:
        """None where the trap explains no signal."""
        return None

    def pthread(self, registers: Mapping[str, int], tid: int, read: Read) -> Optional[int]:
        """What pthread_self() returned in that thread, by which Python and faulthandler name it; None where it cannot be told."""
        return None
