"""What the account of a fault says besides its reason: access, si_code, address, and the facts in its sentence (not its wording)."""

from __future__ import annotations

import struct

import pytest

from crashkit.naming.signals import signal_name
from tests.evidence.test_fault import ACCERR, KERNEL, LOAD_FIELD, LOAD_INDEXED, MAPERR, PC, PUSH, STORE, Trap, fault


@pytest.mark.parametrize(
    ("number", "trap", "code", "registers", "access", "name"),
    [
        (11, Trap(14, 4, 0x18), LOAD_FIELD, {"rdi": 0}, "read", "SEGV_MAPERR"),
        (11, Trap(14, 6, 0x18), STORE, {"rdi": 0x18}, "write", "SEGV_MAPERR"),
        (11, Trap(14, 0x14, 0), "", {"rip": 0}, "execute", "SEGV_MAPERR"),
        (11, Trap(14, 0x15, 0x60001E), "", {"rip": 0x600010}, "execute", "SEGV_ACCERR"),  # the last byte that an instruction can have
        (11, Trap(14, 7, 0x500010), STORE, {"rdi": 0x500010}, "write", "SEGV_ACCERR"),
        (11, Trap(14, 5, 0x900000), LOAD_FIELD, {"rdi": 0x8FFFE8}, "read", "SEGV_ACCERR"),  # by the protection bit: no mapping is known
        (11, Trap(14, 4, 0x900000), LOAD_FIELD, {"rdi": 0x8FFFE8}, "read", "SEGV_MAPERR"),
        (11, Trap(14, 5, 2**63), "", {}, "read", "SEGV_MAPERR"),  # the kernel's half: protection, yet reported as unmapped
        (11, Trap(14, 4, 0x18), "", {}, "read", "SEGV_MAPERR"),  # no bytes to check the trap against
        (11, Trap(13, 0, 0), LOAD_FIELD, {"rdi": 0x4141414141414141}, "read", "SI_KERNEL"),
        (7, Trap(14, 4, 0x708000), LOAD_FIELD, {"rdi": 0x707FE8}, "read", "BUS_ADRERR"),
        (7, Trap(12, 0, 0), "488b4510", {"rbp": 0x4141414141414141}, "read", "SI_KERNEL"),
        (8, Trap(0, 0, 0), "f7f9", {"rcx": 0}, None, "FPE_INTDIV"),
        (4, Trap(6, 0, 0), "0f0b", {}, None, "ILL_ILLOPN"),
        (5, Trap(3, 0, 0), "90", {}, None, "SI_KERNEL"),
    ],
)
def test_what_a_handler_hid(number, trap, code, registers, access, name):
    signal = fault(number, -6, 0x1092, code, trap, **registers)
    assert (signal.access, signal.code_name, signal.recovered, signal.sender_pid) == (access, name, True, None), signal.detail


@pytest.mark.parametrize(
    ("number", "trap", "code", "registers"),
    [
        (4, Trap(0, 0, 0), "f7f9", {"rcx": 2}),
        (8, Trap(6, 0, 0), "f7f9", {"rcx": 0}),
        (4, Trap(3, 0, 0), "0f0b", {}),
        (7, Trap(13, 0, 0), LOAD_FIELD, {"rdi": 0x600000}),
        (8, Trap(14, 4, 0x600000), "488b07", {"rdi": 0x600000}),  # mapped and readable: its page was only brought in
        (11, Trap(14, 0x14, PC + 15), "", {}),  # beyond any instruction
    ],
)
def test_a_trap_of_another_signal_is_not_believed(number, trap, code, registers):
    signal = fault(number, -6, 0x1092, code, trap, **registers)
    assert (signal.recovered, signal.code, signal.sender_pid) == (False, -6, None)


@pytest.mark.parametrize(
    ("number", "trap", "code", "registers", "first"),
    [
        (6, Trap(0, 0, 0), "f7f9", {"rcx": 0}, "SIGFPE"),
        (6, Trap(6, 0, 0), "0f0b", {}, "SIGILL"),
        (6, Trap(13, 0, 0), LOAD_FIELD, {"rdi": 0x4141414141414141}, "SIGSEGV"),
        (11, Trap(12, 0, 0), "488b4510", {"rbp": 0x4141414141414141}, "SIGBUS"),  # by its base, this is an access to the stack
        (8, Trap(14, 4, 0x18), LOAD_FIELD, {"rdi": 0}, "SIGSEGV"),
    ],
)
def test_a_handler_that_ended_the_process_with_another_signal(number, trap, code, registers, first):
    """The instruction certainly fails that way, so the trap is not left over."""
    signal = fault(number, -6, 0x1092, code, trap, **registers)
    assert (signal.recovered, signal.name, signal.ended_with, signal.sender_pid) == (True, first, signal_name(number), None)


@pytest.mark.parametrize(
    ("code", "reason"), [(4, "protection-key"), (8, "memory-tag"), (9, "memory-tag"), (10, "control-protection"), (77, None)]
)
def test_special_codes(code, reason):
    signal = fault(11, code, 0x600010, LOAD_FIELD, rdi=0x5FFFF8)
    assert (signal.reason, signal.access) == (reason, "read")
    assert "0x600010" in signal.detail


@pytest.mark.parametrize(
    ("number", "code", "reason"), [(11, -6, None), (6, -6, "abort"), (6, 0, None), (11, 0, None), (15, -6, None)], ids=str
)
def test_what_a_process_sent(number, code, reason):
    """Without a handler: an abort is one only by tgkill of its own."""
    signal = fault(number, code, 0x1092)
    assert (signal.reason, signal.address, signal.access) == (reason, None, None)
    assert signal.detail


def test_how_much_stack_was_used_up():
    assert "8.0 MiB" in fault(*MAPERR, 0x7FFB_FFFF_FFF8, PUSH, rsp=0x7FFC_0000_0000).detail
    assert "64 KiB" in fault(*MAPERR, 0x5FFFF8, PUSH, rsp=0x600000).detail
    handler = fault(*KERNEL, 0, PUSH, rsp=0x7F00_0000_1000)
    assert "8.0 MiB" in handler.detail and handler.address == 0x7F00_0000_0FF8


@pytest.mark.parametrize(
    ("address", "code", "facts"),
    [
        (0x500000, ACCERR, ["/usr/lib/data.so", "r--"]),
        (0x501000, MAPERR, ["directly after", "/usr/lib/data.so"]),
        (0x501001, MAPERR, ["1 byte ", "/usr/lib/data.so"]),
        (0x501FFF, MAPERR, ["4095 bytes", "/usr/lib/data.so"]),
        (0x600010, MAPERR, ["[heap]", "rw-"]),
        (0x7F00_0000_0000, ACCERR, ["anonymous", "---"]),
        (2**63 + 8, MAPERR, ["kernel"]),
    ],
)
def test_where_a_write_went(address, code, facts):
    signal = fault(*code, address, STORE, rdi=address)
    assert signal.access == "write"
    for fact in ["write of 8 bytes", hex(address), *facts]:
        assert fact in signal.detail


def test_far_from_anything_no_neighbour_is_named():
    assert "past" not in fault(*MAPERR, 0x502001, STORE, rdi=0x502001).detail


def test_minus_one_is_an_error_not_checked():
    assert "MAP_FAILED" in fault(*MAPERR, 2**64 - 1, STORE, rdi=2**64 - 1).detail
    assert "MAP_FAILED" not in fault(*MAPERR, 2**64 - 2, STORE, rdi=2**64 - 2).detail


@pytest.mark.parametrize(
    ("address", "registers", "reason"),
    [
        (0xFFF8, {"rdi": 0, "rsi": 0x1FFF}, "null-pointer"),
        (0x8_0000_0000, {"rdi": 0, "rsi": 0x1_0000_0000}, "null-pointer"),  # scaled, so an index however large
        (0x12_0000, {"rdi": 0x10_0000, "rsi": 0x4000}, "unmapped"),
    ],
)
def test_an_index_from_null(address, registers, reason):
    assert fault(*MAPERR, address, LOAD_INDEXED, **registers).reason == reason


def test_only_registers_that_the_instruction_uses_are_quoted():
    quoted = fault(*MAPERR, 0x18, LOAD_FIELD, rdi=0, rsi=7).detail
    assert "rdi = 0" in quoted and "rsi" not in quoted and "rax =" not in quoted
    assert "rax = 0x4141414141414141" in fault(*KERNEL, 0, "ffd0", rax=0x4141414141414141).detail
    relative = fault(*MAPERR, PC + 7 + 0x1000000, "488b0500000001").detail  # mov rax, [rip+0x1000000]
    assert "[rip" in relative and "rip =" not in relative


@pytest.mark.parametrize(
    ("address", "access"), [(0x402000, "execute"), (0x401FFF, None), (0x402001, None), (0x403000, None), (0x401FFA, "execute")]
)
def test_an_instruction_that_crosses_into_the_next_page(address, access):
    """Its first bytes alone are no instruction."""
    signal = fault(*MAPERR, address, "", rip=0x401FFA)
    assert signal.access == access


def test_an_instruction_that_is_whole_crosses_nothing():
    assert fault(*MAPERR, 0x402000, "90", rip=0x401FFA).access is None


@pytest.mark.parametrize(
    ("code", "wants"),
    [
        ("0f2807", True),  # movaps
        ("0f5807", True),  # addps
        ("660fe707", True),  # movntdq
        ("0f1007", False),  # movups
        ("f30f6f07", False),  # movdqu
        ("f20ff007", False),  # lddqu
        ("660f3a630700", False),  # pcmpistri
        ("c5f82807", True),  # vmovaps
        ("c5f96f07", True),  # vmovdqa
        ("c5f9e707", True),  # vmovntdq
        ("c5f81007", False),  # vmovups
        ("c5f05807", False),  # vaddps
    ],
)
def test_instructions_that_want_aligned_operands(code, wants):
    signal = fault(*KERNEL, 0, code, rdi=0x600008)
    assert (signal.reason == "misaligned", signal.address) == (wants, 0x600008 if wants else None)
    aligned = fault(*KERNEL, 0, code, rdi=0x600010)
    assert aligned.reason is None


def test_bus_errors():
    misaligned = fault(7, 1, 0x600001, LOAD_FIELD, rdi=0x5FFFE9)
    assert (misaligned.reason, misaligned.access) == ("misaligned", "read")
    assert "read of 8 bytes at 0x600001" in misaligned.detail
    cut = fault(7, 2, 0x708000, LOAD_FIELD, rdi=0x707FE8)
    assert "read of 8 bytes at 0x708000" in cut.detail and "/data/weights.bin" in cut.detail
    assert "[heap] (rw-)" in fault(7, 2, 0x608000, STORE, rdi=0x608000).detail
    assert fault(7, 2, 0x401000, "").access == "execute"
    assert fault(7, 2, 0x708000, "").access is None
    assert fault(7, 5, None).reason == "hardware-memory-error"


def test_arithmetic():
    def detail(code: str, reason: str = "integer-divide", **registers: int) -> str:
        signal = fault(8, 1, PC, code, **registers)
        assert (signal.reason, signal.address) == (reason, None)
        return signal.detail

    zero, overflow, unknown = detail("f7f9", rcx=0), detail("f7f9", "quotient-overflow", rcx=0xFFFFFFFF), detail("")
    assert "by zero" in zero and "fit" not in zero
    assert "0xffffffff" in overflow and "by zero" not in overflow
    assert "by zero" in unknown and "fit" in unknown
    assert "idiv" in detail("f77f08", rdi=0x600000) and "fit" in detail("f77f08", rdi=0x600000), "a divisor in memory is not known"
    floating = fault(8, 3, PC, "90")
    assert (floating.reason, floating.address) == ("floating-point", None)
    assert "a floating-point number was divided by zero" in floating.detail
    assert "99" in fault(8, 99, PC, "90").detail


def test_illegal_instructions():
    unknown = fault(4, 2, None, "")
    assert (unknown.reason, unknown.address) == ("illegal-instruction", PC)
    assert fault(4, 2, 0x401234, "0f0b").address == 0x401234
    assert "ud2" in fault(4, 2, PC, "0f0b").detail
    assert fault(5, 1, PC, "cc").address is None and fault(5, 1, PC, "cc").reason == "trap"
    assert fault(5, 2, PC, "90").reason is None


@pytest.mark.parametrize(("registers", "told"), [({"orig_rax": 59}, "59"), ({"orig_rax": 0}, "system call 0")])
def test_the_forbidden_system_call_is_named(registers, told):
    assert told in fault(31, 1, PC, **registers).detail


def test_a_forbidden_system_call_without_its_number():
    signal = fault(31, 1, PC)
    assert signal.reason == "seccomp" and "None" not in signal.detail
    assert fault(31, 2, PC).reason is None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"hello wo", "'hello wo'"),
        (b"hello w~", "'hello w~'"),
        (b"hello w\x7f", None),
        (b"\x18\x00" + b"\xdd" * 4 + b"\xdd\xdd", "freed"),
        (b"\xcd" * 8, "uninitialized memory"),
        (b"\xdd" * 3 + b"\x00\xdd\xdd\xdd\xdd", None),
    ],
)
def test_what_the_bytes_of_a_wild_pointer_are(value, told):
    detail = fault(*KERNEL, 0, STORE, rdi=int.from_bytes(value, "little")).detail
    assert told in detail if told else "bytes match" not in detail and "bytes read" not in detail


@pytest.mark.parametrize(("address", "canonical"), [(2**47 - 8, True), (2**47, False), (2**64 - 2**47 - 1, False), (2**64 - 2**47, True)])
def test_the_hole_in_the_middle_of_the_addresses(address, canonical):
    signal = fault(*KERNEL, 0, STORE, rdi=address)
    assert signal.reason == ("unmapped" if canonical else "non-canonical"), "the handler of a page fault had no room"
    assert signal.address == address


def test_returns():
    overwritten = fault(*KERNEL, 0, "c3", stack=struct.pack("<Q", 0x4242424242424242))
    assert "0x4242424242424242" in overwritten.detail
    elsewhere = fault(*KERNEL, 0, "c3", stack=struct.pack("<Q", 0x402000))
    assert elsewhere.reason is None and "0x402000" in elsewhere.detail
    assert fault(*KERNEL, 0, "c3", stack=b"short").detail


def test_calls():
    wild = fault(*MAPERR, 0x123456, "", rip=0x123456, stack=struct.pack("<Q", 0x400123))
    assert "0x123456" in wild.detail and "0x400123" in wild.detail
    field = fault(*MAPERR, 0x18, "", rip=0x18)
    assert field.reason == "null-pointer" and "24 bytes" in field.detail
    heap = fault(*ACCERR, 0x600010, "", rip=0x600010)
    assert "[heap] (rw-)" in heap.detail
    assert "'hello wo'" in fault(*MAPERR, int.from_bytes(b"hello wo", "little"), "", rip=int.from_bytes(b"hello wo", "little")).detail


@pytest.mark.parametrize(
    ("kind", "address", "code", "registers", "facts"),
    [
        (KERNEL, None, "", {"rip": 0x4141414141414141}, ["non-canonical", "execute", "0x4141414141414141"]),
        (KERNEL, None, LOAD_FIELD, {"rdi": 0x4141414141414141}, ["non-canonical", "read", "read of 8 bytes at 0x4141414141414159"]),
        (KERNEL, None, PUSH, {"rsp": 0x7F00_0000_1000}, ["stack-overflow", "write", "write of 8 bytes at 0x7f0000000ff8"]),
        (KERNEL, None, "0f2807", {"rdi": 0x600008}, ["misaligned", "read", "read of 16 bytes at 0x600008"]),
        (KERNEL, None, "c5fc2807", {"rdi": 0x600010}, ["misaligned", "read", "read of 32 bytes at 0x600010"]),
        (KERNEL, None, "62f17c482807", {"rdi": 0x600020}, ["misaligned", "read", "read of 64 bytes at 0x600020"]),
        (MAPERR, 2**64 - 8, "488b47f8", {"rdi": 0}, ["null-pointer", "read", "offset of 8 bytes"]),
        (MAPERR, 2**64 - 0x100000, "488b0437", {"rdi": 0, "rsi": 2**64 - 0x100000}, ["null-pointer", "read", "0x100000 bytes"]),
        (MAPERR, 0x2_0000_0000, "488b0477", {"rdi": 0, "rsi": 0x1_0000_0000}, ["null-pointer", "read", "rsi*2"]),
        (MAPERR, 0x650000, "64488b07", {"rdi": 0}, ["unmapped", "read", "fs"]),  # a segment's base, not null
        (MAPERR, 0x10, "48a5", {"rdi": 0x10, "rsi": 0x10}, ["null-pointer", "write"]),  # reads and writes there
        (MAPERR, 0x18, "", {}, ["null-pointer", None, "at 0x18"]),
        (MAPERR, 0x4FFFF8, PUSH, {"rsp": 0x500000}, ["unmapped", "write", "0x4ffff8"]),  # no stack: data.so is read-only
        (ACCERR, 0x400010, LOAD_FIELD, {"rdi": 0x3FFFF8}, [None, "read", "/usr/bin/python3"]),
        ((7, 2), 0x401000, "", {}, ["bus-truncated-file", "execute", "execution at 0x401000"]),
        ((4, 2), None, "", {}, ["illegal-instruction", None, "instruction"]),
    ],
)
def test_reason_access_and_what_the_sentence_names(kind, address, code, registers, facts):
    signal = fault(*kind, address, code, **registers)
    assert [signal.reason, signal.access] == facts[:2], signal.detail
    for fact in facts[2:]:
        assert fact in signal.detail


def test_only_the_top_of_the_stack_is_a_return_address():
    stack = struct.pack("<QQ", 0x400123, 2**64 - 1)
    assert "0x400123" in fault(*MAPERR, 0, "", rip=0, stack=stack).detail
    assert "called from" not in fault(*MAPERR, 0, "", rip=0, stack=stack[:7]).detail
    returned = fault(*KERNEL, 0, "c3", stack=struct.pack("<QQ", 0x4242424242424242, 2**64 - 1))
    assert (returned.reason, returned.address) == ("non-canonical", 0x4242424242424242)
    assert fault(*KERNEL, 0, "c3", stack=b"\x42" * 7).address is None
