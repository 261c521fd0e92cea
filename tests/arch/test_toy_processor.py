"""A processor that does not exist, in one file: what a new one needs, and that nothing else has to know of it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from signal import SIGSEGV

import pytest

from crashkit import arch
from crashkit.arch.contract import Architecture, Meaning, Read, SignalFrame, Trap
from crashkit.arch.operands import Access, Decoded
from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from tests.evidence import synthetic
from tests.evidence.synthetic import Load

EM_TOY = 0x7707
NT_TOY_THREAD = 0x777


class Toy(Architecture):
    """Three registers, four-byte instructions, of which one loads: `L`, a register's number, and an offset of two bytes."""

    name = "toy"
    machine = EM_TOY
    registers = ("a", "counter", "stack")
    program_counter = "counter"
    stack_pointer = "stack"
    register_notes = {NT_TOY_THREAD: "self"}
    longest_instruction = 4
    instruction_step = 4

    def decode(self, code: bytes, registers: Mapping[str, int]) -> Decoded | None:
        if code[:1] != b"L":
            return None
        offset = int.from_bytes(code[2:4], "little")
        access = Access("read", registers["a"] + offset, 8, "a", offset=offset)
        return Decoded(f"load [a+{offset:#x}]", "load", 4, (access,), True, False, ("a",))

    def signal_frames(self, memory: bytes, start: int) -> Iterator[SignalFrame]:
        at = memory.find(b"TOYFRAME")
        if at >= 0:
            a, counter, stack, address = struct.unpack_from("<4Q", memory, at + 8)
            yield SignalFrame(start + at, {"a": a, "counter": counter, "stack": stack}, Trap(1, 0, address))

    def meaning(self, trap: Trap) -> Meaning | None:
        return Meaning("page", (SIGSEGV,), "read") if trap.number == 1 else None

    def pthread(self, registers: Mapping[str, int], tid: int, read: Read) -> int | None:
        return registers.get("self")


CODE, STACK = 0x10000, 0x80000


@pytest.fixture
def crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crash:
    """Its program followed a null pointer behind a signal handler that raised the signal again."""
    monkeypatch.setattr(arch, "ARCHITECTURES", [*arch.ARCHITECTURES, Toy()])
    notes = synthetic.prstatus(5, (1, CODE + 0x80, STACK)) + synthetic.prpsinfo(5) + synthetic.siginfo(11, -6, 5)
    notes += synthetic.note(b"TOY", NT_TOY_THREAD, struct.pack("<Q", 0xABC0))
    notes += synthetic.file_note([(CODE, CODE + 0x1000, 0, b"/opt/toy")])
    code = bytes(0x40) + b"L\0\x18\0" + bytes(0x1000 - 0x44)
    stack = bytes(64) + b"TOYFRAME" + struct.pack("<4Q", 0, CODE + 0x40, STACK + 0x200, 0x18) + bytes(0x400)
    path = tmp_path / "core"
    path.write_bytes(synthetic.core(EM_TOY, notes, [Load(CODE, code, 5), Load(STACK, stack)]))
    return analyze(path, options=Options(gdb=None))


def test_a_crash_of_it_is_described(crash):
    assert crash.process.architecture == "toy"
    assert (crash.signal.reason, crash.signal.access, crash.signal.address, crash.signal.recovered) == ("null-pointer", "read", 0x18, True)
    assert "load [a+0x18], a = 0" in crash.signal.detail
    assert crash.thread.registers == {"a": 0, "counter": CODE + 0x40, "stack": STACK + 0x200, "self": 0xABC0}
    assert crash.thread.pthread == 0xABC0
    assert [(frame.module, frame.pc) for frame in crash.thread.natives()] == [("/opt/toy", CODE + 0x40)]


def test_a_core_of_a_processor_that_nobody_registered_is_still_a_core(tmp_path):
    path = tmp_path / "core"
    path.write_bytes(synthetic.core(EM_TOY, synthetic.prstatus(5, (1, 2, 3)) + synthetic.siginfo(11, 1, 8), []))
    crash = analyze(path, options=Options(gdb=None))
    assert (crash.process.architecture, crash.signal.name, crash.signal.address) == (str(EM_TOY), "SIGSEGV", 8)
    assert crash.thread.registers == {}
