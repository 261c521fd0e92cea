"""gdb unwinds through a twin as through its original, and reads no symbols from it."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from crashkit.elf.file import open_elf, read_build_id
from crashkit.elf.twin import write_twin
from crashkit.evidence.core.core import open_core
from crashkit.evidence.core.modules import loaded_modules
from crashkit.evidence.input import open_input
from tests.crashes import NO_GDB, an_interpreter, python_crash
from tests.debugger.libraries import library

WALK = """
import gdb
# gdb gives them in any order: one of hashed addresses.
for thread in sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num):
    thread.switch()
    frame = gdb.newest_frame()
    while frame:
        # Inlined and tail-called functions come from debug info.
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            print("pc", hex(frame.pc()))
        frame = frame.older()
"""


@pytest.mark.parametrize("kind", [pytest.param("torch", marks=pytest.mark.torch), "python", "libc"])
def test_twin_is_small_and_keeps_what_unwinding_needs(kind: str, tmp_path: Path) -> None:
    original = library(kind)
    twin = write_twin(original, tmp_path)
    assert twin and stat.S_IMODE(twin.stat().st_mode) == 0o600
    assert twin.stat().st_size == original.stat().st_size
    before, after = open_elf(original), open_elf(twin)
    assert before and after
    unwind = before.section(".eh_frame")
    assert unwind and after.section(".eh_frame") == unwind
    for section in (unwind, before.section(".eh_frame_hdr")):
        assert section
        with original.open("rb") as left, twin.open("rb") as right:
            left.seek(section.offset), right.seek(section.offset)
            assert left.read(section.size) == right.read(section.size)
    assert read_build_id(twin) == read_build_id(original)
    assert twin.stat().st_blocks * 512 < unwind.size + (8 << 20) and twin.stat().st_blocks * 512 < original.stat().st_size / 2
    assert {section.kind for section in after.sections if section.name in (".symtab", ".dynsym", ".strtab")} <= {0}


def test_names_do_not_collide(tmp_path: Path) -> None:
    first, second = write_twin(library("libc"), tmp_path), write_twin(library("libc"), tmp_path)
    assert first and second and first != second


@pytest.mark.parametrize("content", [b"", b"text", b"\x7fELF" + bytes(60)])
def test_what_has_no_unwind_tables_has_no_twin(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert write_twin(tmp_path / "file", tmp_path) is None


@pytest.mark.slow
def test_gdb_finds_the_same_frames_through_twins(tmp_path: Path) -> None:
    gdb = shutil.which("gdb")
    if gdb is None:
        pytest.skip(NO_GDB)
    made = python_crash("threads.py", python=an_interpreter())
    with open_input(made.core) as opened:
        core = open_core(opened.file, made.core, opened.size)
        assert core
        modules = [module for module in loaded_modules(core) if Path(module.path).is_file()]

    def program_counters(twins: bool) -> list[str]:
        options = ["-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-solib-add off", "-ex", f"core-file {made.core}"]
        for module in modules:
            # libc is not twinned by us either: a thread can stand in its hand-written code, where gdb reads instructions.
            twin = twins and not module.path.endswith("/libc.so.6")
            file = write_twin(Path(module.path), tmp_path) if twin else Path(module.path)
            options += ["-ex", f"add-symbol-file {file} -o {module.bias}"] if file else []
        command = [gdb, *options, "-ex", f"python\n{WALK}"]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        return re.findall(r"^pc (0x[0-9a-f]+)$", run.stdout, re.M)

    through_twins = program_counters(twins=True)
    assert len(through_twins) > 20
    assert through_twins == program_counters(twins=False)
