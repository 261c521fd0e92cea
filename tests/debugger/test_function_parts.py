"""A function's parts in a stripped file, against where the assembler put them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from crashkit import arch
from crashkit.elf.function_parts import parts
from crashkit.elf.symbols import SymbolTable
from crashkit.elf.unwind_table import UnwindTable
from tests.crashes import NO_COMPILER, needs_x86_64

pytestmark = needs_x86_64()
JUMPS = arch.named("x86_64").jumps

# `wanted` jumps into the middle of its moved part, calls `called`, ends by a jump to `next`; `stranger` jumps within itself.
SOURCE = """
.text
.globl wanted, called, next, stranger
.macro function name
\\name:
.cfi_startproc
.endm
function called
    ret
.cfi_endproc
function wanted
    test %edi, %edi
    je moved_middle
back:
    call called
    jmp *%rax
    jmp next
.cfi_endproc
function moved
    nop
moved_middle:
    jmp back
.cfi_endproc
function next
    nop
    ret
.cfi_endproc
function stranger
    nop
1:  jmp 1b
.cfi_endproc
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip(NO_COMPILER)
    folder = tmp_path_factory.mktemp("parts")
    (folder / "a.s").write_text(SOURCE)
    options = ["-shared", "-nostdlib", "-Wl,-Bsymbolic", "-Wl,--eh-frame-hdr"]
    subprocess.run(["gcc", *options, "-o", folder / "a.so", folder / "a.s"], check=True)
    return folder / "a.so"


def addresses(path: Path) -> dict[str, int]:
    table = SymbolTable.load(path)
    names = ("called", "wanted", "moved", "next", "stranger")
    return {name: symbol.start for name in names if (symbol := table.find(name))}


def test_the_part_that_is_jumped_into_is_the_functions_own(library: Path, tmp_path: Path) -> None:
    at = addresses(library)
    assert len(at) == 5
    stripped = tmp_path / "a.so"
    subprocess.run(["strip", "-o", stripped, library], check=True)
    assert "moved" not in addresses(stripped)
    table = UnwindTable.load(stripped)
    assert parts(table, at["wanted"], JUMPS) == {at["wanted"], at["moved"]}
    for name in ("called", "next", "stranger"):
        assert parts(table, at[name], JUMPS) == {at[name]}


def test_where_no_function_starts(library: Path) -> None:
    at = addresses(library)
    table = UnwindTable.load(library)
    assert parts(table, at["wanted"] + 1, JUMPS) == parts(table, 0, JUMPS) == frozenset()
    assert SymbolTable.load(library).find("wante") is None
    assert SymbolTable.load(Path(__file__)).find("wanted") is None
