"""The one reader of ELF headers and notes: against pyelftools on real files, and against headers that lie."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from crashkit.elf import core_head, file, notes
from crashkit.elf.headers import MOST_HEADERS, Read, bounded, of_bytes, of_descriptor, read_header, read_program_headers, read_sections
from crashkit.errors import EvidenceError
from crashkit.evidence.core import core as core_reader
from crashkit.evidence.core import modules
from crashkit.evidence.core.core import Core
from crashkit.evidence.core.modules import loaded_modules
from tests.evidence import synthetic
from tests.evidence.synthetic import Load

ELF_FILES = sorted(
    {
        path.resolve()
        for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/aarch64-linux-gnu/lib", "/usr/bin")
        for path in Path(folder).glob("*")
        if path.is_file() and os.access(path, os.R_OK)
    }
)[::9][:150]


def counted(read: Read) -> tuple[Read, list[int]]:
    sizes: list[int] = []

    def one(offset: int, size: int) -> bytes:
        data = read(offset, size)
        sizes.append(len(data))
        return data

    return one, sizes


def test_real_files_are_read_as_pyelftools_reads_them():
    compared = 0
    for path in ELF_FILES:
        with path.open("rb") as opened:
            if opened.read(4) != b"\x7fELF":
                continue
            theirs = ELFFile(opened)
            segments = [(s["p_flags"], s["p_offset"], s["p_vaddr"], s["p_filesz"], s["p_memsz"]) for s in theirs.iter_segments()]
            sections = [(s.name, s["sh_flags"], s["sh_addr"], s["sh_offset"], s["sh_size"]) for s in theirs.iter_sections()]
            # Go's linker has a segment for its own note only.
            holders = [*theirs.iter_segments("PT_NOTE"), *theirs.iter_sections("SHT_NOTE")]
            ids = [note["n_desc"] for one in holders for note in one.iter_notes() if note["n_type"] == "NT_GNU_BUILD_ID"]
            entry, machine = theirs["e_entry"], theirs.get_machine_arch()
        ours = file.open_elf(path)
        assert ours is not None
        assert [one[1:] for one in ours.program_headers] == segments, path
        assert [(s.name, s.flags, s.address, s.offset, s.size) for s in ours.sections] == sections, path
        assert (ours.header.entry, ours.wide) == (entry, theirs.elfclass == 64)
        assert file.read_build_id(path) == (ids[0] if ids else None), path
        assert machine
        compared += 1
    assert compared > 20


# Where each field of a 64-bit header lies, and what it may claim.
FIELDS = {"e_phoff": (32, "Q"), "e_shoff": (40, "Q"), "e_phentsize": (54, "H"), "e_phnum": (56, "H"), "e_shentsize": (58, "H")}
FIELDS |= {"e_shnum": (60, "H"), "e_shstrndx": (62, "H")}
VALUES = {"H": (0, 1, 31, 57, 0x7FFF, 0xFFFE, 0xFFFF), "Q": (0, 1, 63, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)}
# Of each program header and section: an offset and a size.
TABLES = {"p_offset": 64 + 8, "p_filesz": 64 + 32, "sh_offset": 64 + 56 * 3 + 64 + 24, "sh_size": 64 + 56 * 3 + 64 + 32}
LIES = [(name, value) for name, (_, kind) in FIELDS.items() for value in VALUES[kind]]
LIES += [(name, value) for name in TABLES for value in VALUES["Q"]]


def honest() -> bytes:
    """A core, and as well an object with three program headers, two sections and a build-id."""
    build_id = synthetic.note(b"GNU", 3, bytes(range(20)))
    told = build_id + synthetic.prstatus(7, range(27)) + synthetic.prpsinfo(7)
    sections_at = 64 + 56 * 3
    notes_at = sections_at + 128
    head = synthetic.header(synthetic.EM_X86_64, 3, sections=sections_at)
    table = synthetic.program_header(4, 0, notes_at, 0, len(told), 0)
    table += synthetic.program_header(1, 5, notes_at + len(told), 0x10000, 4096, 4096)
    table += synthetic.program_header(1, 6, notes_at + len(told) + 4096, 0x20000, 64, 64)
    names = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, notes_at, 1, 0, 0, 0, 0)
    section = struct.pack("<IIQQQQIIQQ", 0, 7, 0, 0, notes_at, len(told), 0, 0, 0, 0)
    head = head[:60] + struct.pack("<HH", 2, 0)
    return head + table + names + section + told + bytes(4096 + 64)


def lying(name: str, value: int) -> bytes:
    data = bytearray(honest())
    if name in FIELDS:
        struct.pack_into("<" + FIELDS[name][1], data, FIELDS[name][0], value)
    else:
        struct.pack_into("<Q", data, TABLES[name], value)
    return bytes(data)


def test_the_honest_one_is_read_in_full(tmp_path):
    path = tmp_path / "honest"
    path.write_bytes(honest())
    elf = file.open_elf(path)
    assert (len(elf.program_headers), len(elf.sections)) == (3, 2)
    assert file.read_build_id(path) == bytes(range(20)).hex()
    with path.open("rb") as opened:
        assert core_head.read_head(opened.fileno()).pid == 7


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), LIES)
def test_lies_cost_no_more_than_a_look_may(name, value, tmp_path, monkeypatch):
    """A sparse file, so that there are bytes behind every offset that a file system can hold."""
    monkeypatch.setattr(core_reader, "_MOST_NOTE_BYTES", 4 << 20)
    path = tmp_path / "lying"
    path.write_bytes(lying(name, value))
    os.truncate(path, 64 << 30)
    began = time.process_time()
    with path.open("rb") as opened:
        read, sizes = counted(of_descriptor(opened.fileno()))
        header = read_header(read)
        assert header is not None
        list(read_program_headers(bounded(read, file.MOST_BYTES), header))
        read_sections(bounded(read, file.MOST_BYTES), header)
        assert sum(sizes) <= 2 * file.MOST_BYTES + 64
        core_head.read_head(opened.fileno())
        with Core(path.open("rb"), path, 64 << 30) as core:
            assert core.architecture.name == "x86_64"
    file.read_build_id(path)
    elf = file.open_elf(path)
    assert len(elf.program_headers) <= MOST_HEADERS and len(elf.sections) <= MOST_HEADERS
    assert time.process_time() - began < 5


@pytest.mark.parametrize("value", [0, 1, 57, 0xFFFF])
def test_the_size_of_entries_is_not_believed(value):
    """A table that claims entries of 65,535 bytes is read as the table that it is."""
    header = read_header(of_bytes(lying("e_phentsize", value)))
    assert [one.kind for one in read_program_headers(of_bytes(lying("e_phentsize", value)), header)] == [4, 1, 1]


def test_a_bounded_reader_stops():
    read = bounded(of_bytes(bytes(1000)), 100)
    assert [len(read(at, 60)) for at in (0, 60, 120, 180)] == [60, 40, 0, 0]
    everywhere = bounded(lambda _offset, size: bytes(size), 9)
    assert everywhere(-1, 4) == everywhere(1 << 63, 4) == everywhere(0, -1) == b""
    assert len(everywhere((1 << 63) - 1, 4)) == 4


def test_modules_in_memory_share_one_allowance(monkeypatch):
    """Twenty thousand modules, each with notes of 16 KiB: what is read of all of them is bounded."""
    monkeypatch.setattr(modules, "MOST_BYTES", 300_000)
    page = bytearray(lying("e_phnum", 0x7FFF))
    rows = [(0x100000 * n, 0x100000 * n + 0x10000, 0, b"/lib/a%d.so" % n) for n in range(1, 200)]
    loads = [Load(row[0], bytes(page).ljust(0x10000, b"\1"), 5) for row in rows]
    data = synthetic.core(synthetic.EM_X86_64, synthetic.prstatus(7, range(27)) + synthetic.file_note(rows), loads)
    with Core(io.BytesIO(data), Path("core"), len(data)) as core:
        read, sizes = counted(core.read)
        monkeypatch.setattr(core, "read", read)
        assert len(loaded_modules(core)) == 199
    assert 0 < sum(sizes) <= 300_000


def test_a_build_id_that_is_cut_off_is_none():
    note = synthetic.note(b"GNU", 3, bytes(range(1, 21)))
    assert notes.build_id(note, "<") == bytes(range(1, 21)).hex()
    assert [notes.build_id(note[:length], "<") for length in range(len(note))] == [None] * len(note)
    assert notes.build_id(synthetic.note(b"Go", 3, b"x") + note, "<") == bytes(range(1, 21)).hex()


def test_a_head_with_an_untold_number_of_segments_is_not_there_yet(tmp_path):
    """The section header with the number is the last thing that the kernel writes: until then the core is not whole."""
    told = synthetic.prstatus(7, range(27)) + synthetic.prpsinfo(7)
    data = synthetic.core(synthetic.EM_X86_64, told, [Load(0x1000, bytes(64))], many=True)
    unfinished = bytearray(data)
    struct.pack_into("<Q", unfinished, 40, len(data))
    for name, content, pid in (("whole", data, 7), ("unfinished", bytes(unfinished), None)):
        path = tmp_path / name
        path.write_bytes(content)
        with path.open("rb") as opened:
            head = core_head.read_head(opened.fileno())
            assert (head.pid if head else None) == pid
            assert head is None or head.expected == len(data)


def test_sections_that_the_header_cannot_count():
    data = bytearray(honest())
    struct.pack_into("<HH", data, 60, 0, 0xFFFF)
    section_0 = 64 + 56 * 3
    struct.pack_into("<Q", data, section_0 + 32, 2)
    struct.pack_into("<I", data, section_0 + 40, 1)
    header = read_header(of_bytes(bytes(data)))
    assert [section.kind for section in read_sections(of_bytes(bytes(data)), header)] == [3, 7]


def test_big_endian_and_32_bit():
    """Of a machine that nobody here has: a header and one segment."""
    head = b"\x7fELF\1\2\1" + bytes(9) + struct.pack(">HHIIIIIHHHHHH", 4, 20, 1, 0x99, 52, 0, 0, 52, 32, 1, 40, 0, 0)
    data = head + struct.pack(">IIIIIIII", 1, 84, 0x1000, 0, 4, 8, 5, 4) + b"abcd"
    header = read_header(of_bytes(data))
    assert (header.word, header.kind, header.machine, header.entry) == ((4, ">"), 4, 20, 0x99)
    assert [tuple(one) for one in read_program_headers(of_bytes(data), header)] == [(1, 5, 84, 0x1000, 4, 8)]
    for length in range(52):
        assert read_header(of_bytes(data[:length])) is None
    with pytest.raises(EvidenceError, match="damaged"):
        Core(io.BytesIO(data[:40]), Path("core"), 40)


def test_the_supervisors_reader_imports_neither_pyelftools_nor_msgspec():
    script = "import sys, crashkit.elf.core_head; print(*(m for m in sys.modules if m.startswith(('elftools', 'msgspec', 'capstone'))))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert run.stdout.strip() == ""
