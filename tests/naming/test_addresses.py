"""Where null ends and what freed memory looks like: one answer for cores, logs and findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.arch import named
from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.core.fault import explain
from crashkit.evidence.text.log import read_log
from crashkit.model import Address, Crash, NativeFrame, Signal, Thread
from crashkit.naming.addresses import NULL_AREA, fill_of, is_null


def core_reason(address: int) -> str | None:
    signal = Signal(number=11, name="SIGSEGV", code=1, code_name="SEGV_MAPERR", address=Address(address))
    return explain(signal, named("x86_64"), {"rip": 0x401000, "rsp": 0x7FFC00000000}).reason


def log_reason(address: int, folder: Path) -> str | None:
    log = folder / "dmesg.log"
    log.write_text(f"python3[7]: segfault at {address:x} ip 00007f0000001234 sp 00007ffc00000000 error 4 in libc.so.6[7f0000000000+1000]\n")
    signal = read_log(log).signal
    assert signal is not None and signal.address == address
    return signal.reason


def findings(**facts: object) -> list[str]:
    frames = (NativeFrame(function="shop::buy", module="/srv/shop.so"),)
    registers = {"rax": facts.pop("rax")} if "rax" in facts else {}
    signal = Signal(number=11, name="SIGSEGV", code=1, code_name="SEGV_MAPERR", **facts)
    thread = Thread(tid=1, crashed=True, frames=frames, registers=registers)
    return [finding.id for finding in diagnose(Crash(signal=signal, threads=(thread,)), load_catalog()).findings]


@pytest.mark.parametrize(("address", "null"), [(0, True), (0x1000, True), (0xFFFF, True), (0x10000, False), (2**47, False)])
def test_null_ends_at_one_address(address: int, null: bool, tmp_path: Path) -> None:
    assert is_null(address) == (address < NULL_AREA) == null
    assert (core_reason(address) == "null-pointer") == null
    assert (log_reason(address, tmp_path) == "null-pointer") == null
    # A gdb text tells the address, but no reason.
    assert ("null-deref" in findings(address=Address(address))) == null


FILLS = {
    0xDD: True,
    0xDB: True,
    0x5A: True,
    0x6B: True,
    0xEF: True,
    0xCD: False,  # handed out, never written
    0xFD: False,  # a guard
    0x41: False,
}


@pytest.mark.parametrize(("byte", "freed"), FILLS.items())
def test_freed_bytes_are_the_same_for_the_reason_and_the_finding(byte: int, freed: bool) -> None:
    pointer = int.from_bytes(bytes([byte]) * 8, "little")
    signal = Signal(number=11, name="SIGSEGV", code=128, code_name="SI_KERNEL")
    explained = explain(signal, named("x86_64"), {"rip": 0x401000, "rsp": 0x7FFC00000000, "rdi": pointer}, bytes.fromhex("488907"))
    assert ("freed" in (explained.detail or "")) == freed
    assert ("use-after-free" in findings(rax=Address(pointer))) == freed


@pytest.mark.parametrize(
    ("address", "byte"),
    [(0xDDDDDDDDDDDDDDDD, 0xDD), (0xDDDDDDDDDDDE0005, None), (0xDDDDDDDDDDDDFFFF, 0xDD), (0x0000DDDDDDDDDDDD, None), (0, None), (-1, None)],
)
def test_an_offset_may_have_been_added(address: int, byte: int | None) -> None:
    fill = fill_of(address)
    assert (fill.byte if fill else None) == byte


@pytest.mark.parametrize(
    ("address", "reason"),
    [(0x55AA_0000_0000, "unmapped"), (0x7FF_0000_0000, "unmapped"), (0xBF7F_FFEC, None), (0x7F_BF7F_FFF0, None), (0x7FFC_1122_3344, None)],
    ids=["the heap of x86-64", "no stack", "the stack of a 32-bit process", "of one with 39 bits", "of x86-64"],
)
def test_what_may_be_the_end_of_a_stack_is_not_told_as_unmapped(address: int, reason: str | None, tmp_path: Path) -> None:
    """The words are the same for an overflow: only the stack pointer would tell them apart."""
    (log := tmp_path / "mpi.log").write_text(
        f"Signal: Segmentation fault (11)\nSignal code: Address not mapped (1)\nFailing at address: {address:#x}\n"
    )
    signal = read_log(log).signal
    assert signal is not None and (signal.address, signal.reason) == (address, reason)
