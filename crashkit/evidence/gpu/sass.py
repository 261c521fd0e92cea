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
_WHOLE_ATOMICS = frozenset((0x18A, 0x18B, 0x18C, 0x18D, 0x18E, 0x1A8, 0x1A9))
"""Atomic operations whose kind of operand is in bits 73 to 75."""
_ATOMIC_SIZES, _OLDER_ATOMIC_SIZES = (4, 4, 8, 8, 16), (4, 4, 8, 4, 4, 8, 8)
_BULK, _TENSOR_LOAD, _TENSOR_STORE, _BRANCH = 0x1BA, 0x1B4, 0x1B5, 0x147
_BULK_ALIGNMENT = 16
_EXIT, _ALWAYS = 0x14D, 7
"""EXIT, and the predicate of an instruction without condition."""
_WITHOUT_RESULT = frozenset(
    (
        *(0x01C, 0x118, 0x11A, 0x11D, 0x141, 0x145, 0x146, _BRANCH, 0x148, _EXIT),  # PLOP3 NOP DEPBAR BAR BSYNC BSSY YIELD BRA WARPSYNC
        *(0x185, 0x186, 0x187, 0x188, _REDUCTION, 0x1A6),  # ST STG STL STS RED
        *(0x18F, 0x192, 0x1AB, 0x1B7, _BULK),  # CCTL MEMBAR ERRBAR UTMACMDFLUSH UBLKCP
    )
)
"""Instructions that write no register: those bits are something else."""
_NO_UNIFORM_RESULT = _WITHOUT_RESULT | {0x002, 0x007, 0x00C, 0x010, 0x011, 0x012, 0x019, 0x024, 0x025, 0x181, 0x184, 0x1A7}
"""Of the others, some whose result is never in a uniform register: MOV SEL ISETP IADD3 LEA LOP3 SHF IMAD IMAD.WIDE LDG LDS SYNCS."""
_ZERO_UNIFORM = (0x3F, 0xFF)


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
    _EXIT: _Kind("EXIT"),
    0x143: _Kind("CALL.ABS"),
    0x144: _Kind("CALL.REL"),
    _BRANCH: _Kind("BRA"),
    0x148: _Kind("WARPSYNC"),
    0x150: _Kind("RET"),
    0x15D: _Kind("NANOSLEEP"),
    0x1A7: _Kind("SYNCS"),
    _TENSOR_LOAD: _Kind("UTMALDG"),
    _TENSOR_STORE: _Kind("UTMASTG"),
    _BULK: _Kind("UBLKCP"),
}
BULK = ("UBLKCP", "UTMALDG", "UTMASTG")
"""Bulk copies: of so many bytes, or of a part of a tensor, whose address is in a tensor map."""
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
    """Bytes that each thread accesses; None for bulk copies, and for atomic operations whose size is not known."""
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
        if self.access is None or self.name in BULK:
            return self.name
        scaled = f".X{self.scale}" if self.scale > 1 else ""
        parts = [f"R{self.register}{'.64' if self.wide else scaled}"] if self.register is not None else []
        parts += [f"UR{self.uniform}"] if self.uniform is not None else []
        parts += [f"{'-' if self.offset < 0 else ''}{abs(self.offset):#x}"] if self.offset or not parts else []
        return f"{self.name} [{'+'.join(parts)}]"

    @property
    def alignment(self) -> int:
        """What the address must be a multiple of, in bytes."""
        return _BULK_ALIGNMENT if self.name in BULK else self.size or 4

    @property
    def has_result(self) -> bool:
        """Whether it writes a register, also if it fails."""
        return self.access == "read" or (self.access == "atomic" and not self.name.startswith("RED"))

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

    def lowest_bits(self, registers: Sequence[int]) -> Optional[int]:
        """The lower half of the address, where only the registers of the thread have it."""
        if self.register is None or self.uniform is not None or self.register >= len(registers):
            return None
        return (self.offset + self.scale * registers[self.register]) & 0xFFFFFFFF

    def keeps_address(self, later: bytes, architecture: int = USUAL, lower: bool = False) -> bool:
        """Whether a later instruction certainly leaves the registers with the address, or its `lower` half, alone.

        Bits 16 to 23 name the first register that an instruction writes. A load writes as many as it reads words; others at most four,
        but for tensor cores.
        """
        number, first = int.from_bytes(later[:2], "little") & 0x1FF, later[2]
        if number in _WITHOUT_RESULT:
            return True
        if self.uniform is not None and number not in _NO_UNIFORM_RESULT and first not in _ZERO_UNIFORM:
            return False
        if self.register is None:
            return self.uniform is not None
        load = decode(later, architecture)
        written = max(1, load.size // 4) if load is not None and load.access == "read" and load.size else _MOST_WRITTEN
        wide = self.wide and not lower
        return first == _ZERO_REGISTER or not first - wide <= self.register <= first + written - 1


def decode(code: bytes, architecture: int = USUAL) -> Optional[Operation]:
    """The operation of one instruction of an architecture (90 for sm_90); None if it is not one of those that are known."""
    if len(code) != SIZE:
        return None
    low, high = int.from_bytes(code[:8], "little"), int.from_bytes(code[8:], "little")
    number = low & 0x1FF
    kind = _OPERATIONS.get(number)
    if kind is None:
        return None
    if number == _BULK:
        # All its operands are uniform registers: the source, the destination, and how much. Whose address failed is open: global memory's.
        access = _COPIES.get(high >> 9 & 3)
        if access is None or architecture != USUAL:
            return Operation(kind.name, access, "global" if access else None)
        return Operation(kind.name, access, "global", uniform=low >> (24 if access == "read" else 32) & 0x3F, wide=True)
    if number in (_TENSOR_LOAD, _TENSOR_STORE):
        return Operation(kind.name, "read" if number == _TENSOR_LOAD else "write", "global")
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
        size=_atomic_size(number, width, architecture) if atomic else _SIZES[width],
        register=None if register == _ZERO_REGISTER else register,
        uniform=uniform if _adds_uniform(number, high, kind, architecture) else None,
        offset=_offset(number, low, high, kind, architecture),
        wide=wide,
        scale=(1, 4, 8, 16)[high >> 14 & 3] if scaled else 1,
    )


def followers(code: bytes, architecture: int = USUAL) -> tuple[int, ...]:
    """Where a thread may go on after an instruction: how many bytes behind the next one, or before it. A call returns to the next one."""
    low, high = int.from_bytes(code[:8], "little"), int.from_bytes(code[8:], "little")
    number = low & 0x1FF
    if number == _BRANCH:
        far = (high & 0x3FFFF) << 30 | low >> 34
        return 0, 4 * (_signed(far, 48) if architecture < _UNSCALED else _signed(far << 8 | low >> 16 & 0xFF, 56))
    return () if number == _EXIT and low >> 12 & 15 == _ALWAYS else (0,)


def _atomic_size(number: int, width: int, architecture: int) -> Optional[int]:
    sizes = _ATOMIC_SIZES if architecture >= _UNSCALED else _OLDER_ATOMIC_SIZES
    return sizes[width] if number in _WHOLE_ATOMICS and width < len(sizes) else None


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
