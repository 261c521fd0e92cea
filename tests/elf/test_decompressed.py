"""Debug files with their sections decompressed: what objcopy makes of them is the truth."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from crashkit.elf import decompressed
from crashkit.elf.decompressed import write_decompressed
from crashkit.elf.file import open_elf, read_build_id
from tests.crashes import NO_COMPILER, needs_binutils

SOURCE = "int twice(int number) { int doubled = number * 2; return doubled; }\nint main(void) { return twice(21) - 42; }\n"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    (folder / "twice.c").write_text(SOURCE)
    compiler = shutil.which("gcc") or pytest.skip(NO_COMPILER)
    command = [compiler, "-g3", "-Wl,--build-id", "-Wl,--compress-debug-sections=zlib", "-o", "twice", "twice.c"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "twice"


def contents(path: Path, section: str) -> bytes:
    elf = open_elf(path)
    found = elf.section(section) if elf is not None else None
    assert found is not None and not found.flags & 0x800
    return path.read_bytes()[found.offset : found.offset + found.size]


@needs_binutils
def test_every_section_is_there(packed: Path, tmp_path: Path) -> None:
    truth, copy = tmp_path / "truth", tmp_path / "copy"
    subprocess.run(["objcopy", "--decompress-debug-sections", packed, truth], check=True)
    assert write_decompressed(packed, copy)
    elf = open_elf(packed)
    assert elf is not None
    names = [section.name for section in elf.sections if section.flags & 0x800]
    assert ".debug_info" in names
    for name in (*names, ".text", ".symtab", ".debug_aranges"):
        assert contents(copy, name) == contents(truth, name)
    assert read_build_id(copy) == read_build_id(packed) is not None
    assert subprocess.run([copy_of_program(copy)], check=False).returncode == 0


def copy_of_program(copy: Path) -> Path:
    """It still runs: nothing but the compressed sections has moved."""
    copy.chmod(0o700)
    return copy


def test_what_is_not_compressed_is_not_copied(packed: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    subprocess.run(["objcopy", "--decompress-debug-sections", packed, plain], check=True)
    assert not write_decompressed(plain, tmp_path / "copy") and not (tmp_path / "copy").exists()
    (tmp_path / "text").write_text("no ELF file")
    assert not write_decompressed(tmp_path / "text", tmp_path / "copy")


def test_what_is_too_large_is_not_copied(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompressed, "_MOST_BYTES", 1000)
    assert not write_decompressed(packed, tmp_path / "copy")


@pytest.mark.parametrize("damage", ["content", "size", "kind", "align"])
def test_a_damaged_section_is_no_copy(packed: Path, tmp_path: Path, damage: str) -> None:
    elf = open_elf(packed)
    section = elf.section(".debug_info") if elf is not None else None
    assert section is not None
    data, at = bytearray(packed.read_bytes()), section.offset
    if damage == "content":
        data[at + 24 : at + section.size] = bytes(section.size - 24)
    else:
        field = {"kind": 0, "size": 8, "align": 16}[damage]
        data[at + field : at + field + 4] = (1 << 20 | 0xFFF).to_bytes(4, "little")
    hurt = tmp_path / "hurt"
    hurt.write_bytes(data)
    try:
        assert not write_decompressed(hurt, tmp_path / "copy")
    except OSError as error:
        assert damage in ("content", "size") and "compressed section" in str(error)
