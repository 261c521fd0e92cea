"""A CPU core: its notes and its memory, read without gdb in milliseconds.

Cores are untrusted input: sizes and offsets are checked against the file before anything is read.
"""

from __future__ import annotations

import bisect
import copy
import errno
import os
import struct
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, Optional

import msgspec

from crashkit.arch import Architecture, of_machine
from crashkit.elf import notes
from crashkit.elf.headers import (
    ET_CORE,
    ET_DYN,
    ET_EXEC,
    ET_REL,
    PN_XNUM,
    PT_LOAD,
    PT_NOTE,
    Header,
    Read,
    Word,
    count_program_headers,
    of_file,
    read_header,
    read_program_headers,
)
from crashkit.errors import EvidenceError
from crashkit.evidence.core.note import NAME, NOTE, Left, decode
from crashkit.limits import LONGEST_PATH, MOST_ARGUMENT_BYTES, MOST_SEGMENTS, MOST_THREADS
from crashkit.memory import MOST_STRING, PAGE, SCANNED, MemoryThread, string_at, word_at
from crashkit.memory.pages import SIZE, Pages
from crashkit.model import Address, Mapping, Offset, SoftError
from crashkit.naming.signals import SI_TKILL, SI_USER

_EM_CUDA = 190
_BLOCK, _MOST_BLOCKS = 8 << 10, 512
"""Bytes that are read at once, and how many such blocks are kept."""
# The notes of 10,000 threads take 150 MB.
_MOST_NOTE_BYTES = 512 << 20
_MOST_ARGUMENTS = 4096
_MOST_BEHIND = 4096
"""Bytes from the auxiliary vector up to what its AT_RANDOM points to: the vector has some 20 entries of 16 bytes."""
_MOST_OFFSET = (1 << 63) - 1
_ZEROS = bytes(SCANNED)


class Segment(msgspec.Struct, frozen=True):
    """A PT_LOAD: `size` bytes of address space, of which the file contains `stored` at offset `position`."""

    start: int
    size: int
    position: int
    stored: int
    flags: int

    @property
    def end(self) -> int:
        """First address after the segment."""
        return self.start + self.size


class Core:
    """One CPU core file, opened: a `Memory`. Use as a context manager, or `close` it.

    Raises EvidenceError if the file is not an ELF core of a CPU.
    """

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self._file = file
        self.path = path
        self.size = size
        self.soft_errors: list[SoftError] = []
        self.forged: Optional[str] = None
        """Why no kernel can have written it; debuggers would believe it, and take gigabytes."""
        self._read_bytes = _by_blocks(_one_at_a_time(of_file(file)))
        self._holes = _Holes(file, size)
        self.reads: Optional[Pages] = None
        """Where set, the pages that are read are added to it."""
        self.left: Optional[Left] = None
        """Of a minimal core: what the whole one said of memory that this one lacks."""
        header = _open_elf(self._read_bytes, path)
        self.header = header
        self.architecture: Architecture = of_machine(header.machine)
        self.word: Word = header.word
        segments, note_parts = self._read_segments(header)
        self.segments = segments
        self._starts = [segment.start for segment in segments]
        cut = sum(max(0, min(s.stored, s.position + s.stored - size)) for s in segments)
        self.missing = min(cut, _MOST_OFFSET)
        self._read_notes(note_parts)
        self.space = segments
        """The address space: the segments, and those that a minimal core has no memory of."""
        if self.left is not None:
            space = (Segment(one.start, one.size, 0, 0, one.flags) for one in self.left.space)
            self.space = sorted(space, key=lambda segment: segment.start)
            self.missing = min(max(0, self.left.missing), _MOST_OFFSET)
        self._space_starts = [one.start for one in self.space]
        self._mappings: Optional[list[Mapping]] = None

    def __enter__(self) -> Core:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; nothing can be read afterwards."""
        self._file.close()

    @property
    def truncated(self) -> bool:
        """Whether memory or headers are missing from the end of the file."""
        return self.missing > 0 or self._headers_cut

    def _read_segments(self, header: Header) -> tuple[list[Segment], list[bytes]]:
        segments, note_parts = [], []
        self.note_places: list[tuple[int, int]] = []
        """Offset and size of the notes in the file."""
        # More than 65534 segments: the true count stands in section header 0, which truncation can take away.
        count = count_program_headers(self._read_bytes, header)
        promised = min(PN_XNUM if count is None else count, MOST_SEGMENTS)
        if count is not None and count > promised:
            message = f"{count - promised:,} of {count:,} segments of the core were left out: no process has so many"
            self.soft_errors.append(SoftError(stage="notes", message=message))
        there = min(promised, max(0, self.size - header.programs.offset) // header.programs.entry_size)
        self._headers_cut = there < promised
        if self._headers_cut:
            message = f"the core is truncated within its headers: {promised - there:,} of {promised:,} segment headers are missing"
            self.soft_errors.append(SoftError(stage="notes", message=message))
        # Segments may overlap in the file, but no honest ones do: together they are no longer than it.
        room = min(_MOST_NOTE_BYTES, self.size)
        notes_cut, claimed = False, 0
        for one in read_program_headers(self._read_bytes, header, there):
            if one.kind == PT_LOAD:
                size = min(one.size, self.word.most - one.address)
                segments.append(Segment(one.address, size, one.offset, min(one.stored, size), one.flags))
            elif one.kind == PT_NOTE and one.offset < self.size:
                note_parts.append(self._read_bytes(one.offset, min(one.stored, room)))
                self.note_places.append((one.offset, len(note_parts[-1])))
                room -= len(note_parts[-1])
                notes_cut = notes_cut or len(note_parts[-1]) < one.stored
                claimed += min(one.stored, self.size - one.offset)
        if notes_cut:
            self.soft_errors.append(SoftError(stage="notes", message="the notes of the core are truncated: threads may be missing"))
        if claimed > self.size:
            self.forged = "its note segments overlap"
        segments.sort(key=lambda segment: segment.start)
        return segments, note_parts

    def _read_notes(self, parts: Sequence[bytes]) -> None:
        self.statuses: list[notes.Status] = []
        self.signal_of_any_thread = False
        self.sent_to_another = False
        """Whether the process sent the signal to itself as a whole, and which of its threads did is not known."""
        self.process: Optional[notes.ProcessInfo] = None
        self.signal: Optional[notes.SignalInfo] = None
        self.auxv: dict[int, int] = {}
        self.files: list[notes.FileMapping] = []
        self._auxv_bytes = b""
        left_out = 0
        known: set[int] = set()
        every = chain.from_iterable(notes.split(part, self.word.order) for part in parts)
        for name, kind, payload in islice(every, notes.MOST_NOTES):
            if (name, kind) == (NAME, NOTE):
                self.left = decode(payload)
            elif kind == notes.NT_PRSTATUS:
                status = notes.status(payload, self.word, self.architecture.registers)
                if status and status.tid in known:
                    continue  # Headers that lie may lead to the same notes twice.
                if status and len(self.statuses) < MOST_THREADS:
                    self.statuses.append(status)
                    known.add(status.tid)
                elif status:
                    left_out += 1
            elif kind == notes.NT_PRPSINFO:
                self.process = notes.process_info(payload, self.word)
            elif kind == notes.NT_SIGINFO:
                # gdb's gcore writes one for each thread, the first of which died: the others were stopped by gdb itself.
                self.signal = self.signal or notes.signal_info(payload, self.word)
            elif kind == notes.NT_AUXV:
                self.auxv = notes.auxiliary_vector(payload, self.word)
                self._auxv_bytes = payload
            elif kind == notes.NT_FILE:
                self.files = notes.file_mappings(payload, self.word)
                if long := sum(len(file.path) >= LONGEST_PATH for file in self.files):
                    message = f"{long:,} paths of mapped files were cut at {LONGEST_PATH:,} bytes: no path can be longer"
                    self.soft_errors.append(SoftError(stage="notes", message=message))
            elif kind in self.architecture.register_notes and self.statuses and len(payload) >= self.word.size:
                # Notes of a thread follow its status.
                (value,) = struct.unpack_from(self.word.code, payload)
                self.statuses[-1].registers[self.architecture.register_notes[kind]] = value
        self._sender_first()
        if left_out:
            message = f"{left_out:,} of {left_out + MOST_THREADS:,} threads of the core were left out: no process has so many"
            self.soft_errors.append(SoftError(stage="notes", message=message))
        if not self.statuses:
            self.soft_errors.append(
                SoftError(
                    stage="notes",
                    message="the core contains no threads: its notes are missing or damaged",
                    hint="Dump the core again with enough space (ulimit -c unlimited, free disk space).",
                )
            )

    def _sender_first(self) -> None:
        """Put the thread first that sent the signal to its own process: what it was doing is why the process ended.

        With kill() the kernel gave it to any thread, mostly the main one (`complete_signal` in kernel/signal.c), with pthread_kill() to
        another one that the sender chose.
        """
        signal, pid = self.signal, self.process.pid if self.process else None
        if signal is None or pid is None or not self.statuses or signal.pid != pid:
            return
        if signal.code != SI_USER and not (signal.code == SI_TKILL and self.architecture.sends_nothing(self.statuses[0].registers)):
            return
        senders = self._senders(self.statuses)
        self.signal_of_any_thread = not senders
        if len(senders) == 1:
            self.sent_to_another = signal.code == SI_TKILL
            self.put_first(senders[0])

    def put_sender_first(self) -> bool:
        """Take the one other thread for the crashed one that was sending the process this signal; False if there is no such thread."""
        senders = self._senders(self.statuses[1:])
        if len(senders) == 1:
            self.put_first(senders[0])
        return len(senders) == 1

    def _senders(self, statuses: Sequence[notes.Status]) -> list[int]:
        """Those of these threads that were in kill() or the like, with the process and this signal."""
        signal, pid = self.signal, self.process.pid if self.process else None
        if signal is None or pid is None:
            return []
        return [one.tid for one in statuses if self.architecture.is_own_raise(one.registers, pid, signal.number)]

    def put_first(self, tid: int) -> None:
        """Take this thread for the one that crashed."""
        self.statuses.sort(key=lambda status: status.tid != tid)

    def segment(self, address: int) -> Optional[Segment]:
        """The segment that contains the address, dumped or not."""
        return _containing(self.segments, self._starts, address)

    @property
    def page(self) -> int:
        """Bytes that are read at once: few where they are counted, or where there are gaps between those that were."""
        return PAGE if self.reads is None and self.left is None else SIZE

    def _reserved(self, address: int) -> Optional[Segment]:
        return _containing(self.space, self._space_starts, address)

    def read(self, address: int, size: int) -> bytes:
        """Memory at the address; short or empty if the core does not contain it. Reads across adjacent segments."""
        data = self._at(address, size)
        if self.reads is not None:
            self.reads.add(address, len(data))
        return data

    def scan(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """What the core contains of the range, to search it: pieces of up to SCANNED bytes, with their addresses."""
        index = max(0, bisect.bisect_right(self._starts, start) - 1)
        for number in range(index, len(self.segments)):  # a slice would copy them, once for each of as many ranges
            segment = self.segments[number]
            if segment.start >= end:
                return
            first, last = max(start, segment.start), min(end, segment.start + segment.stored)
            for address in range(first, last, SCANNED):
                size = min(SCANNED, last - address)
                # To read a hole fills the page cache with zeros: of memory that the process never touched, there may be gigabytes.
                hole = self._holes.has(segment.position + address - segment.start, size)
                data = _ZEROS[:size] if hole else self._at(address, size)
                if not data:
                    break
                yield address, data

    def aside(self) -> Core:
        """The same core, for reads that do not count."""
        other = copy.copy(self)
        other.reads = None
        return other

    def _at(self, address: int, size: int) -> bytes:
        parts = []
        while size > 0:
            segment = self.segment(address)
            if segment is None:
                break
            offset = address - segment.start
            length = min(size, segment.stored - offset)
            if length <= 0 or segment.position + offset >= self.size:
                break
            part = self._read_bytes(segment.position + offset, length)
            parts.append(part)
            if len(part) < length:
                break
            address += length
            size -= length
        return b"".join(parts)

    def part_of_file(self, offset: int, size: int) -> bytes:
        """Bytes of the file, whatever they are; short or empty past its end."""
        return self._read_bytes(offset, size)

    def threads(self) -> list[MemoryThread]:
        """All threads, first the one that received the signal (`fill_note_info`, fs/binfmt_elf.c), or that sent it to its process."""
        return [MemoryThread(status.tid, status.registers) for status in self.statuses]

    def mappings(self) -> list[Mapping]:
        """The address space: segments with their mapped files, and file mappings without a segment."""
        if self._mappings is None:
            files = {file.start: file for file in self.files}
            found = [
                _mapping(segment.start, segment.end, segment, files.get(segment.start) or self.file_at(segment.start))
                for segment in self.space
            ]
            starts = set(self._space_starts)
            found += [_mapping(file.start, file.end, self._reserved(file.start), file) for file in self.files if file.start not in starts]
            self._mappings = sorted(found, key=lambda mapping: mapping.start)
        return self._mappings

    def file_at(self, address: int) -> Optional[notes.FileMapping]:
        """The file mapping that contains the address, by NT_FILE."""
        index = bisect.bisect_right(self.files, address, key=lambda file: file.start) - 1
        if index >= 0 and address < self.files[index].end:
            return self.files[index]
        return None

    def add_files(self, files: Sequence[notes.FileMapping]) -> None:
        """Add file mappings from another source, for a core without NT_FILE."""
        self.files = sorted([*self.files, *files])
        self._mappings = None

    def executable(self) -> Optional[str]:
        """The executable's path inside the crashed system: the file mapped at AT_PHDR, else at AT_ENTRY."""
        for key in (notes.AT_PHDR, notes.AT_ENTRY):
            file = self.file_at(self.auxv[key]) if key in self.auxv else None
            if file and file.path:
                return file.path
        return None

    def arguments_and_environment(self) -> tuple[list[str], list[str]]:
        """argv and the environment, read from the stack below the auxiliary vector (`create_elf_tables`, fs/binfmt_elf.c).

        Both are empty if that part of the stack is not in the core.
        """
        vector = self._find_auxiliary_vector()
        if vector is None:
            return [], []
        pointers: list[int] = []
        address = vector - self.word.size
        # Above argc lie argv, NULL, the environment, NULL; read down until the word that counts what is above it.
        blocks: list[list[int]] = []
        for _ in range(4 * _MOST_ARGUMENTS):
            value = word_at(self, address)
            if value is None:
                return [], []
            if blocks and len(blocks) == 2 and value == len(pointers) and value < _MOST_ARGUMENTS:
                blocks.append(pointers)
                break
            if value == 0:
                blocks.append(pointers)
                pointers = []
            else:
                pointers.append(value)
            address -= self.word.size
        if len(blocks) < 3:
            return [], []
        environment, arguments = blocks[1], blocks[2]
        return self._strings(arguments[::-1]), self._strings(environment[::-1])

    def _strings(self, addresses: Sequence[int]) -> list[str]:
        texts, room = [], MOST_ARGUMENT_BYTES
        for number, address in enumerate(addresses[:_MOST_ARGUMENTS]):
            text = string_at(self, address, min(room, MOST_STRING))
            if text is not None:
                texts.append(text)
                room -= len(text) + 1
            if room <= 0:
                message = f"{len(addresses) - number - 1:,} arguments or variables were left out: they are longer than Linux allows"
                self.soft_errors.append(SoftError(stage="notes", message=message))
                break
        return texts

    def _find_auxiliary_vector(self) -> Optional[int]:
        needle = self._auxv_bytes[: 8 * self.word.size]
        if len(needle) < 8 * self.word.size:
            return None
        # The main thread's stack is the segment of the strings that the vector points to (AT_RANDOM).
        random = self.auxv.get(notes.AT_RANDOM, 0)
        stack = self.segment(random)
        if stack is None:
            return None
        window = min(stack.stored, 8 << 20)
        start = stack.start + stack.stored - window
        at = self._at(start, window).rfind(needle)
        if at < 0:
            return None
        # Up to the address by which the stack was found, so that a minimal core has all of it in one segment.
        self.read(start + at, min(random + 16 - start - at, _MOST_BEHIND))
        return start + at


def _one_at_a_time(read: Read) -> Read:
    """For threads that share a file, and with it its position."""
    lock = threading.Lock()

    def locked(offset: int, size: int) -> bytes:
        with lock:
            return read(offset, size)

    return locked


def _by_blocks(read: Read) -> Read:
    """Reads ahead: a few bytes here and there are read thousands of times, and each time other threads may take the processor."""
    blocks: dict[int, bytes] = {}

    def read_ahead(offset: int, size: int) -> bytes:
        number, start = divmod(offset, _BLOCK)
        if not 0 < size <= _BLOCK - start or offset < 0:
            return read(offset, size)
        block = blocks.get(number)
        if block is None:
            if len(blocks) >= _MOST_BLOCKS:
                blocks.clear()
            block = blocks[number] = read(number * _BLOCK, _BLOCK)
        data = block[start : start + size]
        # What is no file on a disk may have a hole in this block.
        return data if len(data) == size else read(offset, size)

    return read_ahead


class _Holes:
    """Which parts of a file are not stored, because they are zeros (lseek(2), SEEK_DATA)."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._size = size
        self._descriptor = -1
        # Opened anew: it has a position of its own. What is in memory, or on no file system that tells, has no holes.
        with suppress(OSError, ValueError):
            self._descriptor = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._descriptor)

    def has(self, start: int, size: int) -> bool:
        """Whether all of this part is a hole."""
        if self._descriptor < 0 or start + size > self._size:
            return False
        try:
            return os.lseek(self._descriptor, start, os.SEEK_DATA) >= start + size
        except OSError as error:
            return error.errno == errno.ENXIO  # nothing but a hole to the end


def open_core(file: BinaryIO, path: Path, size: int) -> Optional[Core]:
    """Open the core in this file; None if it is not an ELF file. `size`: bytes of the file.

    Raises EvidenceError for an ELF file that is not a core, and for an unreadable core.
    """
    file.seek(0)
    if file.read(4) != b"\x7fELF":
        return None
    return Core(file, path, size)


def _open_elf(read: Read, path: Path) -> Header:
    header = read_header(read)
    if header is None:
        raise EvidenceError(
            f"{path} looks like an ELF file but its header is damaged",
            "Check that the core was copied completely, for example with `readelf -h`.",
        )
    if header.machine == _EM_CUDA:
        raise EvidenceError(
            f"{path} is a GPU core; this version reads CPU cores only",
            "Open it with cuda-gdb (`target cudacore FILE`), and pass the CPU core of the same crash to crashkit.",
        )
    if header.kind != ET_CORE:
        kinds = {ET_EXEC: "an executable", ET_DYN: "an executable or a shared library", ET_REL: "an object file"}
        raise EvidenceError(
            f"{path} is an ELF file but {kinds.get(header.kind, 'of another type')}, not a core",
            "Pass the core file of the crash; pass the executable with --exe.",
        )
    return header


def _containing(segments: Sequence[Segment], starts: Sequence[int], address: int) -> Optional[Segment]:
    index = bisect.bisect_right(starts, address) - 1
    return segments[index] if index >= 0 and address < segments[index].end else None


def _mapping(start: int, end: int, segment: Optional[Segment], file: Optional[notes.FileMapping]) -> Mapping:
    return Mapping(
        start=Address(start),
        end=Address(end),
        permissions=_permissions(segment.flags) if segment else None,
        path=file.path if file else None,
        offset=Offset(file.offset + start - file.start) if file else None,
    )


def _permissions(flags: int) -> str:
    return "".join(letter if flags & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
