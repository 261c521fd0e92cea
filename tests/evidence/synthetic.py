"""ELF cores made from bytes: architectures that this machine is not, and damage that no kernel does."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crashkit.elf.notes import AT_ENTRY, AT_PHDR, NT_AUXV, NT_FILE, NT_PRPSINFO, NT_PRSTATUS, NT_SIGINFO

EM_X86_64, EM_AARCH64, EM_PPC64 = 62, 183, 21
ET_CORE, ET_DYN = 4, 3


class Load(NamedTuple):
    start: int
    data: bytes = b""
    flags: int = 6
    size: int | None = None
    """Of the address space; None: as much as there is data."""


def note(name: bytes, kind: int, payload: bytes) -> bytes:
    def padded(data: bytes) -> bytes:
        return data + bytes(-len(data) % 4)

    return struct.pack("<III", len(name) + 1, len(payload), kind) + padded(name + b"\0") + padded(payload)


def prstatus(tid: int, registers: Sequence[int], signal: int = 11) -> bytes:
    head = struct.pack("<iiihxx", signal, 0, 0, signal) + bytes(16) + struct.pack("<i", tid)
    return note(b"CORE", NT_PRSTATUS, head.ljust(112, b"\0") + struct.pack(f"<{len(registers)}Q", *registers) + bytes(8))


def prpsinfo(pid: int, name: bytes = b"server", arguments: bytes = b"./server --port 80") -> bytes:
    return note(b"CORE", NT_PRPSINFO, struct.pack("<8xQIIiiii16s80s", 0, 1000, 1000, pid, 1, pid, pid, name, arguments))


def siginfo(number: int, code: int, address: int) -> bytes:
    return note(b"CORE", NT_SIGINFO, struct.pack("<iiiiQ", number, 0, code, 0, address).ljust(128, b"\0"))


def auxv(entries: dict[int, int]) -> bytes:
    return note(b"CORE", NT_AUXV, b"".join(struct.pack("<QQ", *pair) for pair in {**entries, 0: 0}.items()))


def file_note(rows: Sequence[tuple[int, int, int, bytes]], page: int = 4096, count: int | None = None) -> bytes:
    """Rows of start, end, page offset, path."""
    head = struct.pack("<QQ", len(rows) if count is None else count, page)
    return note(
        b"CORE",
        NT_FILE,
        head + b"".join(struct.pack("<QQQ", *row[:3]) for row in rows) + b"".join(row[3] + b"\0" for row in rows),
    )


def header(machine: int, count: int, kind: int = ET_CORE, table: int = 64, sections: int = 0) -> bytes:
    ident = b"\x7fELF\2\1\1" + bytes(9)
    return ident + struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, table, sections, 0, 64, 56, count, 64, 1 if sections else 0, 0)


def program_header(kind: int, flags: int, position: int, start: int, stored: int, size: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, flags, position, start, 0, stored, size, 1)


def core(machine: int, notes: bytes, loads: Sequence[Load] = (), many: bool = False) -> bytes:
    """A whole core. `many`: the number of segments stands in section header 0, as with more than 65534."""
    count = len(loads) + 1
    table_size = 56 * count
    notes_at = 64 + table_size + (64 if many else 0)
    table = [program_header(4, 0, notes_at, 0, len(notes), 0)]
    position = notes_at + len(notes)
    for load in loads:
        table.append(
            program_header(1, load.flags, position, load.start, len(load.data), len(load.data) if load.size is None else load.size)
        )
        position += len(load.data)
    section = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, count, 0, 0) if many else b""
    head = header(machine, 0xFFFF if many else count, sections=64 + table_size if many else 0)
    return head + b"".join(table) + section + notes + b"".join(load.data for load in loads)


def aarch64() -> bytes:
    """A null pointer followed in a process of two threads, on another architecture."""
    registers = [0x10 * number for number in range(31)] + [0xFFFF_F000_0000, 0xAAAA_0000_1234, 0x6000_0000]
    notes = (
        prstatus(4242, registers) + prpsinfo(4242) + siginfo(11, 1, 0x18) + auxv({AT_PHDR: 0xAAAA_0000_0040, AT_ENTRY: 0xAAAA_0000_0800})
    )
    notes += file_note([(0xAAAA_0000_0000, 0xAAAA_0000_2000, 0, b"/usr/bin/server")]) + prstatus(4243, registers, 0)
    # ldr x0, [x1, #0x18] with x1 = 0x10 would be at 0x28; the siginfo says 0x18.
    text = bytes(0x1234) + bytes.fromhex("200c40f9") + bytes(0x2000 - 0x1238)
    return core(EM_AARCH64, notes, [Load(0xAAAA_0000_0000, text, 5), Load(0xFFFF_EFFF_0000, bytes(0x11000), 6)])
