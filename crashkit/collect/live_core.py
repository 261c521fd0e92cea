"""Takes a core of a live process, which is stopped for less than a tenth of a second and then runs on unharmed.

What matters most is copied first: registers, stacks, what Python's stacks are read from, the variables of modules, then the heap, the
smallest mappings first. What the time does not suffice for is left out; a reader finds it missing, as in a truncated core. The file is
written after the process runs again.
"""

from __future__ import annotations

import bisect
import itertools
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Optional, Union

from crashkit.collect.python_memory import python_ranges
from crashkit.elf.core_file import Part, note, write_core
from crashkit.elf.notes import NT_AUXV, NT_FILE, NT_PRPSINFO, NT_PRSTATUS
from crashkit.errors import EvidenceError
from crashkit.memory.live import LiveProcess
from crashkit.memory.stop import Stopped, missing_right
from crashkit.model import Mapping

STOPPED_SECONDS = 0.06
"""How long memory is copied; the rest of a tenth of a second is for stopping and continuing."""

LEAST = 32 << 20
"""Bytes that are copied however long it takes: some hundredths of a second, unless the machine is overloaded."""

LARGE = 256 << 20
"""Bytes from which on a process that was not prepared for is stopped until it is known what its Python stacks are read from: CUDA's have
a heap so large that the time never suffices for it."""

_HIGHEST = -20
_PAGE = os.sysconf("SC_PAGE_SIZE")
_RED_ZONE = 128
_MOST_STACK = 512 << 10
_PIECE = 4 << 20
"""Bytes copied between two looks at the clock."""
_PREPARED = 64 << 20
"""Bytes of memory that we have ready before the process is stopped: the kernel takes longer to give us memory than to fill it."""
_LARGEST_MAPPING = 4 << 30
"""A larger one is reserved address space, as CUDA and some allocators make it."""
_MOST_SEGMENTS = 65_000
_VDSO = "[vdso]"
"""The kernel's code in each process, which no file has. It is needed whole to unwind out of it, pages that the process never touched, too:
gdb takes it only if one segment holds all of it (linux_vsyscall_range_raw, gdb/linux-tdep.c)."""
_TOUCHED = bytes(1 if byte & 0xC0 else 0 for byte in range(256))
"""By the highest byte of a page's word: present is bit 63, swapped bit 62 (Documentation/admin-guide/mm/pagemap.rst)."""
_FLAGS_AT = 7 if sys.byteorder == "little" else 0


class Taken(NamedTuple):
    """What was taken."""

    stopped_seconds: float
    copied: int
    """Bytes of memory in the core."""
    left_out: int
    """Bytes of writable memory that the time did not suffice for."""
    unstopped: tuple[int, ...]
    """Threads that could not be stopped, and of which nothing is known."""


class _Piece(NamedTuple):
    start: int
    data: Union[bytes, memoryview]


class _Thread(NamedTuple):
    tid: int
    registers: bytes
    others: tuple[tuple[int, bytes], ...]
    """Further sets, by the type of their notes."""


def take_core(pid: int, path: Path, seconds: float = STOPPED_SECONDS, prepare: bool = True) -> Taken:
    """Write a core of the process to a new file. `seconds`: how long its memory is copied while it is stopped.

    `prepare`: find out first, while it runs, from which memory its Python stacks are read, so that those are in the core however large the
    process is. That takes some tenths of a second, in which a launcher may end it. Otherwise a large process is stopped first, and longer.

    Raises EvidenceError if that is not permitted or there is no such process, OSError if the file cannot be written.
    """
    outcome: list[object] = []

    def take() -> None:
        try:
            outcome.append(_take(pid, path, seconds, prepare))
        except BaseException as error:
            outcome.append(error)

    # The kernel lets go of every thread when the tracing thread ends.
    tracer = threading.Thread(target=take, name="tracer")
    tracer.start()
    tracer.join()
    (result,) = outcome
    if isinstance(result, BaseException):
        raise result
    assert isinstance(result, Taken)
    return result


def _take(pid: int, path: Path, seconds: float, prepare: bool) -> Taken:
    with LiveProcess(pid) as live:
        if live.word.size != 8 or not live.architecture.registers:
            raise EvidenceError(
                f"cannot attach to process {pid}: this processor is not supported", "Make a core with gcore instead, and analyze it."
            )
        # Of a small process all is copied.
        python = python_ranges(live) if prepare and _resident(pid) > LEAST else []
        pagemap = _pagemap(pid)
        prepared = memoryview(mmap.mmap(-1, _PREPARED, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))
        # On a busy machine the process would stand still while others run before us. Only this thread, where that is permitted.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _HIGHEST)
        try:
            with Stopped(pid) as stopped:
                began = stopped.stopped_at
                mappings = live.mappings()
                threads = [
                    _Thread(
                        tid,
                        stopped.registers(tid),
                        tuple((kind, stopped.registers(tid, kind)) for kind in live.architecture.register_notes),
                    )
                    for tid in stopped.threads
                ]
                unstopped = stopped.unstopped
                # A signal that came meanwhile may end it as soon as it continues.
                notes = _notes(pid, live, threads, mappings)
                if not prepare and _resident(pid) > LARGE:
                    python = python_ranges(live)
                copier = _Copier(live, pagemap, time.monotonic() + seconds, prepared)
                for mapping in mappings:
                    if mapping.path == _VDSO:
                        copier.copy(mapping.start, mapping.end, untouched=True)
                for start, end in _wanted(live, mappings, threads, python):
                    copier.copy(start, end)
            took = time.monotonic() - began
        finally:
            if pagemap is not None:
                os.close(pagemap)
        pieces = copier.pieces()
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb") as file:
            parts = list(_parts(mappings, pieces))[:_MOST_SEGMENTS]
            write_core(file, live.architecture.machine or 0, live.word, notes, parts)
        return Taken(took, sum(len(piece.data) for piece in pieces), copier.left_out, unstopped)


def _resident(pid: int) -> int:
    """Bytes of the process that are in memory (proc_pid_statm(5)); 0 if that may not be read."""
    fields = _file(pid, "statm").split()
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def _pagemap(pid: int) -> Optional[int]:
    try:
        return os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _wanted(
    live: LiveProcess, mappings: Sequence[Mapping], threads: Sequence[_Thread], python: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Ranges of addresses to copy, what matters most first; they may overlap."""
    starts = [mapping.start for mapping in mappings]
    at = live.architecture.registers.index(live.architecture.stack_pointer) * live.word.size
    for thread in threads:
        if len(thread.registers) < at + live.word.size:
            continue
        (pointer,) = struct.unpack_from(live.word.code, thread.registers, at)
        index = bisect.bisect_right(starts, pointer) - 1
        if index >= 0 and pointer < mappings[index].end:
            yield max(mappings[index].start, pointer - _RED_ZONE), min(mappings[index].end, pointer + _MOST_STACK)
    writable = [m for m in mappings if (m.permissions or "").startswith("rw")]
    yield from (piece for mapping in writable for piece in _within(python, mapping.start, mapping.end))
    for mapping in mappings:
        # A module's first page has its build-id.
        if mapping.offset == 0 and (mapping.permissions or "").startswith("r"):
            yield mapping.start, mapping.start + _PAGE
        elif mapping.offset is not None and mapping.permissions == "r--" and mapping.end - mapping.start < 1 << 20:
            yield mapping.start, mapping.end  # relocated constants among them
    yield from ((m.start, m.end) for m in writable if m.offset is not None and m.end - m.start < 64 << 20)
    anonymous = [m for m in writable if m.offset is None]
    yield from ((m.start, m.end) for m in sorted(anonymous, key=lambda m: (m.path == "[stack]", m.end - m.start)))


def _within(ranges: Sequence[tuple[int, int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of these ranges, which are sorted and apart, between two addresses."""
    first = bisect.bisect_right(ranges, start, key=lambda one: one[1])
    within = itertools.takewhile(lambda one: one[0] < end, itertools.islice(ranges, first, None))
    return ((max(start, one), min(end, other)) for one, other in within)


class Wanted:
    """The addresses that were wanted so far, as ranges that neither overlap nor touch: thousands of small ones are."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def new(self, start: int, end: int) -> list[tuple[int, int]]:
        """Want this range, too: the parts of it that were not wanted before."""
        first, last = bisect.bisect_left(self._stops, start), bisect.bisect_right(self._starts, end)
        edges = [start, *(edge for pair in zip(self._starts[first:last], self._stops[first:last], strict=True) for edge in pair), end]
        found = [(one, other) for one, other in zip(edges[::2], edges[1::2], strict=True) if one < other]
        self._starts[first:last], self._stops[first:last] = [min(edges)], [max(edges)]
        return found


class _Copier:
    """Copies memory until the time is over."""

    def __init__(self, live: LiveProcess, pagemap: Optional[int], ends: float, prepared: memoryview) -> None:
        self._live, self._pagemap, self._ends, self._prepared = live, pagemap, ends, prepared
        self._runs: list[_Piece] = []
        self._wanted = Wanted()
        self._copied = self.left_out = 0

    def copy(self, start: int, end: int, untouched: bool = False) -> None:
        """Copy the pages of this range; of those that the process has not touched only if `untouched`."""
        start, end = start // _PAGE * _PAGE, -(-end // _PAGE) * _PAGE
        if end - start > _LARGEST_MAPPING:
            return
        for one, other in self._wanted.new(start, end):
            for first, last in [(one, other)] if untouched else self._there(one, other):
                place = first
                while place < last:
                    if self._copied >= LEAST and time.monotonic() > self._ends:
                        self.left_out += last - place
                        break
                    data = self._read(place, min(_PIECE, last - place))
                    if not data:
                        break
                    self._runs.append(_Piece(place, data))
                    self._copied += len(data)
                    place += len(data)

    def _read(self, place: int, size: int) -> Union[bytes, memoryview]:
        if size > len(self._prepared):
            return self._live.read(place, size)
        count = self._live.read_into(place, self._prepared[:size])
        data, self._prepared = self._prepared[:count], self._prepared[count:]
        return data

    def _there(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges of pages that the process has touched: to read others would fill them with zeros."""
        if self._pagemap is None:
            yield start, end
            return
        count = (end - start) // _PAGE
        try:
            words = os.pread(self._pagemap, 8 * count, start // _PAGE * 8)
        except (OSError, OverflowError):
            yield start, end
            return
        # The byte of each word that has both flags: millions of pages are looked at while the process is stopped.
        flags = words[_FLAGS_AT::8].translate(_TOUCHED)
        at = flags.find(1)
        while at >= 0:
            stop = flags.find(0, at)
            stop = len(flags) if stop < 0 else stop
            yield start + at * _PAGE, start + stop * _PAGE
            at = flags.find(1, stop)

    def pieces(self) -> list[_Piece]:
        """What was copied, by address."""
        return sorted(self._runs)


def _parts(mappings: Sequence[Mapping], pieces: Sequence[_Piece]) -> Iterator[Part]:
    """Each mapping is cut where what is known of it begins and ends."""
    starts = [piece.start for piece in pieces]
    for mapping in mappings:
        flags = sum(bit for letter, bit in (("r", 4), ("w", 2), ("x", 1)) if letter in (mapping.permissions or ""))
        place = int(mapping.start)
        for piece in pieces[bisect.bisect_left(starts, mapping.start) : bisect.bisect_left(starts, mapping.end)]:
            if piece.start > place:
                yield Part(place, piece.start - place, flags, b"")
            yield Part(piece.start, len(piece.data), flags, piece.data)
            place = piece.start + len(piece.data)
        if place < mapping.end:
            yield Part(place, mapping.end - place, flags, b"")


def _notes(pid: int, live: LiveProcess, threads: Sequence[_Thread], mappings: Sequence[Mapping]) -> bytes:
    order = live.word.order
    parts = []
    stat = _fields_of_stat(pid)
    for index, thread in enumerate(threads):
        # struct elf_prstatus: signal information (16), sigpend and sighold (16), pid, ppid, pgrp, sid, four times, registers, fpvalid.
        head = bytes(32) + struct.pack(order + "iiii", thread.tid, stat.parent, stat.group, stat.session) + bytes(64)
        parts.append(note(order, "CORE", NT_PRSTATUS, head + thread.registers + bytes(8)))
        if index == 0:
            parts.append(note(order, "CORE", NT_PRPSINFO, _process_information(pid, order, stat)))
            parts.append(note(order, "CORE", NT_AUXV, _file(pid, "auxv")))
            parts.append(note(order, "CORE", NT_FILE, _file_table(order, mappings)))
        parts += [note(order, "LINUX", kind, registers) for kind, registers in thread.others if registers]
    return b"".join(parts)


class _Stat(NamedTuple):
    parent: int = 0
    group: int = 0
    session: int = 0
    flags: int = 0


def _fields_of_stat(pid: int) -> _Stat:
    text = _file(pid, "stat").decode("utf-8", "replace")
    fields = text[text.rfind(")") + 1 :].split()
    try:
        return _Stat(int(fields[1]), int(fields[2]), int(fields[3]), int(fields[6]))
    except (IndexError, ValueError):
        return _Stat()


def _process_information(pid: int, order: str, stat: _Stat) -> bytes:
    name = _file(pid, "comm").rstrip(b"\n")[:15]
    arguments = _file(pid, "cmdline").replace(b"\0", b" ")[:79]
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        owner = 0
    return struct.pack(order + "4x4xQIIiiii16s80s", stat.flags, owner, 0, pid, stat.parent, stat.group, stat.session, name, arguments)


def _file_table(order: str, mappings: Sequence[Mapping]) -> bytes:
    files = [mapping for mapping in mappings if mapping.offset is not None]
    rows = b"".join(struct.pack(order + "QQQ", file.start, file.end, (file.offset or 0) // _PAGE) for file in files)
    names = b"".join((file.path or "").removesuffix(" (deleted)").encode("utf-8", "surrogateescape") + b"\0" for file in files)
    return struct.pack(order + "QQ", len(files), _PAGE) + rows + names


def _file(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


__all__ = ["STOPPED_SECONDS", "Taken", "missing_right", "take_core"]
