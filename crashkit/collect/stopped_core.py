"""The core of a process that a tracer holds at the moment of its death, as the kernel would write it, but without a file: it is read
where the process has it. Of it, a minimal core is made.

Which memory belongs to a core: `vma_dump_size`, fs/coredump.c.
"""

from __future__ import annotations

import bisect
import io
import os
import re
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from crashkit.collect.host.limits import ANONYMOUS_PRIVATE, ANONYMOUS_SHARED, ELF_HEADERS, FILE_PRIVATE, FILE_SHARED, HUGE_PRIVATE
from crashkit.collect.supervise.tracer import Held
from crashkit.elf.core_file import Laid, core_head, note
from crashkit.elf.headers import Word, of_bytes, read_header
from crashkit.elf.notes import NT_AUXV, NT_FILE, NT_PRPSINFO, NT_PRSTATUS, NT_SIGINFO
from crashkit.errors import EvidenceError

_PAGE = os.sysconf("SC_PAGE_SIZE")
_HUGE_SHARED = 1 << 6
"""core(5)."""
_PRESENT, _SWAPPED = 1 << 63, 1 << 62
"""Documentation/admin-guide/mm/pagemap.rst."""
_SMALL = 64 << 10
_ROW = re.compile(rb"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([rwxsp-]{4}) ([0-9a-f]{1,16}) [0-9a-f]{1,8}:[0-9a-f]{1,8} \d{1,20}(?: +(\S.*)?)?")
_FLAGS = ((b"r", 4), (b"w", 2), (b"x", 1))
_FROM_KERNEL = (b"[vdso]", b"[vvar", b"[vsyscall]", b"[sigpage]")


_NEVER_BY_HEAD = frozenset({b"dd", b"io", b"sh", b"ht"})
"""VmFlags of mappings of which a core has all or nothing: not to be dumped, of a device, shared, of huge pages."""


class Area(NamedTuple):
    """A mapping of the process."""

    start: int
    end: int
    flags: int
    """1 execute, 2 write, 4 read."""
    offset: int
    path: bytes
    """Empty for memory of no file."""
    stored: int
    """Bytes that belong to a core, from its start on."""


def areas(smaps: bytes, dumped: int, is_elf: Callable[[int], bool]) -> Iterator[Area]:
    """The mappings by /proc/PID/smaps (proc(5)), and how much of each belongs to a core with this coredump_filter (core(5)).

    `is_elf` tells whether an ELF file begins at an address.
    """
    for row, facts in _rows(smaps):
        start, end, offset = int(row[1], 16), int(row[2], 16), int(row[4], 16)
        letters, name = row[3], row[5] or b""
        path = name if name.startswith((b"/", b"anon_inode:")) else b""
        flags = sum(bit for letter, bit in _FLAGS if letter in letters)
        stored = 0
        if _is_whole(name, path, b"s" in letters, facts, dumped):
            stored = end - start
        elif (
            path and not offset and flags & 4 and dumped & ELF_HEADERS and not facts.keys() & {b"dd", b"io", b"sh", b"ht"} and is_elf(start)
        ):
            stored = min(_PAGE, end - start)
        yield Area(start, end, flags, offset, path, stored)


def _rows(smaps: bytes) -> Iterator[tuple[re.Match[bytes], dict[bytes, bytes]]]:
    """Each mapping's first line, and what follows it: the fields by name, the flags as names."""
    row, facts = None, {}
    for line in smaps.splitlines():
        found = _ROW.fullmatch(line)
        if found is None:
            name, _, value = line.partition(b":")
            facts[name] = value.strip()
            if name == b"VmFlags":
                facts.update(dict.fromkeys(value.split(), b""))
            continue
        if row is not None:
            yield row, facts
        row, facts = found, {}
    if row is not None:
        yield row, facts


def _is_whole(name: bytes, path: bytes, shared: bool, facts: dict[bytes, bytes], dumped: int) -> bool:
    if name.startswith(_FROM_KERNEL):
        return True
    if b"dd" in facts:
        return False
    if b"ht" in facts:
        return bool(dumped & (_HUGE_SHARED if shared else HUGE_PRIVATE))
    if b"io" in facts:
        return False
    if shared:
        return bool(dumped & (ANONYMOUS_SHARED if path.endswith(b" (deleted)") else FILE_SHARED))
    written = any(facts.get(field, b"0 kB") != b"0 kB" for field in (b"Anonymous", b"Swap"))
    return bool((written and dumped & ANONYMOUS_PRIVATE) or (path and dumped & FILE_PRIVATE))


class StoppedCore(io.RawIOBase):
    """The core as a file that can be read and not written; its memory comes from the process. Several threads may read at once."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self._held = held
        executable = _file(held.pid, "exe", 64)
        header = read_header(of_bytes(executable))
        if header is None or header.word.size != 8:
            raise EvidenceError(f"process {held.pid} is not a native 64-bit process", "Keep whole cores: --keep full.")
        word = header.word
        found = list(areas(_file(held.pid, "smaps"), _filter(held.pid), lambda start: self._memory_at(start, 4) == b"\x7fELF"))
        if not found:
            raise EvidenceError(f"the address space of process {held.pid} cannot be read", "Keep whole cores: --keep full.")
        laid = [Laid(area.start, area.end - area.start, area.flags, area.stored) for area in found]
        head, positions = core_head(header.machine, word, _notes(held, word, found), laid)
        self._head = head
        self._areas = [area for area in found if area.stored]
        self._positions = [position for area, position in zip(found, positions, strict=True) if area.stored]
        self.size = max((at + area.stored for at, area in zip(self._positions, self._areas, strict=True)), default=len(head))
        self._place = threading.local()

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As of any file; each thread has a place of its own."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError("a place before the beginning")
        self._place.at = base + offset
        return base + offset

    def tell(self) -> int:
        """Where the next read begins."""
        return int(getattr(self._place, "at", 0))

    def read(self, size: int = -1) -> bytes:
        """As of any file."""
        at = self.tell()
        end = self.size if size is None or size < 0 else min(self.size, at + size)
        parts = [self._head[at:end]]
        at += len(parts[0])
        index = max(0, bisect.bisect_right(self._positions, at) - 1)
        while at < end:
            position, area = self._positions[index], self._areas[index]
            if at < position:
                parts.append(bytes(min(end, position) - at))
            elif at < position + area.stored:
                parts.append(self._of(area, at - position, min(end - position, area.stored)))
            at += len(parts[-1]) if at < position + area.stored else 0
            index += at >= position + area.stored
        self._place.at = at
        return b"".join(parts)

    def _of(self, area: Area, first: int, last: int) -> bytes:
        """This part of a mapping. What the process never touched is zeros: to read it would give it memory."""
        start, end = area.start + first, area.start + last
        if area.path or end - start <= _SMALL or self._held.pagemap < 0:
            return self._filled(start, end)
        low = start // _PAGE
        try:
            words = os.pread(self._held.pagemap, 8 * (-(-end // _PAGE) - low), 8 * low)
        except OSError:
            return self._filled(start, end)
        if not any(words):
            return bytes(end - start)
        flags = bytes(1 if word & (_PRESENT | _SWAPPED) else 0 for (word,) in struct.iter_unpack("=Q", words))
        parts, at = [], 0
        while at < len(flags):
            stop = flags.find(1 - flags[at], at)
            stop = len(flags) if stop < 0 else stop
            one, other = max(start, (low + at) * _PAGE), min(end, (low + stop) * _PAGE)
            parts.append(self._filled(one, other) if flags[at] else bytes(other - one))
            at = stop
        return b"".join(parts)

    def _filled(self, start: int, end: int) -> bytes:
        """As the kernel writes it: zeros where nothing can be read."""
        data = self._memory_at(start, end - start)
        while len(data) < end - start:
            gap = min(end, (start + len(data)) // _PAGE * _PAGE + _PAGE)
            data += bytes(gap - start - len(data))
            data += self._memory_at(gap, end - gap)
        return data

    def _memory_at(self, address: int, size: int) -> bytes:
        parts = []
        while size > 0:
            try:
                part = os.pread(self._held.memory, size, address)
            except (OSError, OverflowError):
                break
            if not part:
                break
            parts.append(part)
            address, size = address + len(part), size - len(part)
        return b"".join(parts)


def take_minimal(held: Held, path: Path) -> bool:
    """Write a minimal core of the process into a new file; whether it is there. Raises EvidenceError if the process cannot be read."""
    from crashkit.pipeline import Options, analyze_stopped

    with StoppedCore(held) as file:
        analyze_stopped(cast(BinaryIO, file), Path(f"/proc/{held.pid}/mem"), file.size, Options(minimal=path))
    return path.is_file()


# Notes, as fill_note_info in fs/binfmt_elf.c writes them


def _blocked(pid: int, tid: int) -> int:
    """The signals that the thread has blocked: bit n-1 for signal n (`SigBlk` in proc_pid_status(5))."""
    found = re.search(rb"^SigBlk:\s*([0-9a-f]{1,16})$", _file(pid, f"task/{tid}/status"), re.MULTILINE)
    return int(found[1], 16) if found else 0


def _notes(held: Held, word: Word, found: Sequence[Area]) -> bytes:
    order = word.order
    parts = []
    stat = _file(held.pid, "stat").rpartition(b") ")[2].split()
    parent, group, session = (int(one) for one in stat[1:4])
    for index, thread in enumerate(held.threads):
        # struct elf_prstatus: si_signo, si_code, si_errno, cursig, sigpend, sighold, pid, ppid, pgrp, sid, four times, registers, fpvalid.
        head = struct.pack(order + "iiih2xQQ", held.number, 0, 0, held.number, 0, _blocked(held.pid, thread.tid))
        head += struct.pack(order + "iiii", thread.tid, parent, group, session) + bytes(64)
        parts.append(note(order, "CORE", NT_PRSTATUS, head + thread.registers + bytes(8)))
        if index == 0:
            name, arguments = _file(held.pid, "comm").rstrip(b"\n")[:15], _file(held.pid, "cmdline").replace(b"\0", b" ")[:79]
            numbers = (int(stat[6]), _owner(held.pid), 0, held.pid, parent, group, session)
            parts.append(note(order, "CORE", NT_PRPSINFO, struct.pack(order + "4x4xQIIiiii16s80s", *numbers, name, arguments)))
            parts.append(note(order, "CORE", NT_SIGINFO, held.information))
            parts.append(note(order, "CORE", NT_AUXV, _file(held.pid, "auxv")))
            parts.append(note(order, "CORE", NT_FILE, _files(order, found)))
        parts += [note(order, "CORE" if kind == 2 else "LINUX", kind, registers) for kind, registers in thread.others]
    return b"".join(parts)


def _files(order: str, found: Sequence[Area]) -> bytes:
    files = [area for area in found if area.path]
    rows = b"".join(struct.pack(order + "QQQ", area.start, area.end, area.offset // _PAGE) for area in files)
    return struct.pack(order + "QQ", len(files), _PAGE) + rows + b"".join(area.path + b"\0" for area in files)


def _filter(pid: int) -> int:
    try:
        return int(_file(pid, "coredump_filter"), 16)
    except ValueError:
        return ANONYMOUS_PRIVATE | ELF_HEADERS


def _owner(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return 0


def _file(pid: int, name: str, most: int = -1) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read(most)
    except OSError:
        return b""
