"""AArch64 from cores that qemu-user wrote (fixtures/aarch64), and from notes and frames as Linux writes them."""

from __future__ import annotations

import gzip
import io
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from crashkit.arch import named
from crashkit.arch.aarch64 import NT_ARM_TLS
from crashkit.arch.contract import SignalInfo, Trap
from crashkit.debugger.gdb import debugger
from crashkit.evidence.core import signal_frame
from crashkit.evidence.core.core import Core
from crashkit.evidence.core.fault import explain
from crashkit.model import Address, Crash, Mapping, Signal
from crashkit.pipeline import Options, analyze
from tests.evidence import synthetic
from tests.evidence.synthetic import EM_AARCH64, Load

FIXTURES = Path(__file__).parents[2] / "fixtures" / "aarch64"
AARCH64 = named("aarch64")
LOAD_FIELD = bytes.fromhex("000c40f9")  # ldr x0, [x0, #0x18]
needs_gdb = pytest.mark.skipif(shutil.which("gdb-multiarch") is None, reason="no gdb for all processors here (gdb-multiarch)")


def opened(name: str) -> Core:
    data = gzip.decompress((FIXTURES / name).read_bytes())
    return Core(io.BytesIO(data), Path(name), len(data))


def analyzed(name: str, **options: object) -> Crash:
    return analyze(FIXTURES / name, FIXTURES / "crash", options=Options(**options))


class TestRecordedCores:
    def test_notes_alone(self):
        crash = analyzed("plain.core.gz", gdb=None)
        assert (crash.process.architecture, crash.signal.name, len(crash.threads)) == ("aarch64", "SIGSEGV", 2)
        assert crash.process.executable == "./crash"
        assert crash.thread.registers["x0"] == 0
        assert [i.text for i in crash.instructions if i.faulting] == ["ldr x0, [x0, #0x18]"]
        assert [frame.function for frame in crash.thread.natives()] == ["value_of"]

    @needs_gdb
    def test_frames_have_names(self):
        crash = analyzed("plain.core.gz")
        assert crash.debugger.startswith("GNU gdb")
        assert [(f.function, f.file and Path(f.file).name, f.line) for f in crash.thread.natives()][:3] == [
            ("value_of", "crash.c", 54),
            ("sum", "crash.c", 60),
            ("run", "crash.c", 103),
        ]
        other = next(thread for thread in crash.threads if not thread.crashed)
        assert "wait_for_ever" in [frame.function for frame in other.natives()]
        assert not [error for error in crash.soft_errors if error.stage in ("gdb", "native")]

    def test_without_such_a_gdb_the_rest_of_the_report_stands(self, monkeypatch):
        monkeypatch.setattr(debugger, "MULTIARCH", "gdb-of-no-such-name")
        crash = analyzed("plain.core.gz")
        if any(error.stage == "gdb" for error in crash.soft_errors):
            (error,) = [error for error in crash.soft_errors if error.stage == "gdb"]
            assert "does not support aarch64" in error.message and "apt-get install" in error.hint
            assert crash.thread.registers["x0"] == 0
        else:
            assert len(list(crash.thread.natives())) >= 3  # a gdb that knows every processor by itself

    def test_another_executable_is_not_believed(self, tmp_path):
        elf = bytearray((FIXTURES / "crash").read_bytes())
        struct.pack_into("<Q", elf, 24, struct.unpack_from("<Q", elf, 24)[0] + 4)
        (tmp_path / "other").write_bytes(elf)
        crash = analyze(FIXTURES / "plain.core.gz", tmp_path / "other", options=Options(gdb=None))
        assert not crash.modules
        assert any("is not the executable that crashed" in error.message for error in crash.soft_errors)
        crash = analyze(FIXTURES / "plain.core.gz", options=Options(gdb=None))
        assert ["--exe" in (error.hint or "") for error in crash.soft_errors if error.stage == "modules"] == [True]

    def test_the_fault_behind_a_handler(self):
        with opened("handler.core.gz") as core:
            registers = core.statuses[0].registers
            found = signal_frame.find(core, registers["sp"])
            with opened("plain.core.gz") as plain:
                true = plain.statuses[0].registers
                assert signal_frame.find(plain, true["sp"]) is None
        # The handler was installed with SA_SIGINFO or not: then it is left-over memory.
        assert found.info is not None
        # qemu-user tells the address, and leaves the syndrome away.
        assert found.trap == Trap(0, 0, 0x18)
        same = ("pc", "x0", "x30")
        assert {name: found.registers[name] for name in same} == {name: true[name] for name in same}
        raised = Signal(number=11, name="SIGSEGV", code=-6, sender_pid=1)
        signal = explain(raised, AARCH64, found.registers, LOAD_FIELD, (), found.trap, pid=1)
        assert (signal.reason, signal.access, signal.address, signal.recovered) == ("null-pointer", "read", 0x18, True)
        nop = explain(raised, AARCH64, found.registers, bytes.fromhex("1f2003d5"), (), found.trap, pid=1)
        assert not nop.recovered


def frame(esr: int | None, address: int = 0x500010, pc: int = 0x401000, **fields: Any) -> bytes:
    """siginfo and ucontext as setup_rt_frame (arch/arm64/kernel/signal.c) leaves them."""
    context = bytearray(176 + 288 + 4096)
    struct.pack_into("<QQ", context, 0, fields.get("flags", 0), 0)
    struct.pack_into("<Q31QQQQ", context, 176, address, *range(100, 131), 0x7FFF_0000, pc, fields.get("pstate", 0x6000_0000))
    struct.pack_into("<II", context, 464, 0x46508001, 528)
    if esr is not None:
        struct.pack_into("<IIQ", context, 464 + 528, 0x45535201, 16, esr)
    info = struct.pack("<i4xi4xQ", *fields.get("info", (0, 0, 0)))
    return info.ljust(128, b"\0") + bytes(context)


STACK = 0x7FFF_F000_0000
DATA_ABORT, INSTRUCTION_ABORT = 0x24 << 26, 0x20 << 26


class TestSignalFrames:
    def core(self, stack: bytes) -> Core:
        data = synthetic.core(EM_AARCH64, synthetic.prstatus(1, range(34)), [Load(STACK, stack)])
        return Core(io.BytesIO(data), Path("core"), len(data))

    def test_found(self):
        found = signal_frame.find(self.core(bytes(320) + frame(DATA_ABORT | 0x46)), STACK + 8)
        assert found.address == STACK + 320 + 128
        assert (found.registers["x0"], found.registers["x30"], found.registers["pc"]) == (100, 130, 0x401000)
        assert found.trap == Trap(0x24, DATA_ABORT | 0x46, 0x500010)

    def test_the_siginfo_of_its_handler(self):
        """A handler of a signal that was sent: nothing faulted, whatever the syndrome of an earlier exception says."""
        with self.core(bytes(320) + frame(DATA_ABORT, info=(15, 0, 4242))) as core:
            found = signal_frame.find(core, STACK + 8)
        assert found.info == SignalInfo(15, 0, 4242)
        raised = Signal(number=6, name="SIGABRT", code=-6, sender_pid=1)
        assert not explain(raised, AARCH64, found.registers, LOAD_FIELD, (), found.trap, pid=1, info=found.info).recovered
        with self.core(frame(DATA_ABORT)[64:]) as core:
            assert signal_frame.find(core, STACK).info is None

    @pytest.mark.parametrize("lie", [{"flags": 1}, {"pstate": 5}])
    def test_look_alikes(self, lie):
        assert signal_frame.find(self.core(frame(None, **lie)), STACK) is None
        assert signal_frame.find(self.core(frame(None, **lie) + frame(None)), STACK).address > STACK + 4096

    def test_cut_in_the_middle(self):
        whole = frame(DATA_ABORT)
        for length in range(0, 128 + 464, 16):
            assert signal_frame.find(self.core(whole[:length]), STACK) is None
        for length in range(128 + 464 + 8, 128 + 464 + 600, 8):
            assert signal_frame.find(self.core(whole[:length]), STACK) is not None

    @pytest.mark.parametrize(
        ("esr", "permissions", "access", "code"),
        [
            (DATA_ABORT | 0x46, "r--", "write", 2),
            (DATA_ABORT | 0x06, None, "read", 1),
            (DATA_ABORT | 0x0F, "---", "read", 2),
            (DATA_ABORT | 0x140, None, "read", 1),  # cache maintenance counts as a write to the processor only
        ],
    )
    def test_the_syndrome_tells_the_access(self, esr, permissions, access, code):
        mappings = [Mapping(start=Address(0x500000), end=Address(0x501000), permissions=permissions)] if permissions else []
        raised = Signal(number=11, name="SIGSEGV", code=-6, sender_pid=1)
        signal = explain(raised, AARCH64, {"pc": 0x401000, "sp": STACK}, b"", mappings, Trap(esr >> 26, esr, 0x500010), pid=1)
        assert (signal.access, signal.code, signal.address, signal.recovered) == (access, code, 0x500010, True)

    def test_a_call_of_null_names_the_caller(self):
        code = Mapping(start=Address(0x400000), end=Address(0x402000), permissions="r-x")
        raised = Signal(number=11, name="SIGSEGV", code=-6, sender_pid=1)
        trap = Trap(0x20, INSTRUCTION_ABORT | 6, 0)
        signal = explain(raised, AARCH64, {"pc": 0, "sp": STACK, "x30": 0x400124}, b"", [code], trap, pid=1)
        assert (signal.reason, signal.access) == ("null-pointer", "execute")
        assert "the caller's return address is 0x400124" in signal.detail

    @pytest.mark.parametrize("trap", [Trap(0x15, 0x15 << 26, 0), Trap(0, 0, 0), Trap(0x20, INSTRUCTION_ABORT | 6, 0x999)])
    def test_a_trap_that_explains_nothing(self, trap):
        raised = Signal(number=11, name="SIGSEGV", code=-6, sender_pid=1)
        assert not explain(raised, AARCH64, {"pc": 0x401000, "sp": STACK}, LOAD_FIELD, (), trap, pid=1).recovered


class TestThreadPointer:
    """pthread_self() is the thread pointer less the size of glibc's struct pthread, whose tid is at 208."""

    def core(self, size: int, tids: tuple[int, ...], decoys: int = 0) -> Core:
        notes, loads = b"", []
        for number, tid in enumerate(tids):
            pointer = 0x7000_0000 + 0x10000 * number + 0x8000
            memory = bytearray(0x10000)
            for extra in range(decoys + 1):
                struct.pack_into("<i", memory, 0x8000 - size + 208 + 32 * extra, tid)
            loads.append(Load(pointer - 0x8000, bytes(memory)))
            notes += synthetic.prstatus(tid, range(34)) + (synthetic.prpsinfo(tids[0]) if number == 0 else b"")
            notes += synthetic.note(b"LINUX", NT_ARM_TLS, struct.pack("<QQ", pointer, 0))
        data = synthetic.core(EM_AARCH64, notes, loads)
        return Core(io.BytesIO(data), Path("core"), len(data))

    @pytest.mark.parametrize("size", [0x6F0, 0x760, 0x8C0])
    def test_each_thread_has_its_own(self, size):
        with self.core(size, (4242, 4250)) as core:
            assert [hex(thread.registers["tpidr"]) for thread in core.threads()] == ["0x70008000", "0x70018000"]
            idents = [core.architecture.pthread(thread.registers, thread.tid, core.read) for thread in core.threads()]
        assert idents == [0x70008000 - size, 0x70018000 - size]

    def test_an_ambiguous_one_is_none(self):
        with self.core(0x700, (4242,), decoys=1) as core:
            (thread,) = core.threads()
            assert core.architecture.pthread(thread.registers, thread.tid, core.read) is None
            assert core.architecture.pthread({}, thread.tid, core.read) is None
            assert core.architecture.pthread({"tpidr": 8}, thread.tid, core.read) is None


PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void say(void) { printf("%d %lu %lu\n", gettid(), (unsigned long)__builtin_thread_pointer(), pthread_self()); fflush(stdout); }
static void *other(void *unused) { say(); for (;;) pause(); return unused; }
int main(void) {
    pthread_t thread;
    say();
    pthread_create(&thread, 0, other, 0);
    sleep(1);
    *(volatile int *)8 = 1;
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("qemu-aarch64") and shutil.which("aarch64-linux-gnu-gcc")), reason="no qemu-user and compiler here")
def test_pthread_self_of_a_real_glibc(tmp_path):
    """The program tells its thread pointers (qemu-user writes no NT_ARM_TLS); what is made of them is what pthread_self() gave."""
    (tmp_path / "program.c").write_text(PROGRAM)
    compiler = ["aarch64-linux-gnu-gcc", "-O1", "-static", "-pthread", "program.c", "-o", "program"]
    if subprocess.run(compiler, cwd=tmp_path, capture_output=True, timeout=100).returncode:
        pytest.skip("no C library for aarch64 here")
    command = ["sh", "-c", "ulimit -c unlimited; exec qemu-aarch64 -s 262144 ./program"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    (path,) = tmp_path.glob("qemu_program_*.core")
    told = [tuple(map(int, line.split())) for line in run.stdout.splitlines()]
    assert len(told) == 2
    with Core(path.open("rb"), path, path.stat().st_size) as core:
        assert {thread.tid for thread in core.threads()} == {tid for tid, _, _ in told}
        for tid, pointer, ident in told:
            assert core.architecture.pthread({"tpidr": pointer}, tid, core.read) == ident


@pytest.mark.parametrize(
    ("code", "targets"),
    [
        ("01000014", [0x1004]),  # b
        ("40000054", [0x1008]),  # b.eq
        ("400000b4", [0x1008]),  # cbz x0
        ("410000b5", [0x1008]),  # cbnz x1
        ("40000036", [0x1008]),  # tbz w0, #0
        ("40001837", [0x1008]),  # tbnz w0, #3
        ("01000094", []),  # bl: a call
        ("00001fd6", []),  # br x0
        ("c0035fd6", []),  # ret
        ("1f2003d5", []),  # nop
        ("1f2003d5" "ffffff17", [0x1000]),  # nop, and b to it
    ],
)  # fmt: skip
def test_where_code_jumps(code: str, targets: list[int]) -> None:
    assert list(AARCH64.jumps(bytes.fromhex(code), 0x1000)) == targets
