"""What one GPU instruction does: its name, and for accesses of memory the operand.

NVIDIA does not document the encoding of SASS. This much of it, of sm_70 to sm_121, was read off the output of nvdisasm. An
instruction has 16 bytes. Bits 0 to 8 are the operation, 9 to 11 the form of its operands, 12 to 15 the predicate, 24 to 31 the register
with the address, 40 to 63 a signed offset, 72 whether the address has 64 bits, 73 to 75 the size, 90 whether a descriptor is used, and 91
whether a uniform register is (bits 32 to 37 of loads, 64 to 69 of others).

What differs: before sm_80 there are no descriptors, and generic loads and stores without a uniform register have an offset of 32 bits;
before sm_90 the register of shared memory may be multiplied (bits 78 and 79); atomic operations that return a value have their kind in
bits 87 to 90, so 91 stands for the descriptor, and from sm_100 on another bit of it takes the highest of the offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

SIZE = 16
"""Bytes of an instruction, sm_70 and newer."""
USUAL = 90
"""The architecture, as in sm_90, that is assumed where it is not known."""

_SIZES = (1, 1, 2, 2, 4, 8, 16, 16)
_SUFFIXES = (".U8", ".S8", ".U16", ".S16", "", ".64", ".128", ".U.128")
_ZERO_REGISTER = 255
_MOST_WRITTEN = 4
_DESCRIPTORS, _UNSCALED, _SHORT_OFFSETS = 80, 90, 100
"""The first architecture with descriptors, without multiplied registers, with shorter offsets of atomic operations."""
_RETURNING = frozenset((0x18A, 0x18B, 0x1A2, 0x1A3, 0x1A8, 0x1A9))
"""Atomic operations on global memory that return a value."""
_REDUCTION = 0x18E


class _Kind(NamedTuple):
    name: str
    access: Optional[str] = None
    space: Optional[str] = None


_OPERATIONS = {
    0x180: _Kind("LD", "read", "generic"),
    0x181: _Kind("LDG", "read", "global"),
    0x183: _Kind("LDL", "read", "local"),
    0x184: _Kind("LDS", "read", "shared"),
    0x185: _Kind("ST", "write", "generic"),
    0x186: _Kind("STG", "write", "global"),
    0x187: _Kind("STL", "write", "local"),
    0x188: _Kind("STS", "write", "shared"),
    0x18A: _Kind("ATOM", "atomic", "generic"),
    0x18B: _Kind("ATOM", "atomic", "generic"),
    0x18C: _Kind("ATOMS", "atomic", "shared"),
    0x18D: _Kind("ATOMS", "atomic", "shared"),
    0x1A2: _Kind("ATOM", "atomic", "generic"),
    0x1A8: _Kind("ATOMG", "atomic", "global"),
    0x1A9: _Kind("ATOMG", "atomic", "global"),
    0x1A3: _Kind("ATOMG", "atomic", "global"),
    0x18E: _Kind("REDG", "atomic", "global"),
    0x1A6: _Kind("REDG", "atomic", "global"),
    0x11D: _Kind("BAR"),
    0x15C: _Kind("BPT.TRAP"),
    0x14D: _Kind("EXIT"),
    0x143: _Kind("CALL.ABS"),
    0x144: _Kind("CALL.REL"),
    0x147: _Kind("BRA"),
    0x148: _Kind("WARPSYNC"),
    0x150: _Kind("RET"),
    0x15D: _Kind("NANOSLEEP"),
    0x1A7: _Kind("SYNCS"),
    0x1BA: _Kind("UBLKCP"),
}
_COPIES = {1: "read", 2: "write"}
"""By bits 73 and 74 of UBLKCP, the bulk copy: from global into shared memory (.S.G), or out of it (.G.S)."""
BARRIER, TRAP, CALL = ("BAR",), ("BPT.TRAP",), ("CALL.ABS", "CALL.REL")
WAITS = {"BAR": "barrier", "WARPSYNC": "warp", "NANOSLEEP": "sleep", "SYNCS": "mbarrier"}
"""What a warp waits for that stands at, or right behind, an instruction of that name."""


class Operation(NamedTuple):
    """One instruction. The other fields are None where it accesses no memory."""

    name: str
    access: Optional[str] = None
    space: Optional[str] = None
    size: Optional[int] = None
    """Bytes that each thread accesses; None for atomic operations."""
    register: Optional[int] = None
    """The register with the address; None if there is none."""
    uniform: Optional[int] = None
    """The uniform register that is added to it."""
    offset: int = 0
    wide: bool = False
    """Whether the address is in two registers."""
    scale: int = 1
    """What the register is multiplied with."""

    @property
    def text(self) -> str:
        """As a disassembler shows it, without modifiers and data registers: `STG.E.128 [R2.64+0x4]`."""
        if self.access is None or self.name == "UBLKCP":
            return self.name
        scaled = f".X{self.scale}" if self.scale > 1 else ""
        parts = [f"R{self.register}{'.64' if self.wide else scaled}"] if self.register is not None else []
        parts += [f"UR{self.uniform}"] if self.uniform is not None else []
        parts += [f"{'-' if self.offset < 0 else ''}{abs(self.offset):#x}"] if self.offset or not parts else []
        return f"{self.name} [{'+'.join(parts)}]"

    def address(self, registers: Sequence[int], uniform: Sequence[int]) -> Optional[int]:
        """The address that these registers of a thread and of its warp give; None if they are not known."""
        bits = 64 if self.wide else 32
        total = self.offset
        for number, values, scale in ((self.register, registers, self.scale), (self.uniform, uniform, 1)):
            if number is None:
                continue
            if number + self.wide >= len(values):
                return None
            total += scale * (values[number] | (values[number + 1] << 32 if self.wide else 0))
        return None if self.register is None and self.uniform is None else total & ((1 << bits) - 1)

    def keeps_address(self, later: bytes, architecture: int = USUAL) -> bool:
        """Whether a later instruction certainly leaves the registers with the address alone.

        Bits 16 to 23 name the first register that an instruction writes. A load writes as many as it reads words; others at most four,
        but for tensor cores.
        """
        if self.uniform is not None or self.register is None:
            return False
        first, load = later[2], decode(later, architecture)
        written = max(1, load.size // 4) if load is not None and load.access == "read" and load.size else _MOST_WRITTEN
        return first == _ZERO_REGISTER or not first - self.wide <= self.register <= first + written - 1


def decode(code: bytes, architecture: int = USUAL) -> Optional[Operation]:
    """The operation of one instruction of an architecture (90 for sm_90); None if it is not one of those that are known."""
    if len(code) != SIZE:
        return None
    low, high = int.from_bytes(code[:8], "little"), int.from_bytes(code[8:], "little")
    number = low & 0x1FF
    kind = _OPERATIONS.get(number)
    if kind is None:
        return None
    if kind.name == "UBLKCP":
        # All its operands are uniform registers: the source, the destination, and how much. Whose address failed is open: global memory's.
        access = _COPIES.get(high >> 9 & 3)
        return Operation(kind.name, access, "global" if access else None)
    if kind.access is None:
        return Operation(kind.name)
    wide = bool(high >> 8 & 1) and kind.space in ("global", "generic")
    width = high >> 9 & 7
    register = low >> 24 & 0xFF
    uniform = (low >> 32 if kind.access == "read" else high) & 0x3F
    atomic = kind.access == "atomic"
    name = "RED" if number == _REDUCTION and architecture < _UNSCALED else kind.name
    scaled = kind.space == "shared" and architecture < _UNSCALED
    return Operation(
        name=name + (".E" if wide else "") + ("" if atomic else _SUFFIXES[width]),
        access=kind.access,
        space=kind.space,
        size=None if atomic else _SIZES[width],
        register=None if register == _ZERO_REGISTER else register,
        uniform=uniform if _adds_uniform(number, high, kind, architecture) else None,
        offset=_offset(number, low, high, kind, architecture),
        wide=wide,
        scale=(1, 4, 8, 16)[high >> 14 & 3] if scaled else 1,
    )


def _adds_uniform(number: int, high: int, kind: _Kind, architecture: int) -> bool:
    if not high >> 27 & 1:
        return False
    if kind.space == "shared" or architecture < _DESCRIPTORS:
        return True
    return number not in _RETURNING and not high >> 26 & 1


def _offset(number: int, low: int, high: int, kind: _Kind, architecture: int) -> int:
    if architecture < _DESCRIPTORS and kind.space == "generic" and kind.access != "atomic" and not high >> 27 & 1:
        return _signed(low >> 32, 32)
    short = architecture >= _SHORT_OFFSETS and number in _RETURNING
    return _signed(low >> 40, 23 if short else 24)


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
