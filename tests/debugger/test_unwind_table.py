"""The unwind tables cover what readelf lists, and nothing else."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from crashkit.elf.unwind_table import UnwindTable
from tests.debugger.libraries import library, random_code_addresses

SEED = random.randrange(1 << 32)


def readelf_ranges(path: Path) -> list[tuple[int, int]]:
    text = subprocess.run(["readelf", "--debug-dump=frames", "-W", path], capture_output=True, text=True).stdout
    section = text.partition("Contents of the .eh_frame section")[2].partition("Contents of the .debug_frame")[0]
    return [(int(start, 16), int(end, 16)) for start, end in re.findall(r" FDE .* pc=([0-9a-f]+)\.\.([0-9a-f]+)", section)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["libc", "ld.so", "stripped python", "python"])
def test_coverage_is_that_of_readelf(kind: str) -> None:
    path = library(kind)
    ranges = readelf_ranges(path)
    table = UnwindTable.load(path)
    assert table.is_known and len(ranges) > 10
    edges = [address for start, end in ranges[::7] for address in (start - 1, start, end - 1, end)]
    wrong = [
        hex(address)
        for address in edges + random_code_addresses(path, 300, SEED)
        if table.covers(address) != any(start <= address < end for start, end in ranges)
    ]
    assert wrong == [], f"seed {SEED}"
    start, end = ranges[len(ranges) // 2]
    assert table.function(start) == table.function(end - 1) == range(start, end)


def test_code_without_tables_is_not_covered(tmp_path: Path) -> None:
    (tmp_path / "a.s").write_text(".text\n.globl bare\nbare: .zero 64\n.globl framed\nframed: .cfi_startproc\n.zero 64\n.cfi_endproc\n")
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", tmp_path / "a.so", tmp_path / "a.s"], check=True)
    symbols = subprocess.run(["nm", tmp_path / "a.so"], capture_output=True, text=True, check=True).stdout
    address = {line.split()[2]: int(line.split()[0], 16) for line in symbols.splitlines()}
    table = UnwindTable.load(tmp_path / "a.so")
    assert table.covers(address["framed"]) and not table.covers(address["bare"])


def test_file_without_tables_covers_nothing(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no ELF")
    (tmp_path / "empty").touch()
    for path in (tmp_path / "text", tmp_path / "empty"):
        table = UnwindTable.load(path)
        assert not table.is_known and not table.covers(0x1000)


@pytest.mark.slow
def test_damaged_tables_are_survived(tmp_path: Path) -> None:
    whole = library("ld.so").read_bytes()
    addresses = random_code_addresses(library("ld.so"), 20, SEED)
    generator = random.Random(SEED)
    damaged = tmp_path / "damaged.so"
    for _ in range(200):
        copy = bytearray(whole)
        for _ in range(2000):
            copy[generator.randrange(0x40, len(copy))] = generator.randrange(256)
        damaged.write_bytes(copy[: generator.choice((len(copy), generator.randrange(64, len(copy))))])
        table = UnwindTable.load(damaged)
        for address in addresses:
            table.covers(address)
