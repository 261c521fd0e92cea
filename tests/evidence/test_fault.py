"""Reasons from recorded bytes and registers; test_fault_crashes.py has the same from real crashes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashkit.arch import ARCHITECTURES, named
from crashkit.arch.contract import Trap
from crashkit.arch.x86_64 import UCONTEXT_SIZE, read_ucontext
from crashkit.evidence.core.fault import explain
from crashkit.model import Address, Mapping, Signal
from crashkit.naming.signals import code_name, signal_name

X86_64, AARCH64 = named("x86_64"), named("aarch64")
PC = 0x401000
SP = 0x7FFC_0000_8000
PID = 4242

MAPPINGS = (
    Mapping(start=Address(0x400000), end=Address(0x402000), permissions="r-x", path="/usr/bin/python3"),
    Mapping(start=Address(0x500000), end=Address(0x501000), permissions="r--", path="/usr/lib/data.so"),
    Mapping(start=Address(0x600000), end=Address(0x610000), permissions="rw-", path="[heap]"),
    Mapping(start=Address(0x700000), end=Address(0x710000), permissions="r--", path="/data/weights.bin"),
    Mapping(start=Address(0x7F00_0000_0000), end=Address(0x7F00_0000_1000), permissions="---"),
    Mapping(start=Address(0x7F00_0000_1000), end=Address(0x7F00_0080_1000), permissions="rw-"),
    Mapping(start=Address(0x7FFC_0000_0000), end=Address(0x7FFC_0080_0000), permissions="rw-", path="[stack]"),
)


def fault(
    number: int, code: int, address: int | None, hexadecimal: str = "", trap: Trap | None = None, stack: bytes = b"", **registers: int
):
    signal = Signal(
        number=number,
        name=signal_name(number),
        code=code,
        code_name=code_name(number, code),
        address=None if address is None else Address(address),
        sender_pid=PID if code == -6 else None,
    )
    return explain(
        signal,
        X86_64,
        {"rip": PC, "rsp": SP, "fs_base": 0x650000, **registers},
        bytes.fromhex(hexadecimal),
        MAPPINGS,
        trap,
        pid=PID,
        stack=stack,
    )


MAPERR, ACCERR, KERNEL = (11, 1), (11, 2), (11, 128)
LOAD_FIELD = "488b4718"  # mov rax, [rdi+0x18]
LOAD_INDEXED = "488b04f7"  # mov rax, [rdi+rsi*8]
LOAD_SUM = "488b0437"  # mov rax, [rdi+rsi]
STORE = "488907"  # mov [rdi], rax
PUSH = "50"


@pytest.mark.parametrize(
    ("kind", "address", "code", "registers", "access", "reason"),
    [
        (MAPERR, 0x18, LOAD_FIELD, {"rdi": 0}, "read", "null-pointer"),
        (MAPERR, 0, STORE, {"rdi": 0}, "write", "null-pointer"),
        (MAPERR, 0x18, "", {}, None, "null-pointer"),
        (MAPERR, 800_000, LOAD_INDEXED, {"rdi": 0, "rsi": 100_000}, "read", "null-pointer"),
        (MAPERR, 2**64 - 8, "488b47f8", {"rdi": 0}, "read", "null-pointer"),
        (MAPERR, 0x7EFF_1234_5678, LOAD_SUM, {"rdi": 0, "rsi": 0x7EFF_1234_5678}, "read", "unmapped"),
        (MAPERR, 0x7EFF_1234_5678, LOAD_SUM, {"rdi": 0x7EFF_1234_5678, "rsi": 0}, "read", "unmapped"),
        (MAPERR, 0, "", {"rip": 0}, "execute", "null-pointer"),
        (MAPERR, 0x123456, "", {"rip": 0x123456}, "execute", "unmapped"),
        (MAPERR, 2**64 - 1, STORE, {"rdi": 2**64 - 1}, "write", "unmapped"),
        (MAPERR, 0x10, "48a5", {"rdi": 0x600000, "rsi": 0x10}, "read", "null-pointer"),
        (MAPERR, 0x10, "48a5", {"rdi": 0x10, "rsi": 0x600000}, "write", "null-pointer"),
        (MAPERR, 0x10, "f0480fb117", {"rdi": 0x10}, "write", "null-pointer"),
        (MAPERR, 0x10, "ff10", {"rax": 0x10}, "read", "null-pointer"),
        (ACCERR, 0x500010, STORE, {"rdi": 0x500010}, "write", "read-only"),
        (ACCERR, 0x600010, "", {"rip": 0x600010}, "execute", "no-exec"),
        (ACCERR, 0x7F00_0000_0010, STORE, {"rdi": 0x7F00_0000_0010}, "write", "no-access"),
        (ACCERR, 0x7F00_0000_0FF8, PUSH, {"rsp": 0x7F00_0000_1000}, "write", "stack-overflow"),
        (MAPERR, 0x7FFB_FFFF_FFF8, PUSH, {"rsp": 0x7FFC_0000_0000}, "write", "stack-overflow"),
        (MAPERR, 0x7FFB_FFFE_FFF8, "e800000000", {"rsp": 0x7FFB_FFFF_0000}, "write", "stack-overflow"),
        (MAPERR, 0x7F00_0000_1FF8, PUSH, {"rsp": 0x7F00_0000_2000}, "write", "stack-overflow"),  # guard by madvise
        (MAPERR, 0x7FFB_FFFF_FFF8, STORE, {"rdi": 0x7FFB_FFFF_FFF8}, "write", "stack-overflow"),
        # One function took more than there is: past the guard, with the frame pointer still in the stack, or below the main thread's.
        (MAPERR, 0x7EFF_FF00_0000, "c6042401", {"rsp": 0x7EFF_FF00_0000, "rbp": 0x7F00_0000_2000}, "write", "stack-overflow"),
        (MAPERR, 0x7EFF_FF00_0000, "c6042401", {"rsp": 0x7EFF_FF00_0000, "rbp": 0x60_0000}, "write", "unmapped"),
        (MAPERR, 0x7FFB_FC00_0000, "c6042401", {"rsp": 0x7FFB_FC00_0000, "rbp": 0}, "write", "stack-overflow"),
        (MAPERR, 0x7FFB_FC00_0000, STORE, {"rdi": 0x7FFB_FC00_0000}, "write", "unmapped"),
        (MAPERR, 0x7FFC_0080_0010, STORE, {"rdi": 0x7FFC_0080_0010, "rsp": 0x7FFC_007F_FF00}, "write", "unmapped"),
        (KERNEL, 0, LOAD_FIELD, {"rdi": 0xDEADBEEF_DEADBEEF}, "read", "non-canonical"),
        (KERNEL, 0, "ffd0", {"rax": 0x4141414141414141}, "execute", "non-canonical"),
        (KERNEL, 0, "660f6f07", {"rdi": 0x600008}, "read", "misaligned"),
        (KERNEL, 0, "f30f6f07", {"rdi": 0x600008}, None, None),
        (KERNEL, 0, PUSH, {"rsp": 0x7F00_0000_1000}, "write", "stack-overflow"),  # no room for the handler
        (KERNEL, 0, "fa", {}, None, "privileged-instruction"),
        (KERNEL, 0, "", {}, None, None),
        ((7, 128), 0, "488b4510", {"rbp": 0x4141414141414141}, "read", "non-canonical"),
        ((7, 2), 0x708000, LOAD_FIELD, {"rdi": 0x707FE8}, "read", "bus-truncated-file"),
        ((7, 2), 0x608000, LOAD_FIELD, {"rdi": 0x607FE8}, "read", None),
        ((7, 4), 0x608000, "", {}, None, "hardware-memory-error"),
        ((8, 1), PC, "f7f9", {"rcx": 0}, None, "integer-divide"),
        ((4, 2), PC, "0f0b", {}, None, "trap"),
        ((4, 2), PC, "62f17c4858c1", {}, None, "illegal-instruction"),
        ((5, 128), 0, "90", {}, None, "trap"),
        ((31, 1), 0x401000, "", {"orig_rax": 59}, None, "seccomp"),
        ((6, -6), None, "", {}, None, "abort"),
    ],
)
def test_reason(kind, address, code, registers, access, reason):
    signal = fault(*kind, address, code, **registers)
    assert (signal.access, signal.reason) == (access, reason), signal.detail
    assert signal.detail
    assert not signal.recovered


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("/lib/ld-musl-x86_64.so.1", "trap"),
        ("/usr/lib/x86_64-linux-musl/libc.so", "trap"),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "privileged-instruction"),
        (None, "privileged-instruction"),
    ],
)
def test_musl_stops_with_an_instruction_of_the_kernel(file: str | None, reason: str) -> None:
    home = Mapping(start=Address(PC & ~0xFFF), end=Address((PC & ~0xFFF) + 0x1000), permissions="r-xp", path=file)
    sent = Signal(number=11, name="SIGSEGV", code=128, code_name="SI_KERNEL")
    found = explain(sent, X86_64, {"rip": PC, "rsp": 0x7000_0000}, bytes.fromhex("f4"), [home])
    assert found.reason == reason and ("musl" in (found.detail or "")) == (reason == "trap")


def test_detail_is_a_sentence_for_a_person():
    assert fault(*MAPERR, 0x18, LOAD_FIELD, rdi=0).detail == (
        "read of 8 bytes at 0x18: a null pointer plus an offset of 24 bytes (mov rax, [rdi+0x18], rdi = 0)"
    )


@pytest.mark.parametrize(
    ("address", "place"),
    [(0x610000, "directly after [heap] (rw-)"), (0x610018, "24 bytes past the end of [heap] (rw-)"), (0x640000, None)],
)
def test_what_lies_before_an_unmapped_address(address: int, place: str | None) -> None:
    detail = fault(*MAPERR, address, LOAD_FIELD, rdi=address - 0x18).detail or ""
    assert (place in detail) if place else "behind" not in detail and "past" not in detail


def test_general_protection_gives_the_true_address():
    assert fault(*KERNEL, 0, LOAD_FIELD, rdi=0x4141414141414141).address == 0x4141414141414159
    assert fault(*KERNEL, 0, "").address is None


def test_overwritten_pointer_is_read_as_text_and_as_poison():
    assert "'hello wo'" in fault(*KERNEL, 0, STORE, rdi=int.from_bytes(b"hello wo", "little")).detail
    assert "'too far'" in fault(*KERNEL, 0, STORE, rdi=int.from_bytes(b"too far\0", "little")).detail, "the string ended there"
    assert "text" not in fault(*KERNEL, 0, STORE, rdi=int.from_bytes(b"too \1ar\0", "little")).detail
    assert "memory freed by" in fault(*KERNEL, 0, STORE, rdi=0xDDDDDDDDDDDDDDDD).detail


def test_the_text_is_that_of_the_pointer_not_of_the_address():
    word = int.from_bytes(b"ar too m", "little")
    assert "the bytes of rdi read 'ar too m'" in fault(*KERNEL, 0, LOAD_FIELD, rdi=word).detail
    assert "the bytes of rdi read 'ar too m'" in fault(*KERNEL, 0, LOAD_INDEXED, rdi=word, rsi=30).detail, "not text with that added"
    assert "the bytes of rsi read 'ar too m'" in fault(*KERNEL, 0, LOAD_SUM, rdi=0x600000, rsi=word).detail


def test_return_address_overwritten():
    signal = fault(*KERNEL, 0, "c3", stack=struct.pack("<Q", 0x4242424242424242))
    assert (signal.reason, signal.access, signal.address) == ("non-canonical", "execute", 0x4242424242424242)
    assert fault(*KERNEL, 0, "c3").reason is None


def test_null_call_names_the_caller():
    assert "the caller's return address is 0x400123" in fault(*MAPERR, 0, stack=struct.pack("<Q", 0x400123), rip=0).detail
    assert "called from" not in fault(*MAPERR, 0, stack=struct.pack("<Q", 0x600123), rip=0).detail


@pytest.mark.parametrize(
    ("number", "trap", "code", "registers", "reason", "si_code"),
    [
        (11, Trap(14, 4, 0x18), LOAD_FIELD, {"rdi": 0}, "null-pointer", 1),
        (11, Trap(14, 7, 0x500010), STORE, {"rdi": 0x500010}, "read-only", 2),
        (11, Trap(14, 6, 0x500010), STORE, {"rdi": 0x500010}, "read-only", 2),  # a page never touched before
        (11, Trap(14, 4, 0x7F00_0000_0010), LOAD_FIELD, {"rdi": 0x7EFF_FFFF_FFF8}, "no-access", 2),
        (11, Trap(14, 0x15, 0x600010), "", {"rip": 0x600010}, "no-exec", 2),
        (11, Trap(14, 0x14, 0), "", {"rip": 0}, "null-pointer", 1),
        (11, Trap(13, 0, 0xBAD), LOAD_FIELD, {"rdi": 0xDEADBEEF_DEADBEEF}, "non-canonical", 128),
        (11, Trap(14, 6, 0x7FFB_FFFF_FFF8), PUSH, {"rsp": 0x7FFC_0000_0000}, "stack-overflow", 1),
        (7, Trap(14, 4, 0x708000), LOAD_FIELD, {"rdi": 0x707FE8}, "bus-truncated-file", 2),
        (8, Trap(0, 0, 0), "f7f9", {"rcx": 0}, "integer-divide", 1),
        (4, Trap(6, 0, 0), "0f0b", {}, "trap", 2),
    ],
)
def test_a_handlers_trap_brings_the_fault_back(number, trap, code, registers, reason, si_code):
    signal = fault(number, -6, 0x1092, code, trap, **registers)
    assert (signal.reason, signal.code, signal.recovered, signal.sender_pid) == (reason, si_code, True, None), signal.detail


@pytest.mark.parametrize(
    ("number", "trap", "code", "registers"),
    [
        (11, Trap(14, 4, 0x18), LOAD_FIELD, {"rdi": 0x600000}),  # cr2 is not what the instruction reads
        (11, Trap(14, 4, 0x18), "90", {}),
        (11, Trap(14, 0x14, 0), "90", {}),  # fetched elsewhere
        (11, Trap(13, 0, 0), "90", {}),
        (11, Trap(0, 0, 0), "90", {}),
        (8, Trap(0, 0, 0), "90", {}),
        (6, Trap(14, 4, 0x18), "90", {"rdi": 0}),
    ],
)
def test_a_stale_trap_is_not_believed(number, trap, code, registers):
    signal = fault(number, -6, 0x1092, code, trap, **registers)
    assert (signal.reason, signal.recovered, signal.code, signal.address) == ("sent", False, -6, None)
    assert "was sent" in signal.detail


@pytest.mark.parametrize(("number", "trap"), [(8, Trap(0, 0, 0)), (11, Trap(0, 0, 0))])
def test_without_the_instruction_nothing_is_said_to_be_sent(number, trap):
    signal = fault(number, -6, 0x1092, "", trap)
    assert (signal.reason, signal.recovered) == (None, False)
    assert "bytes are missing" in signal.detail


@pytest.mark.parametrize("code", ["", "c4e2f59204c7"], ids=["no bytes", "vgatherdpd"])
def test_a_trap_that_cannot_be_checked_is_believed(code):
    signal = fault(11, -6, 0x1092, code, Trap(13, 0, 0), rdi=0x600000)
    assert (signal.reason, signal.code, signal.recovered, signal.address) == (None, 128, True, None)
    assert "the kernel did not report the fault address" in signal.detail


def test_a_raise_behind_a_handler_is_an_abort():
    signal = fault(6, -6, 0x1092, "483d00f0ffff", Trap(0, 0, 0), rax=0, rdi=PID, rdx=6)
    assert (signal.reason, signal.recovered) == ("abort", False)


@pytest.mark.parametrize(
    ("code", "sender", "reason"),
    [(0, 99, "sent-from-outside"), (0, 0, "sent-from-outside"), (0, PID, "raised"), (-6, 99, "sent-from-outside"), (0, None, None)],
)
def test_sender(code, sender, reason):
    signal = explain(Signal(number=11, name="SIGSEGV", code=code, address=Address(0x63), sender_pid=sender), X86_64, {"rip": PC}, pid=PID)
    assert (signal.reason, signal.address) == (reason, None)


def test_ucontext_layout():
    data = bytearray(UCONTEXT_SIZE)
    for offset, value in ((0xA0, SP), (0xA8, PC), (0xC0, 6), (0xC8, 14), (0xD8, 0xABC), (0x90, 7), (0x68, 9)):
        struct.pack_into("<Q", data, offset, value)
    registers, trap = read_ucontext(bytes(data))
    assert (registers["rsp"], registers["rip"], registers["rax"], registers["rdi"]) == (SP, PC, 7, 9)
    assert trap == Trap(14, 6, 0xABC)
    with pytest.raises(ValueError, match="224"):
        read_ucontext(bytes(UCONTEXT_SIZE - 1))


@pytest.mark.parametrize(
    ("address", "code", "registers", "access", "reason"),
    [
        (0x10, "200840f9", {"x1": 0}, "read", "null-pointer"),  # ldr x0, [x1, #0x10]
        (0x500010, "207822f8", {"x1": 0x500000, "x2": 2}, "write", "unmapped"),  # str x0, [x1, x2, lsl #3]
        (0, "", {"pc": 0}, "execute", "null-pointer"),
    ],
)
def test_aarch64(address, code, registers, access, reason):
    signal = Signal(number=11, name="SIGSEGV", code=1, address=Address(address))
    found = explain(signal, AARCH64, {"pc": PC, "sp": SP, "x0": 1, **registers}, bytes.fromhex(code))
    assert (found.access, found.reason) == (access, reason)


def test_an_unknown_architecture_keeps_what_the_signal_says():
    found = explain(Signal(number=11, name="SIGSEGV", code=1, address=Address(8)), named("riscv"), {}, b"\x01\x02\x03\x04")
    assert (found.access, found.reason) == (None, "null-pointer")


def test_names():
    assert [signal_name(n) for n in (1, 11, 31, 32, 34, 40, 64, 99)] == [
        *("SIGHUP", "SIGSEGV", "SIGSYS", "SIG32", "SIGRTMIN", "SIGRTMIN+6", "SIGRTMIN+30", "signal 99"),
    ]
    assert code_name(11, 1) == "SEGV_MAPERR"
    assert code_name(7, 2) == "BUS_ADRERR"
    assert code_name(6, -6) == "SI_TKILL"
    assert code_name(11, 128) == "SI_KERNEL"
    assert code_name(11, 77) is None


WORD = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 8, PC, SP, 0x600000, 2**47, 2**63, 2**64 - 1]))
REGISTERS = ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip", "r8", "r15", "fs_base", "x0", "pc", "sp"]


@given(
    architecture=st.sampled_from(ARCHITECTURES),
    number=st.sampled_from([4, 5, 6, 7, 8, 11, 15, 31, 64]),
    code=st.one_of(st.none(), st.integers(-7, 15), st.just(128)),
    address=st.one_of(st.none(), WORD),
    registers=st.dictionaries(st.sampled_from(REGISTERS), WORD),
    instruction=st.one_of(st.binary(max_size=16), st.sampled_from([bytes.fromhex(one) for one in (LOAD_FIELD, LOAD_INDEXED, STORE, PUSH)])),
    trap=st.one_of(st.none(), st.builds(Trap, st.sampled_from([0, 3, 6, 12, 13, 14, 0x20, 0x24, 99]), st.integers(0, 31), WORD)),
    stack=st.binary(max_size=16),
)
def test_any_evidence_gives_an_answer(architecture, number, code, address, registers, instruction, trap, stack):
    signal = Signal(number=number, name=signal_name(number), code=code, address=None if address is None else Address(address))
    found = explain(signal, architecture, registers, instruction, MAPPINGS, trap, pid=PID, stack=stack)
    assert found.number == number or found.recovered
    assert found.access in (None, "read", "write", "execute")
    assert found.detail is None or "\n" not in found.detail
    if found.recovered:
        assert trap is not None


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("62e1fe487f07", "vmovdqu64 [rdi], zmm16"),
        ("62e17f497f00", "vmovdqu8 [rax] {k1}, zmm16"),
        ("c5fe7f07", "vmovdqu [rdi], ymm0"),
    ],
)
def test_a_vector_store_writes(code: str, text: str) -> None:
    """capstone 5 says that AVX-512 stores read their target."""
    registers = {"rip": 0x400000, "rdi": 0xDEAD000, "rax": 0xDEAD000, "rsp": 0x7FFC00000000}
    signal = Signal(number=11, name="SIGSEGV", code=1, code_name="SEGV_MAPERR", address=Address(0xDEAD000))
    explained = explain(signal, X86_64, registers, bytes.fromhex(code))
    assert explained.access == "write", (text, explained)
