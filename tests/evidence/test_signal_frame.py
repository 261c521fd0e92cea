"""The frame that the kernel pushed for a signal handler, found without unwinding."""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path

import pytest

from crashkit.arch.contract import SignalFrame
from crashkit.arch.x86_64 import UCONTEXT_SIZE
from crashkit.evidence.core import signal_frame
from crashkit.evidence.core.core import Core, open_core
from tests.crashes import Folder, an_interpreter, needs_gdb, needs_x86_64, python_crash
from tests.evidence import synthetic
from tests.evidence.test_core import gdb

pytestmark = needs_x86_64()


def open_file(folder: Folder) -> Core:
    core = open_core(folder.core.open("rb"), folder.core, folder.core.stat().st_size)
    assert core is not None
    return core


def found_in(folder: Folder) -> SignalFrame | None:
    with open_file(folder) as core:
        return signal_frame.find(core, core.statuses[0].registers["rsp"])


@pytest.mark.slow
@needs_gdb
def test_registers_are_those_that_gdb_finds_by_unwinding():
    """gdb follows the unwind tables to `<signal handler called>`; below it stand the registers at the fault."""
    folder = python_crash("threads.py", python=an_interpreter())
    found = found_in(folder)
    frames = gdb(folder.core, f"file {folder.program}", "set auto-solib-add on", "sharedlibrary", "bt 12")
    number = int(re.search(r"^#(\d+) +<signal handler called>", frames, re.M)[1])
    text = gdb(folder.core, f"file {folder.program}", "set auto-solib-add on", "sharedlibrary", f"frame {number + 1}", "info registers")
    truth = {name: int(value, 16) for name, value in re.findall(r"^(\w+) +(0x[0-9a-f]+)\b", text, re.M)}
    # gdb cannot unwind eflags.
    same = "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip".split()
    assert {name: found.registers[name] for name in same} == {name: truth[name] for name in same}


def test_fault_behind_faulthandler():
    found = found_in(python_crash("faults.py", "null_field", python=an_interpreter()))
    assert (found.trap.number, found.trap.address) == (14, 0x18)


def test_no_handler_no_frame():
    assert found_in(python_crash("faults.py", "null_field", python=an_interpreter(), faulthandler=False)) is None


class TestBytes:
    """A look-alike on the stack must not be believed."""

    CODE, STACK = 0x400000, 0x7FFF00000000

    def core(self, stack: bytes, code_flags: int = 5) -> Core:
        loads = [synthetic.Load(self.CODE, bytes(4096), code_flags), synthetic.Load(self.STACK, stack)]
        data = synthetic.core(synthetic.EM_X86_64, synthetic.prstatus(1, range(27)), loads)
        core = open_core(io.BytesIO(data), Path("core"), len(data))
        assert core is not None
        return core

    def frame(self, restorer: int | None = None, trap: int = 14, selectors: tuple[int, ...] = (0x33, 0, 0, 0x2B)) -> bytes:
        context = bytearray(0x3C8)
        struct.pack_into("<Q", context, 0xA8, 0x1234)
        struct.pack_into("<HHHH", context, 0xB8, *selectors)
        struct.pack_into("<Q", context, 0xC8, trap)
        struct.pack_into("<Q", context, 0xD8, 0x18)
        return struct.pack("<Q", self.CODE + 16 if restorer is None else restorer) + bytes(context)

    def test_found(self):
        found = signal_frame.find(self.core(bytes(64) + self.frame() + bytes(64)), self.STACK)
        assert found.address == self.STACK + 72
        assert (found.registers["rip"], found.trap.number, found.trap.address) == (0x1234, 14, 0x18)

    @pytest.mark.parametrize("lie", [{"restorer": 0x10}, {"restorer": STACK}, {"trap": 1000}, {"selectors": (0x33, 1, 0, 0x2B)}])
    def test_look_alikes(self, lie):
        assert signal_frame.find(self.core(bytes(64) + self.frame(**lie) + bytes(64)), self.STACK) is None

    def test_one_behind_a_look_alike(self):
        stack = self.frame(trap=99) + bytes(8) + self.frame()
        assert signal_frame.find(self.core(stack), self.STACK).trap.number == 14

    def test_cut_in_the_middle(self):
        whole = self.frame()
        for length in range(0, 8 + UCONTEXT_SIZE, 8):
            assert signal_frame.find(self.core(whole[:length]), self.STACK) is None

    def test_stack_pointer_outside_of_everything(self):
        core = self.core(self.frame())
        for address in (0, 1, (1 << 64) - 1, self.STACK - (64 << 10) - 8):
            assert signal_frame.find(core, address) is None

    def test_stack_pointer_below_a_stack_that_is_full(self):
        core = self.core(self.frame())
        assert signal_frame.find(core, self.STACK - 8) is not None

    def test_restorer_in_memory_that_is_no_code(self):
        assert signal_frame.find(self.core(self.frame(), code_flags=6), self.STACK) is None
