"""A core's notes and memory against what readelf and gdb say of the same file, and against files that lie."""

from __future__ import annotations

import contextlib
import io
import os
import re
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashkit.debugger.gdb import debugger
from crashkit.errors import EvidenceError
from crashkit.evidence.core.core import Core, open_core
from crashkit.evidence.core.describe import describe
from crashkit.evidence.core.modules import loaded_modules
from crashkit.evidence.input import Input
from crashkit.evidence.module_files import Finder
from crashkit.memory import string_at, word_at
from crashkit.memory.pages import Pages
from crashkit.model import Crash
from crashkit.pipeline import Options, analyze
from crashkit.report import json
from tests.crashes import Folder, an_interpreter, c_crash, crash, needs_binutils, needs_gdb, python_crash
from tests.evidence import synthetic
from tests.evidence.synthetic import EM_X86_64, Load


@pytest.fixture(scope="module")
def crashed() -> Folder:
    return python_crash("threads.py", python=an_interpreter())


def opened(data: bytes) -> Core:
    core = open_core(io.BytesIO(data), Path("core"), len(data))
    assert core is not None
    return core


def open_file(folder: Folder) -> Core:
    core = open_core(folder.core.open("rb"), folder.core, folder.core.stat().st_size)
    assert core is not None
    return core


def described(data: bytes) -> Crash:
    """What the report says of this core without gdb; that it can be written is part of the claim."""
    file = io.BytesIO(data)
    core = open_core(file, Path("core"), len(data))
    assert core is not None
    found = describe(core, Input(file, Path("core"), len(data), Path("core"), len(data)), Finder()).crash
    assert json.decode(json.encode(found)) == found
    return found


@cache
def gdb(core: Path, *commands: str) -> str:
    options = ["-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no", "-iex", "set auto-solib-add off"]
    command = ["gdb", *options, "-core", str(core), *(part for text in commands for part in ("-ex", text))]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout


class TestAgainstOthers:
    @needs_binutils
    def test_segments_are_readelfs(self, crashed):
        text = subprocess.run(["readelf", "-lW", crashed.core], capture_output=True, text=True, check=True).stdout
        rows = re.findall(r"^  LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+) (0x\w+) (.{3})", text, re.M)
        with open_file(crashed) as core:
            ours = [
                (s.position, s.start, s.stored, s.size, "".join("RWE"[i] if s.flags & bit else " " for i, bit in enumerate((4, 2, 1))))
                for s in core.segments
            ]
            assert core.missing == 0 and not core.truncated
        assert ours == sorted(
            ((int(p, 16), int(a, 16), int(f, 16), int(m, 16), flags) for p, a, f, m, flags in rows), key=lambda row: row[1]
        )
        assert len(ours) > 50

    @needs_gdb
    def test_file_mappings_are_gdbs(self, crashed):
        text = gdb(crashed.core, "info proc mappings")
        # gdb 16 begins its lines without a space.
        rows = re.findall(r"^\s*(0x\w+)\s+(0x\w+)\s+0x\w+\s+(0x\w+)\s+(/.*?)\s*$", text, re.M)
        with open_file(crashed) as core:
            assert [(f.start, f.end, f.offset, f.path) for f in core.files] == [
                (int(a, 16), int(b, 16), int(o, 16), p) for a, b, o, p in rows
            ]
        assert len(rows) > 20

    @needs_gdb
    def test_registers_of_every_thread_are_gdbs(self, crashed):
        text = gdb(crashed.core, "thread apply all -q info registers")
        with open_file(crashed) as core:
            threads = {status.tid: status.registers for status in core.statuses}
        for part in gdb(crashed.core, "thread apply all info registers").split("\nThread ")[1:]:
            tid = int(re.search(r"LWP (\d+)", part)[1])
            values = {name: int(value, 16) for name, value in re.findall(r"^(\w+) +(0x[0-9a-f]+)\b", part, re.M)}
            assert len(values.keys() & threads[tid].keys()) >= 24
            for name in values.keys() & threads[tid].keys():
                assert threads[tid][name] == values[name], (tid, name)
            threads.pop(tid)
        assert not threads and text

    @needs_binutils
    def test_process_auxiliary_vector_and_signal(self, crashed):
        text = subprocess.run(["readelf", "-n", crashed.core], capture_output=True, text=True, check=True).stdout
        with open_file(crashed) as core:
            assert text.count("NT_PRSTATUS") == len(core.statuses) == 7
            assert core.process.pid == crashed.pid
            assert core.process.uid == os.getuid()
            assert core.process.name.decode() == crashed.program.resolve().name[:15]
            assert core.statuses[0].signal == core.signal.number == 11
            assert core.executable() == str(crashed.program.resolve())
            assert core.auxv[6] == os.sysconf("SC_PAGESIZE")

    @needs_gdb
    def test_memory_is_gdbs(self, crashed, tmp_path):
        with open_file(crashed) as core:
            stack = core.statuses[0].registers["rsp"]
            gdb(crashed.core, f"dump binary memory {tmp_path / 'memory'} {stack} {stack + 3000}")
            assert core.read(stack, 3000) == (tmp_path / "memory").read_bytes()
            # Beyond what was dumped there is nothing, wherever it was asked for.
            assert core.read(0, 8) == core.read(1 << 64, 8) == core.read(-1, 8) == b""
            assert word_at(core, 8) is None and string_at(core, 8) is None


class TestArguments:
    HOSTILE = [
        b"plain",
        b"",
        b"<script>alert(1)</script>",
        b"\x1b[31mred",
        b"two\nlines",
        b"\xff\xfe not utf-8",
        "ünï".encode(),
        b"a" * 5000,
    ]

    def test_argv_and_environment_of_any_bytes(self, tmp_path):
        """The kernel's own 80 bytes of NT_PRPSINFO hold none of this."""
        environment = {
            b"PYTHONFAULTHANDLER": b"",
            b"OMP_\xff": b"\x1b]0;x\x07",
            b"OMP_NUM_THREADS": b"3",
            b"MY_SECRET": b"hush",
            b"NOISE": b"=",
        }
        script = "import os, sys; os.execve(sys.argv[1], [os.fsencode(a) for a in sys.argv[1:]], eval(os.environ['WANTED']))"
        kill = "import os; os.kill(os.getpid(), 11)"
        command = [sys.executable, "-c", script, sys.executable, "-c", kill, *self.HOSTILE]
        folder = crash(command, tmp_path, {"WANTED": repr(environment)})
        with open_file(folder) as core:
            arguments, variables = core.arguments_and_environment()
        expected = [text.decode("utf-8", "backslashreplace") for text in self.HOSTILE]
        assert arguments == [sys.executable, "-c", kill, *expected]
        assert sorted(variables) == sorted(f"{n.decode('utf-8', 'backslashreplace')}={v.decode()}" for n, v in environment.items())
        shown = analyze(folder.core, options=Options(gdb=None)).process
        assert shown.environment["OMP_NUM_THREADS"] == "3"
        assert "MY_SECRET" not in shown.environment and "NOISE" not in shown.environment

    def test_secrets_are_not_shown(self, tmp_path):
        secrets = ["--token", "hunter2hunter2", "--api-key=abcdefgh12345678", "postgres://me:letmein@db/x"]
        folder = crash([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)", *secrets], tmp_path)
        document = json.encode(analyze(folder.core, options=Options(gdb=None))).decode()
        assert not re.search("hunter2|abcdefgh1234|letmein", document)
        assert "postgres://" in document

    def test_a_great_many_arguments(self, tmp_path):
        arguments = [str(number) for number in range(3000)]
        folder = crash([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)", *arguments], tmp_path)
        with open_file(folder) as core:
            assert core.arguments_and_environment()[0][3:] == arguments

    def test_a_minimal_core_has_the_stack_from_the_vector_up_to_what_it_points_to(self):
        """The kernel leaves up to two pages free between the random bytes (AT_RANDOM) and the strings (arch_align_stack)."""
        entries, random, strings = {number: number for number in range(3, 20)} | {25: 0x9110}, 0x9110, 0xA800
        words = struct.pack("<5Q", 1, strings, 0, strings + 4, 0)
        vector = synthetic.auxv(entries)[20:]
        stack = bytearray(0x4000)
        stack[0xFD0 - len(words) : 0xFD0 + len(vector)] = words + vector
        stack[strings - 0x8000 : strings - 0x8000 + 9] = b"app\0A=b\0\0"
        core = opened(synthetic.core(EM_X86_64, synthetic.prstatus(7, [0] * 27) + synthetic.auxv(entries), [Load(0x8000, bytes(stack))]))
        core.reads = Pages()
        assert core.arguments_and_environment() == (["app"], ["A=b"])
        assert any(start <= 0x8FD0 and random < end for start, end in core.reads.ranges())


class TestCut:
    """A core of which only the beginning is there."""

    @pytest.fixture
    def data(self) -> bytes:
        return c_crash("no_python.c").core.read_bytes()

    @pytest.mark.slow
    def test_every_length_up_to_the_memory(self, data):
        (count,) = struct.unpack_from("<H", data, 56)
        notes_at, notes_size = struct.unpack_from("<8xQ16xQ", data, 64)
        boundaries = (64, 64 + 56, 64 + 56 * count, notes_at, notes_at + notes_size)
        near = {length for at in boundaries for length in range(max(4, at - 20), at + 20)}
        for length in sorted({*near, *range(4, 64 + 56 * count, 13), *range(notes_at, notes_at + notes_size, 61)}):
            try:
                found = described(data[:length])
            except EvidenceError as error:
                assert length < 64 and "damaged" in str(error)
                continue
            assert found.source.truncated, length
            assert any("truncated" in error.message for error in found.soft_errors), length
            if length >= notes_at + notes_size:
                assert found.signal.name == "SIGSEGV" and len(found.threads) == 2

    def test_what_is_missing_is_counted(self, data):
        whole = opened(data)
        assert whole.missing == 0
        ends = [segment.position + segment.stored for segment in whole.segments if segment.stored]
        assert max(ends) == len(data)
        assert opened(data[:-1]).missing == 1
        assert opened(data[:-5000]).missing == 5000

    def test_memory_that_is_missing_is_not_zeros(self, data):
        core = opened(data[:-6000])
        segment = max((s for s in core.segments if s.stored), key=lambda s: s.position)
        assert len(core.read(segment.start, segment.stored)) <= max(0, segment.stored - 5000)


class TestLies:
    NOTES = synthetic.prstatus(7, range(27)) + synthetic.prpsinfo(7) + synthetic.siginfo(11, 1, 0)
    HUGE = (1 << 64) - 1

    @pytest.mark.parametrize(
        ("offset", "layout"),
        [(32, "<Q"), (40, "<Q"), (54, "<H"), (56, "<H"), (58, "<H"), (60, "<H"), (62, "<H"), *((64 + at, "<Q") for at in range(8, 56, 8))],
    )
    @pytest.mark.parametrize("value", [0, 1, 0x7FFF, 0xFFFF, 1 << 31, 1 << 63, HUGE])
    def test_header_fields(self, offset, layout, value):
        data = bytearray(synthetic.core(EM_X86_64, self.NOTES, [Load(0x1000, bytes(4096))]))
        struct.pack_into(layout, data, offset, value & ((1 << 8 * struct.calcsize(layout)) - 1))
        try:
            described(bytes(data))
        except EvidenceError as error:
            assert "damaged" in str(error)

    @pytest.mark.parametrize("position", [1 << 45, 1 << 60, (1 << 63) - 1, HUGE])
    def test_headers_where_no_file_system_seeks(self, position, tmp_path):
        """A real file: one in memory lets seek anywhere."""
        path = tmp_path / "core"
        data = bytearray(synthetic.core(EM_X86_64, self.NOTES, [Load(0x1000, bytes(4096))]))
        struct.pack_into("<Q", data, 32, position)
        path.write_bytes(data)
        with path.open("rb") as file:
            core = open_core(file, path, len(data))
            assert core is not None and core.segments == []

    @pytest.mark.parametrize("size", [0, 1, 11, 0xFFFF, 0xFFFFFFFF])
    @pytest.mark.parametrize("field", [0, 4, 8])
    def test_note_sizes(self, field, size):
        notes = bytearray(self.NOTES)
        struct.pack_into("<I", notes, field, size)
        described(synthetic.core(EM_X86_64, bytes(notes)))

    @pytest.mark.parametrize("count", [0, 2, 1 << 20, 1 << 63, HUGE])
    @pytest.mark.parametrize("page", [0, 4096, HUGE])
    def test_file_note(self, count, page):
        rows = [(0x1000, 0x2000, 0, b"/lib/a.so"), (0x3000, 0x1000, self.HUGE, b"/lib/\xff\n.so"), (self.HUGE, self.HUGE, self.HUGE, b"")]
        described(
            synthetic.core(EM_X86_64, self.NOTES + synthetic.file_note(rows, page, count), [Load(0x1000, b"\x7fELF" + bytes(4092), 5)])
        )

    def test_no_notes(self):
        found = described(synthetic.core(EM_X86_64, b"", [Load(0x1000, bytes(64))]))
        assert not found.threads and found.signal is None
        assert [error.message for error in found.soft_errors] == ["the core contains no threads: its notes are missing or damaged"]

    def test_no_note_segment(self):
        data = synthetic.header(EM_X86_64, 1) + synthetic.program_header(1, 6, 120, 0x1000, 8, 8) + bytes(8)
        assert described(data).soft_errors

    @pytest.mark.slow
    def test_many_note_segments_over_one_range(self):
        """Each read would be the whole file again."""
        data = synthetic.header(EM_X86_64, 2000)
        body = bytes(1 << 20)
        table = b"".join(synthetic.program_header(4, 0, 64 + 56 * 2000, 0, len(body), 0) for _ in range(2000))
        core = opened(data + table + body)
        assert not core.statuses

    def test_more_segments_than_the_header_can_count(self):
        """Their number stands in section header 0 then (PN_XNUM)."""
        loads = [Load(0x10000 * number, b"", 4, 4096) for number in range(1, 66001)]
        data = synthetic.core(EM_X86_64, self.NOTES, loads, many=True)
        core = opened(data)
        assert len(core.segments) == 66000
        assert core.statuses[0].tid == 7
        assert core.segment(0x10000 * 66000 + 5) == core.segments[-1]

    def test_modules_that_begin_below_zero(self):
        rows = [(0x1000, 0x2000, 1 << 40, b"/lib/a.so"), (0x5000, 0x6000, 0, b"/lib/b.so")]
        core = opened(
            synthetic.core(EM_X86_64, self.NOTES + synthetic.file_note(rows), [Load(0x1000, bytes(4096), 5), Load(0x5000, bytes(4096), 5)])
        )
        assert [(module.path, module.base) for module in loaded_modules(core)] == [("/lib/b.so", 0x5000)]

    @pytest.mark.slow
    @given(st.data())
    def test_damage_anywhere(self, data):
        rows = [(0x1000, 0x2000, 0, b"/lib/a.so"), (0x2000, 0x3000, 1, b"/lib/a.so")]
        whole = bytearray(
            synthetic.core(
                EM_X86_64,
                self.NOTES + synthetic.auxv({3: 0x1040, 25: 0x9000}) + synthetic.file_note(rows),
                [Load(0x1000, b"\x7fELF\2\1" + bytes(4090), 5), Load(0x9000, bytes(256))],
            )
        )
        for _ in range(data.draw(st.integers(1, 8))):
            at = data.draw(st.integers(4, len(whole) - 1))
            whole[at : at + 8] = data.draw(st.binary(min_size=1, max_size=8))
        with contextlib.suppress(EvidenceError):
            described(bytes(whole[: data.draw(st.integers(64, len(whole)))]))

    def test_a_segment_that_ends_beyond_the_last_address(self):
        """It ends there: the report told of a mapping that ended before it began."""
        start = (1 << 64) - 0x2000
        data = synthetic.core(EM_X86_64, self.NOTES, [Load(start, bytes(0x1000), 5, size=0x9000)])
        (one,) = opened(data).mappings()
        assert (one.start, one.end) == (start, (1 << 64) - 1)
        described(data)

    def test_files_that_no_segment_tells_of(self):
        """What was mapped is known from NT_FILE, where the headers of the segments are cut off."""
        rows = [(0x1000, 0x2000, 0, b"/lib/a.so"), (0x5000, 0x6000, 1, b"/lib/b.so")]
        core = opened(synthetic.core(EM_X86_64, self.NOTES + synthetic.file_note(rows), [Load(0x1000, bytes(4096), 5)]))
        assert [(one.start, one.end, one.permissions, one.path, one.offset) for one in core.mappings()] == [
            (0x1000, 0x2000, "r-x", "/lib/a.so", 0),
            (0x5000, 0x6000, None, "/lib/b.so", 4096),
        ]


class TestForeign:
    def test_aarch64(self, tmp_path, monkeypatch):
        """No such gdb here, no such registers: the notes still tell the story."""
        path = tmp_path / "core"
        path.write_bytes(synthetic.aarch64())
        monkeypatch.setattr(debugger, "MULTIARCH", "gdb-of-no-such-name")
        found = analyze(path)
        assert found.process.architecture == "aarch64"
        assert (found.process.pid, found.process.name, found.process.executable) == (4242, "server", "/usr/bin/server")
        assert found.process.argv == ("./server", "--port", "80")
        assert (found.signal.name, found.signal.code_name, found.signal.address) == ("SIGSEGV", "SEGV_MAPERR", 0x18)
        assert [thread.tid for thread in found.threads] == [4242, 4243]
        assert found.thread.registers["pc"] == 0xAAAA00001234
        assert found.thread.registers["x3"] == 0x30
        assert [instruction.text for instruction in found.instructions if instruction.faulting] == ["ldr x0, [x1, #0x18]"]
        assert found.soft_errors

    def test_unknown_architecture(self):
        found = described(synthetic.core(synthetic.EM_PPC64, synthetic.prstatus(7, [])))
        assert found.process.architecture == "EM_PPC64"

    def test_other_files_are_not_ours(self):
        assert open_core(io.BytesIO(b"Fatal Python error"), Path("log"), 18) is None
        with pytest.raises(EvidenceError, match="an executable or a shared library, not a core"):
            opened(synthetic.header(EM_X86_64, 0, kind=synthetic.ET_DYN))
        with pytest.raises(EvidenceError, match="GPU core"):
            opened(synthetic.header(190, 0))
        with pytest.raises(EvidenceError, match="header is damaged"):
            opened(b"\x7fELF" + bytes(60))
