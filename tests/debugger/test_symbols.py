"""Names are those that gdb gives."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from crashkit.elf.file import open_elf
from crashkit.elf.symbols import SymbolTable
from tests.crashes import NO_COMPILER
from tests.debugger.libraries import gdb_names, library, random_code_addresses

SEED = random.randrange(1 << 32)

ASSEMBLY = """
    .text
    .globl sized_global
    .type sized_global, @function
    .type local_alias, @function
sized_global:
local_alias:
    .zero 16
inner_label:
    .zero 16
    .size sized_global, 32
    .size local_alias, 32
    .zero 32
    .globl first_unsized
first_unsized:
    .zero 16
    .globl outer
    .type outer, @function
outer:
    .zero 16
    .globl nested
    .type nested, @function
nested:
    .zero 16
    .size nested, 16
    .zero 16
    .size outer, 48
    .globl chosen
    .type chosen, @gnu_indirect_function
    .globl resolver
    .type resolver, @function
resolver:
chosen:
    .zero 16
    .size chosen, 16
    .size resolver, 16
    .globl table
    .type table, @object
table:
    .zero 16
    .size table, 16
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["libc", "ld.so", "python", "stripped python", "debug file", pytest.param("torch", marks=pytest.mark.torch)]
)
def test_names_are_those_of_gdb(kind: str) -> None:
    path = library(kind)
    addresses = random_code_addresses(path, 1500, SEED)
    ours = {address: symbol.name for address, symbol in SymbolTable.load(path).names(addresses).items()}
    theirs = gdb_names(path, addresses)
    assert len(theirs) > 20
    assert ours == theirs, f"seed {SEED}"


@pytest.fixture(scope="module")
def assembled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("gcc"):
        pytest.skip(NO_COMPILER)
    folder = tmp_path_factory.mktemp("assembly")
    (folder / "a.s").write_text(ASSEMBLY)
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", folder / "a.so", folder / "a.s"], check=True)
    return folder / "a.so"


def text_of(path: Path) -> int:
    elf = open_elf(path)
    section = elf.section(".text") if elf else None
    assert section
    return section.address


def test_every_address_of_overlapping_unsized_and_aliased_symbols_is_named_as_gdb_does(assembled: Path) -> None:
    start = text_of(assembled)
    # The last 16 bytes are data among the code: no function.
    addresses = list(range(start, start + 160))
    ours = {address: symbol.name for address, symbol in SymbolTable.load(assembled).names(addresses).items()}
    theirs = gdb_names(assembled, addresses)
    data = [address for address in addresses if theirs.get(address) == "table"]
    assert len(data) == 16 and not ours.keys() & set(data)
    assert ours == {address: name for address, name in theirs.items() if name != "table"}
    assert {"sized_global", "first_unsized", "outer", "nested"} <= set(ours.values())


def test_address_before_and_behind_the_code_has_no_name(assembled: Path) -> None:
    table = SymbolTable.load(assembled)
    assert table.names([0, 1, text_of(assembled) - 1, 1 << 40, (1 << 64) - 1]) == {}
    assert table.name(text_of(assembled) + 3) is not None


def test_kind_says_which_table_there_is(assembled: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "-o", stripped, assembled], check=True)
    assert SymbolTable.load(assembled).kind == "table"
    assert SymbolTable.load(stripped).kind == "exports"
    assert SymbolTable.load(Path(__file__)).kind == "none"
    found = SymbolTable.load(stripped).name(text_of(stripped) + 3)
    assert found and found.name == "sized_global"


def test_minidebuginfo_of_a_stripped_library(tmp_path: Path) -> None:
    if not shutil.which("xz"):
        pytest.skip("no xz here: apt-get install xz-utils")
    (tmp_path / "a.c").write_text(
        "static int __attribute__((noinline)) hidden(int x) { return x * x + 7; }\nint seen(int x) { return hidden(x) + 1; }\n"
    )
    library, debug, mini = tmp_path / "a.so", tmp_path / "a.debug", tmp_path / "mini"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, tmp_path / "a.c"], check=True)
    hidden = next(int(line.split()[0], 16) for line in nm(library) if line.endswith(" hidden"))
    seen = next(int(line.split()[0], 16) for line in nm(library) if line.endswith(" seen"))
    # As `find-debuginfo` of rpm does it (gdb manual, "MiniDebugInfo").
    subprocess.run(["objcopy", "--only-keep-debug", library, debug], check=True)
    subprocess.run(["objcopy", "-S", "--remove-section", ".comment", "--keep-symbol=hidden", debug, mini], check=True)
    subprocess.run(["xz", mini], check=True)
    subprocess.run(["strip", library], check=True)
    assert SymbolTable.load(library).name(hidden) is None
    subprocess.run(["objcopy", "--add-section", f".gnu_debugdata={mini}.xz", library], check=True)

    names = SymbolTable.load(library).names([hidden, seen])
    assert (names[hidden].name, names[seen].name) == ("hidden", "seen")


def nm(path: Path) -> list[str]:
    return subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines()


def test_damaged_tables_are_survived(assembled: Path, tmp_path: Path) -> None:
    whole = assembled.read_bytes()
    addresses = range(text_of(assembled), text_of(assembled) + 160, 5)
    generator = random.Random(SEED)
    damaged = tmp_path / "damaged.so"
    for _ in range(300):
        copy = bytearray(whole)
        for _ in range(4):
            copy[generator.randrange(len(copy))] = generator.choice((0, 1, 0x7F, 0xFF))
        # The headers of sections lie at the end.
        copy[generator.randrange(len(copy) - 1500, len(copy))] = generator.choice((0, 1, 0x7F, 0xFF))
        damaged.write_bytes(copy[: generator.choice((len(copy), generator.randrange(1, len(copy))))])
        SymbolTable.load(damaged).names(addresses)
