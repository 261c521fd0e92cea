"""gdb gets of the unwind tables of large modules what the stacks need, and all of them where that was not enough."""

from __future__ import annotations

import random
import re
import struct
import subprocess
from array import array
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from crashkit.debugger.gdb import debugger
from crashkit.debugger.gdb.debugger import GdbDebugger
from crashkit.elf.file import open_elf
from crashkit.elf.twin import write_twin
from crashkit.elf.unwind_part import part_for
from crashkit.elf.unwind_table import UnwindTable
from crashkit.evidence.core import describe, stack_words
from crashkit.evidence.core.core import open_core
from crashkit.evidence.core.modules import loaded_modules
from crashkit.evidence.core.stack_words import words_into
from crashkit.evidence.core.walk import walk
from crashkit.evidence.input import open_input
from crashkit.evidence.module_files import ModuleFile
from crashkit.model import Crash, NativeFrame
from crashkit.pipeline import analyze
from tests.crashes import an_interpreter, needs_gdb, python_crash
from tests.debugger.libraries import library, random_code_addresses

SEED = random.randrange(1 << 32)


def entries(path: Path) -> dict[str, str]:
    """The unwinding of each function, as readelf tells it, by the function's range."""
    text = subprocess.run(["readelf", "--debug-dump=frames-interp", "-W", path], capture_output=True, text=True).stdout
    section = text.partition("Contents of the .eh_frame section")[2].partition("Contents of the .")[0]
    found = re.findall(r"^\S+ \S+ \S+ FDE cie=\S+ pc=(\S+)\n((?:.+\n)*)", section, re.M)
    return dict(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [pytest.param("torch", marks=[pytest.mark.torch, pytest.mark.long]), pytest.param("python", marks=pytest.mark.long), "libc", "ld.so"],
)
def test_a_part_unwinds_as_the_whole(kind: str, tmp_path: Path) -> None:
    original = library(kind)
    table, elf = UnwindTable.load(original), open_elf(original)
    section = elf.section(".eh_frame") if elf else None
    assert section
    addresses = random_code_addresses(original, 40, SEED)
    part = part_for(table, section.address, addresses)
    assert part and len(part.data) < section.size
    twin = write_twin(original, tmp_path, part.data)
    assert twin and twin.stat().st_blocks * 512 < 4 << 20
    functions = {one for address in addresses for near in (address - 1, address) if (one := table.function(near))}
    assert part.starts == {one.start for one in functions} != set()
    ours, theirs = entries(twin), entries(original)
    assert ours.keys() == {f"{one.start:016x}..{one.stop:016x}" for one in functions}, f"seed {SEED}"
    assert ours == {key: theirs[key] for key in ours}, f"seed {SEED}"


def test_nothing_is_needed_for_addresses_without_entries(tmp_path: Path) -> None:
    part = part_for(UnwindTable.load(library("libc")), 0x1000, [0, 1, 1 << 62])
    assert part and part.data == bytes(4) and part.starts == frozenset()


def test_what_cannot_be_moved_has_no_part() -> None:
    table = UnwindTable.load(library("libc"))
    address = next(one for one in random_code_addresses(library("libc"), 50, SEED) if table.covers(one))
    assert part_for(table, 0x1000, [address])
    assert part_for(table, 1 << 62, [address]) is None  # too far for 32 bits


@needs_gdb
@pytest.mark.slow
class TestStacks:
    @pytest.fixture
    def core(self) -> Path:
        return python_crash("threads.py", python=an_interpreter()).core

    @pytest.fixture
    def begun(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The gdbs that were started."""
        programs: list[str] = []
        begin = GdbDebugger._begin
        monkeypatch.setattr(GdbDebugger, "_begin", lambda self, program: programs.append(program) or begin(self, program))
        # As if every module were a large one, but for the C library, in whose hand-written code gdb reads instructions.
        monkeypatch.setattr(debugger, "BIG", 0)
        monkeypatch.setattr(debugger, "has_debug_info", _is_libc)
        return programs

    def test_they_are_the_same(self, core: Path, begun: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        in_part = analyze(core)
        assert begun == ["gdb"]
        monkeypatch.setattr(describe, "words_into", lambda *_: None)
        whole = analyze(core)
        assert stacks(in_part) == stacks(whole) and sum(map(len, stacks(whole))) > 30

    @pytest.mark.parametrize("kept", [0, 3])
    def test_what_was_not_on_the_stacks_is_unwound_with_all_tables(
        self, core: Path, begun: list[str], kept: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As the frames of a handler's own stack."""

        def few(*arguments: Any) -> dict[str, tuple[int, ...]]:
            return {path: words[:kept] for path, words in (words_into(*arguments) or {}).items()}

        usual = analyze(core)
        begun.clear()
        monkeypatch.setattr(describe, "words_into", few)
        again = analyze(core)
        assert begun == ["gdb", "gdb"]
        assert untimed(again) == untimed(usual)


def _is_libc(file: ModuleFile) -> bool:
    return file.path is not None and file.path.name.startswith(("libc.", "ld-"))


def stacks(crash: Crash) -> list[list[tuple[Any, ...]]]:
    return [[(one.pc, one.function, one.trust) for one in thread.frames if isinstance(one, NativeFrame)] for thread in crash.threads]


def untimed(crash: Crash) -> Crash:
    return replace(crash, seconds={})


class TestWords:
    @pytest.fixture
    def core(self) -> Any:
        made = python_crash("threads.py", python=an_interpreter())
        with open_input(made.core) as opened:
            yield open_core(opened.file, made.core, opened.size)

    def test_every_return_address_is_among_them(self, core: Any) -> None:
        modules = tuple(loaded_modules(core))
        registers = [thread.registers for thread in core.threads()]
        found = words_into(core, modules, registers)
        files = {module.path: ModuleFile("found", Path(module.path)) for module in modules}
        frames = [frame for known in registers for frame in walk(core, modules, files, known)]
        assert found and len(frames) > 20
        assert [frame for frame in frames if frame.module and frame.pc not in found[frame.module.path]] == []

    def test_a_deep_stack_is_not_searched(self, core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        modules, registers = tuple(loaded_modules(core)), [thread.registers for thread in core.threads()]
        for limit in ("_MOST_BYTES", "_MOST_OF_ALL"):
            with monkeypatch.context() as patched:
                patched.setattr(stack_words, limit, 1024)
                assert words_into(core, modules, registers) is None

    def test_it_is_not_kept_for_a_minimal_core(self, core: Any) -> None:
        modules, registers = tuple(loaded_modules(core)), [thread.registers for thread in core.threads()]
        core.reads = type("Reads", (), {"add": lambda *_: pytest.fail("noted")})()
        assert words_into(core, modules, registers)

    def test_damaged_registers_lead_nowhere(self, core: Any) -> None:
        modules = tuple(loaded_modules(core))
        pointer, descriptor = core.architecture.stack_pointer, core.architecture.thread_pointer
        for value in (0, 1, (1 << 64) - 1, modules[0].base):
            assert words_into(core, modules, [{}, {pointer: value}, {pointer: value, descriptor: value + 1}]) is not None
        words = array("Q", struct.pack("<Q", modules[0].base))
        assert words_into(core, modules[:1], [{pointer: words[0]}]) is not None
