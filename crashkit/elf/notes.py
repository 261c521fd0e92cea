"""Splits ELF notes and decodes their payloads. Pure: bytes in, facts out.

Layouts: Linux `include/uapi/linux/elfcore.h` (prstatus, prpsinfo), `include/uapi/asm-generic/siginfo.h`,
`fs/binfmt_elf.c` (`fill_files_note`, the order of notes). A payload may be truncated: every function decodes what is there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

from crashkit.elf.headers import Word
from crashkit.limits import LONGEST_PATH, MOST_SEGMENTS

NT_GNU_BUILD_ID = 3
NT_PRSTATUS, NT_PRPSINFO, NT_AUXV = 1, 3, 6
NT_FILE, NT_SIGINFO = 0x46494C45, 0x53494749

AT_NULL, AT_PHDR, AT_ENTRY, AT_RANDOM, AT_EXECFN = 0, 3, 9, 25, 31

# More notes than any real process has: past this the file is lying.
MOST_NOTES = 1_000_000


class Status(NamedTuple):
    """NT_PRSTATUS: one thread."""

    signal: int
    tid: int
    registers: dict[str, int]
    blocked: int = 0
    """Bit n-1 is set if signal n was blocked."""


class ProcessInfo(NamedTuple):
    """NT_PRPSINFO."""

    pid: int
    ppid: int
    uid: int
    name: bytes
    arguments: bytes
    """The first 80 bytes of the command line, with spaces between the arguments."""
    group: int
    session: int
    flags: int = 0
    """`task_struct.flags` (include/linux/sched.h, PF_...)."""


class SignalInfo(NamedTuple):
    """NT_SIGINFO: `address` and `pid` overlap in a union; the signal's code determines which one is valid."""

    number: int
    code: int
    address: int
    pid: int


class FileMapping(NamedTuple):
    """One row of NT_FILE; `offset` in bytes."""

    start: int
    end: int
    offset: int
    path: str


def split(data: bytes, order: str, *, whole: bool = False) -> Iterator[tuple[str, int, bytes]]:
    """Yield name, type and payload of each note in a PT_NOTE segment; stop at the end of the data or at invalid data.

    The payload of the last note may be truncated; with `whole`, such a note is omitted.
    """
    position = 0
    for _ in range(MOST_NOTES):
        if position + 12 > len(data):
            return
        name_size, payload_size, kind = struct.unpack_from(order + "III", data, position)
        name_start = position + 12
        payload_start = name_start + (name_size + 3 & ~3)
        if payload_start > len(data):
            return
        name = data[name_start : name_start + name_size].rstrip(b"\0").decode("ascii", "replace")
        if whole and payload_start + payload_size > len(data):
            return
        yield name, kind, data[payload_start : payload_start + payload_size]
        position = payload_start + (payload_size + 3 & ~3)


def build_id(data: bytes, order: str) -> Optional[str]:
    """The GNU build-id in these notes, in hexadecimal; None if it is missing or truncated."""
    payloads = (payload for name, kind, payload in split(data, order, whole=True) if (name, kind) == ("GNU", NT_GNU_BUILD_ID))
    return next((payload.hex() for payload in payloads if payload), None)


def status(payload: bytes, word: Word, registers: Sequence[str]) -> Optional[Status]:
    """Decode NT_PRSTATUS; None if the payload is too short. `registers`: register names in the order of `elf_gregset_t`."""
    blocked_at, pid_at, registers_at = (24, 32, 112) if word.size == 8 else (20, 24, 72)
    if len(payload) < pid_at + 4:
        return None
    (signal,) = struct.unpack_from(word.order + "H", payload, 12)
    (tid,) = struct.unpack_from(word.order + "i", payload, pid_at)
    (blocked,) = struct.unpack_from(word.code, payload, blocked_at)
    count = min(len(registers), max(0, len(payload) - registers_at) // word.size)
    values = struct.unpack_from(f"{word.order}{count}{word.code[1]}", payload, registers_at) if count else ()
    return Status(signal, tid, dict(zip(registers, values, strict=False)), blocked)


def process_info(payload: bytes, word: Word) -> Optional[ProcessInfo]:
    """Decode NT_PRPSINFO (`struct elf_prpsinfo`); None if the payload is too short."""
    # 64 bit: char state, sname, zomb, nice; ulong flag; uid, gid; pid, ppid, pgrp, sid; fname[16]; psargs[80].
    # 32 bit: uid and gid are 16 bits wide on i386 and arm.
    layout = "4x4xQIIiiii16s80s" if word.size == 8 else "4xIHHiiii16s80s"
    if len(payload) < struct.calcsize("=" + layout):
        return None
    flags, uid, _gid, pid, ppid, group, session, name, arguments = struct.unpack_from(("<" if word.order == "<" else ">") + layout, payload)
    return ProcessInfo(pid, ppid, uid, name.split(b"\0")[0], arguments.split(b"\0")[0].rstrip(), group, session, flags)


def signal_info(payload: bytes, word: Word) -> Optional[SignalInfo]:
    """Decode NT_SIGINFO (`siginfo_t`); None if the payload is too short."""
    union_at = 16 if word.size == 8 else 12
    if len(payload) < union_at + word.size:
        return None
    number, _errno, code = struct.unpack_from(word.order + "iii", payload)
    (address,) = struct.unpack_from(word.code, payload, union_at)
    (pid,) = struct.unpack_from(word.order + "i", payload, union_at)
    return SignalInfo(number, code, address, pid)


def auxiliary_vector(payload: bytes, word: Word) -> dict[int, int]:
    """Decode NT_AUXV: AT_* type to value, without AT_NULL."""
    count = len(payload) // word.size // 2 * 2
    words = struct.unpack_from(f"{word.order}{count}{word.code[1]}", payload)
    vector = dict(zip(words[::2], words[1::2], strict=True))
    vector.pop(AT_NULL, None)
    return vector


def file_mappings(payload: bytes, word: Word) -> list[FileMapping]:
    """Decode NT_FILE; rows whose path is truncated have an empty path."""
    if len(payload) < 2 * word.size:
        return []
    promised, page_size = struct.unpack_from(f"{word.order}2{word.code[1]}", payload)
    count = min(promised, (len(payload) - 2 * word.size) // (3 * word.size), MOST_SEGMENTS)
    rows = struct.unpack_from(f"{word.order}{3 * count}{word.code[1]}", payload, 2 * word.size)
    # What follows the last path is none, or the beginning of one; where the rows are truncated, no path is there at all.
    paths = payload[(2 + 3 * promised) * word.size :].split(b"\0", count)[:-1]
    paths += [b""] * (count - len(paths))
    return [
        FileMapping(start, end, page * page_size, path[:LONGEST_PATH].decode("utf-8", "backslashreplace"))
        for start, end, page, path in zip(rows[::3], rows[1::3], rows[2::3], paths, strict=False)
    ]
