"""What an instruction does, computed from its bytes and registers: by the manuals, without a process."""

from __future__ import annotations

import struct

import pytest

from crashkit.arch import named
from crashkit.arch.contract import Meaning, Trap

X86_64, AARCH64 = named("x86_64"), named("aarch64")
assert X86_64 is not None and AARCH64 is not None
MOST = (1 << 64) - 1
DIV64, DIV32, IDIV64, IDIV32 = (bytes.fromhex(code) for code in ("48f7f1", "f7f1", "48f7f9", "f7f9"))
"""By rcx or ecx."""


def divided(high: int, low: int, divisor: int) -> dict[str, int]:
    return {"rip": 0x1000, "rdx": high & MOST, "rax": low & MOST, "rcx": divisor & MOST}


@pytest.mark.parametrize(
    ("code", "registers", "fails"),
    [
        (DIV64, divided(0, 10, 3), False),
        (DIV64, divided(0, 10, 0), True),
        (DIV64, divided(0, MOST, 1), False),
        (DIV64, divided(1, 0, 1), True),
        (DIV64, divided(1, 0, 2), False),
        (DIV32, divided(0, 0xFFFFFFFF, 1), False),
        (DIV32, divided(1, 0, 1), True),
        (DIV32, divided(0, 0x1_0000_0000, 1), False),  # only eax counts
        (DIV32, divided(0x1_0000_0000, 5, 1), False),  # only edx counts
        (DIV32, divided(0, 5, 0x1_0000_0000), True),  # ecx is 0
        (IDIV64, divided(-1, -7, 2), False),
        (IDIV64, divided(0, 7, -2), False),
        (IDIV64, divided(-1, -(1 << 63), -1), True),
        (IDIV64, divided(-1, -(1 << 63), 1), False),
        (IDIV64, divided(0, (1 << 63) - 1, 1), False),
        (IDIV64, divided(0, 1 << 63, 1), True),
        (IDIV64, divided(0, 1 << 63, -1), False),
        (IDIV64, divided(-2, -1, 2), False),  # -(2**64 + 1) / 2: the quotient is truncated, to -2**63
        (IDIV64, divided(-2, -2, 2), True),  # -(2**64 + 2) / 2
        (IDIV32, divided(0xFFFFFFFF, 0x80000000, 0xFFFFFFFF), True),
        (IDIV32, divided(0xFFFFFFFF, 0x80000000, 1), False),
        (IDIV32, divided(0, 0x7FFFFFFF, 0xFFFFFFFF), False),
        (IDIV64, {"rip": 0x1000, "rcx": 1}, False),  # nothing is known of the dividend
        (bytes.fromhex("480fafc1"), divided(0, 1, 0), False),  # imul rax, rcx
    ],
)
def test_division(code: bytes, registers: dict[str, int], fails: bool) -> None:
    """Intel SDM volume 2, DIV and IDIV: #DE if the divisor is 0, or the quotient does not fit."""
    instruction = X86_64.decode(code, registers)
    assert instruction is not None
    divisor = X86_64.value(instruction.divisor or "", registers)
    assert X86_64.cannot_divide(instruction, registers, divisor) == fails


@pytest.mark.parametrize(
    ("mnemonic", "wants"),
    [
        ("movaps", True),
        ("movdqa", True),
        ("addps", True),
        ("movups", False),
        ("movdqu", False),
        ("lddqu", False),
        ("pcmpestri", False),
        ("pcmpistrm", False),
        ("cmpxchg16b", False),
        ("vmovaps", True),
        ("vmovdqa32", True),
        ("vmovntdq", True),
        ("vmovups", False),
        ("vaddps", False),
    ],
)
def test_aligned_operands(mnemonic: str, wants: bool) -> None:
    """Intel SDM volume 1, 4.1.1; volume 2 for each exception."""
    assert X86_64.wants_alignment(mnemonic) == wants


def arm(word: int) -> bytes:
    return struct.pack("<I", word)


@pytest.mark.parametrize(
    ("code", "text", "accesses"),
    [
        (0xF9400C00, "ldr x0, [x0, #0x18]", [("read", 0x1018, 8)]),
        (0xB9400C00, "ldr w0, [x0, #0xc]", [("read", 0x100C, 4)]),
        (0xF8408402, "ldr x2, [x0], #8", [("read", 0x1000, 8)]),
        (0xF8408C02, "ldr x2, [x0, #8]!", [("read", 0x1008, 8)]),
        (0xF85F8000, "ldur x0, [x0, #-8]", [("read", 0xFF8, 8)]),
        (0xF8617800, "ldr x0, [x0, x1, lsl #3]", [("read", 0x1000 + 8 * 5, 8)]),
        (0xF8616800, "ldr x0, [x0, x1]", [("read", 0x1005, 8)]),
        (0x39400000, "ldrb w0, [x0]", [("read", 0x1000, 1)]),
        (0x39C00000, "ldrsb w0, [x0]", [("read", 0x1000, 1)]),
        (0x79400000, "ldrh w0, [x0]", [("read", 0x1000, 2)]),
        (0xB9800000, "ldrsw x0, [x0]", [("read", 0x1000, 4)]),
        (0xF9000002, "str x2, [x0]", [("write", 0x1000, 8)]),
        (0x39000002, "strb w2, [x0]", [("write", 0x1000, 1)]),
        (0xA9400402, "ldp x2, x1, [x0]", [("read", 0x1000, 16)]),
        (0x29000402, "stp w2, w1, [x0]", [("write", 0x1000, 8)]),
        (0xBD400000, "ldr s0, [x0]", [("read", 0x1000, 4)]),
        (0xFD400000, "ldr d0, [x0]", [("read", 0x1000, 8)]),
        (0x3DC00000, "ldr q0, [x0]", [("read", 0x1000, 16)]),
        (0xD61F0000, "br x0", [("execute", 0x1000, 1)]),
        (0xD63F0020, "blr x1", [("execute", 5, 1)]),
        (0xD65F03C0, "ret", [("execute", 0x7000, 1)]),
        (0x8B010000, "add x0, x0, x1", []),
    ],
)
def test_loads_stores_and_jumps_of_arm(code: int, text: str, accesses: list[tuple[str, int, int]]) -> None:
    """Arm ARM, C6.2."""
    found = AARCH64.decode(arm(code), {"pc": 0x4000, "x0": 0x1000, "x1": 5, "x2": 7, "x30": 0x7000})
    assert found is not None and found.complete
    assert (found.text, [(one.kind, one.address, one.size) for one in found.accesses]) == (text, accesses)


def test_an_address_of_arm_that_cannot_be_computed() -> None:
    """An index that is extended, and a base that is not known: no access is better than a wrong one."""
    for code, registers in ((0xB861D800, {"x0": 1, "x1": 2}), (0xF9400C00, {}), (0xF8616800, {"x0": 1})):
        found = AARCH64.decode(arm(code), {"pc": 0x4000, **registers})
        assert found is not None and not found.accesses and not found.complete
    assert AARCH64.decode(arm(0xF9400C00), {"x0": 1}) is None, "without a program counter"
    assert AARCH64.decode(b"\0", {"pc": 0x4000}) is None


SEGV_OR_BUS = (11, 7)


@pytest.mark.parametrize(
    ("trap", "meaning"),
    [
        (Trap(0x20, 0x20 << 26 | 0x04, 8), Meaning("page", SEGV_OR_BUS, "execute", False)),
        (Trap(0x20, 0x20 << 26 | 0x0F, 8), Meaning("page", SEGV_OR_BUS, "execute", True)),
        (Trap(0x24, 0x24 << 26 | 0x06, 8), Meaning("page", SEGV_OR_BUS, "read", False)),
        (Trap(0x24, 0x24 << 26 | 0x46, 8), Meaning("page", SEGV_OR_BUS, "write", False)),
        (Trap(0x24, 0x24 << 26 | 0x4F, 8), Meaning("page", SEGV_OR_BUS, "write", True)),
        (Trap(0x24, 0x24 << 26 | 0x146, 8), Meaning("page", SEGV_OR_BUS, "read", False)),  # maintenance of a cache counts as a write
        (Trap(0, 0, 8), Meaning("page", SEGV_OR_BUS)),
        (Trap(0, 0, 0), None),
        (Trap(0x3C, 0x3C << 26, 8), None),  # brk
    ],
)
def test_syndromes_of_arm(trap: Trap, meaning: Meaning | None) -> None:
    """Arm ARM, "ESR_EL1"; arch/arm64/mm/fault.c."""
    assert AARCH64.meaning(trap) == meaning


@pytest.mark.parametrize(
    ("size", "twice", "found"), [(0x6F0, False, True), (0x7F0, False, True), (0x6F0, True, False), (0x3F0, False, False)]
)
def test_the_thread_of_arm_by_the_tid_below_its_pointer(size: int, twice: bool, found: bool) -> None:
    pointer, tid = 0x7F0000001000, 4242
    memory = bytearray(0x2000)
    start = pointer - 0x2000
    for one in (size, *([0x900] if twice else [])):
        struct.pack_into("<i", memory, 0x2000 - one + 208, tid)

    def read(address: int, length: int) -> bytes:
        return bytes(memory[address - start : address - start + length])

    assert AARCH64.pthread({"tpidr": pointer}, tid, read) == (pointer - size if found else None)
    assert AARCH64.pthread({}, tid, read) is None and AARCH64.pthread({"tpidr": pointer}, tid, lambda *_: b"") is None


@pytest.mark.parametrize(
    ("code", "masked"),
    [
        ("62e17f497f00", True),  # vmovdqu8 [rax]{k1}, zmm16
        ("62e17f487f00", False),  # vmovdqu8 [rax], zmm16
        ("62f17eaa6f08", True),  # vmovdqu32 ymm1{k2}{z}, [rax]
        ("c4e1f89008", False),  # kmovq k1, [rax]: the mask is what is loaded
        ("62f17d407408", False),  # vpcmpeqb k1, zmm16, [rax]
    ],
)
def test_a_mask_register_leaves_bytes_out(code: str, masked: bool) -> None:
    """C libraries copy the last bytes with masks: how many of the 64 were accessed is not known."""
    decoded = X86_64.decode(bytes.fromhex(code), {"rip": 0x1000, "rax": 8})
    assert decoded is not None
    assert [access.masked for access in decoded.accesses] == [masked]
