"""What one machine instruction reads, writes and jumps to: the common result of all decoders."""

from __future__ import annotations

from typing import Any, Optional

import msgspec

U64 = 2**64 - 1

# Their memory operand is an address that is computed or hinted at, never accessed.
_NO_ACCESS = ("lea", "nop", "prefetch", "endbr", "prfm")


class Access(msgspec.Struct, frozen=True):
    """One access to memory, or one jump."""

    kind: str
    """read, write, execute."""
    address: int
    size: int
    """Bytes; 0 if unknown."""
    base: Optional[str] = None
    """The operand's base register."""
    index: Optional[str] = None
    scale: int = 1
    offset: int = 0
    segment: Optional[str] = None
    implied: bool = False
    """True if the address comes from the stack pointer alone (push, call, ret)."""
    masked: bool = False
    """True if only some of the bytes are accessed, as a mask register tells (AVX-512)."""

    def covers(self, address: int) -> bool:
        """Whether the access touches the byte at `address`."""
        return self.address <= address < self.address + max(self.size, 1)


class Decoded(msgspec.Struct, frozen=True):
    """One decoded instruction, with the memory accesses that its operands and registers imply."""

    text: str
    """As a disassembler prints it, shortened: `mov rax, [rdi+0x18]`."""
    mnemonic: str
    size: int
    accesses: tuple[Access, ...]
    complete: bool
    """True if `accesses` is complete: no other address was accessed."""
    privileged: bool
    registers: tuple[str, ...]
    """Registers in its operands, including those in memory operands."""
    divisor: Optional[str] = None
    """The register that a division divides by; None also where that is in memory, as `accesses` tells then."""


def text(instruction: Any) -> str:
    """The short text of a capstone instruction."""
    words = f"{instruction.mnemonic} {instruction.op_str}".strip()
    for word in ("byte", "word", "dword", "qword", "xword", "tbyte", "xmmword", "ymmword", "zmmword"):
        words = words.replace(f" {word} ptr ", " ")
    return words.replace(" ptr [", " [").replace(" + ", "+").replace(" - ", "-")


def is_access(mnemonic: str) -> bool:
    """Whether a memory operand of this instruction is really accessed; False for `lea`, prefetches and the like."""
    return not mnemonic.split()[-1].startswith(_NO_ACCESS)


def jump(target: Optional[int]) -> list[Access]:
    """The access that a jump to `target` makes, as a list; empty if the target is unknown."""
    return [] if target is None else [Access("execute", target, 1)]
