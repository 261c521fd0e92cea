"""A CPU core: what its notes say, and its memory. No gdb, milliseconds.

Everything that a core says is hostile: sizes and offsets are checked against the file before anything is read.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, Optional

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

from crashkit.elf import notes
from crashkit.elf.notes import Word
from crashkit.errors import EvidenceError
from crashkit.model import Address, Mapping, Offset, SoftError

_ARCHITECTURES = {"EM_X86_64": "x86_64", "EM_386": "i386", "EM_AARCH64": "aarch64", "EM_ARM": "arm", "EM_RISCV": "riscv"}
_EM_CUDA = 190
# A process has at most max_map_count (65530 by default) segments; the notes of 10,000 threads take 150 MB.
_MOST_SEGMENTS = 1_000_000
_MOST_NOTE_BYTES = 512 << 20
_MOST_ARGUMENTS = 4096
_MOST_STRING = 128 << 10
_MOST_TEXT = 8 << 20
_MOST_OFFSET = (1 << 63) - 1


class Segment(NamedTuple):
    """A PT_LOAD: `size` bytes of address space, of which the file holds `stored` at `position`."""

    start: int
    size: int
    position: int
    stored: int
    flags: int

    @property
    def end(self) -> int:
        return self.start + self.size


class Core:
    """One CPU core file, opened. Use as a context manager, or `close` it.

    Raises EvidenceError where the file is no ELF core of a CPU.
    """

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self._file = file
        self.path = path
        self.size = size
        self.soft_errors: list[SoftError] = []
        elf = _open_elf(file, path)
        self.architecture = _ARCHITECTURES.get(elf["e_machine"], str(elf["e_machine"]))
        self.word = Word(elf.elfclass // 8, "<" if elf.little_endian else ">")
        segments, note_parts = self._read_segments(elf)
        self.segments = segments
        self._starts = [segment.start for segment in segments]
        cut = sum(max(0, min(s.stored, s.position + s.stored - size)) for s in segments)
        self.missing = min(cut, _MOST_OFFSET)
        self._read_notes(note_parts)

    def __enter__(self) -> Core:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    @property
    def truncated(self) -> bool:
        return self.missing > 0 or self._headers_cut

    def _read_segments(self, elf: ELFFile) -> tuple[list[Segment], list[bytes]]:
        segments, note_parts = [], []
        try:
            count = elf.num_segments()
        except (ELFError, ConstructError, struct.error, OSError):
            # More than 65534 segments: the true count stands in section header 0, which truncation can take away.
            count = elf["e_phnum"]
        entry_size = max(elf["e_phentsize"], 56 if self.word.size == 8 else 32)
        promised = min(count, _MOST_SEGMENTS)
        count = min(promised, max(0, self.size - elf["e_phoff"]) // entry_size)
        self._headers_cut = count < promised
        if self._headers_cut:
            message = f"the core is cut off within its headers: {promised - count:,} of {promised:,} segments are not described"
            self.soft_errors.append(SoftError(stage="notes", message=message))
        layout = self.word.order + ("IIQQQQQQ" if self.word.size == 8 else "IIIIIIII")
        table = self._read_file(elf["e_phoff"], count * entry_size)
        room = _MOST_NOTE_BYTES
        for at in range(0, len(table) - struct.calcsize(layout) + 1, entry_size):
            fields = struct.unpack_from(layout, table, at)
            if self.word.size == 8:
                kind, flags, position, start, _physical, stored, size, _align = fields
            else:
                kind, position, start, _physical, stored, size, flags, _align = fields
            if kind == 1:
                segments.append(Segment(start, size, position, min(stored, size), flags))
            elif kind == 4 and position < self.size:
                note_parts.append(self._read_file(position, min(stored, room)))
                room -= len(note_parts[-1])
                if len(note_parts[-1]) < stored:
                    self.soft_errors.append(SoftError(stage="notes", message="the notes of the core are cut off: threads may be missing"))
        segments.sort()
        return segments, note_parts

    def _read_file(self, position: int, size: int) -> bytes:
        if position >= self.size:  # a file system refuses to seek far beyond it
            return b""
        self._file.seek(position)
        return self._file.read(size)

    def _read_notes(self, parts: Sequence[bytes]) -> None:
        self.statuses: list[notes.Status] = []
        self.process: Optional[notes.ProcessInfo] = None
        self.signal: Optional[notes.SignalInfo] = None
        self.auxv: dict[int, int] = {}
        self.files: list[notes.FileMapping] = []
        self._auxv_bytes = b""
        every = chain.from_iterable(notes.split(part, self.word.order) for part in parts)
        for _name, kind, payload in islice(every, notes.MOST_NOTES):
            if kind == notes.NT_PRSTATUS:
                status = notes.status(payload, self.word, self.architecture)
                if status:
                    self.statuses.append(status)
            elif kind == notes.NT_PRPSINFO:
                self.process = notes.process_info(payload, self.word)
            elif kind == notes.NT_SIGINFO:
                self.signal = notes.signal_info(payload, self.word)
            elif kind == notes.NT_AUXV:
                self.auxv = notes.auxiliary_vector(payload, self.word)
                self._auxv_bytes = payload
            elif kind == notes.NT_FILE:
                self.files = notes.file_mappings(payload, self.word)
        if not self.statuses:
            self.soft_errors.append(
                SoftError(
                    stage="notes",
                    message="the core holds no thread: its notes are missing or damaged",
                    hint="Make the core again, with room for all of it (ulimit -c unlimited, free disk).",
                )
            )

    def segment(self, address: int) -> Optional[Segment]:
        """The segment that holds the address, dumped or not."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index >= 0 and address < self.segments[index].end:
            return self.segments[index]
        return None

    def read(self, address: int, size: int) -> bytes:
        """Memory at the address; short, or empty, where the core does not hold it. Crosses adjacent segments."""
        parts = []
        while size > 0:
            segment = self.segment(address)
            if segment is None:
                break
            offset = address - segment.start
            length = min(size, segment.stored - offset)
            if length <= 0 or segment.position + offset >= self.size:
                break
            part = self._read_file(segment.position + offset, length)
            parts.append(part)
            if len(part) < length:
                break
            address += length
            size -= length
        return b"".join(parts)

    def word_at(self, address: int) -> Optional[int]:
        data = self.read(address, self.word.size)
        return struct.unpack(self.word.code, data)[0] if len(data) == self.word.size else None

    def string_at(self, address: int) -> Optional[str]:
        """The NUL-terminated string at the address; bytes that are not UTF-8 are escaped. None where it is not in the core."""
        data = b""
        while len(data) < _MOST_STRING:
            part = self.read(address + len(data), 256)
            if not part:
                return None if not data else data.decode("utf-8", "backslashreplace")
            end = part.find(b"\0")
            if end >= 0:
                return (data + part[:end]).decode("utf-8", "backslashreplace")
            data += part
        return data.decode("utf-8", "backslashreplace")

    def mappings(self) -> list[Mapping]:
        """The address space: segments, with the file that each was mapped from."""
        files = {file.start: file for file in self.files}
        found = []
        for segment in self.segments:
            file = files.get(segment.start) or self._file_at(segment.start)
            found.append(
                Mapping(
                    start=Address(segment.start),
                    end=Address(segment.end),
                    permissions=_permissions(segment.flags),
                    path=file.path if file else None,
                    offset=Offset(file.offset + segment.start - file.start) if file else None,
                )
            )
        return found

    def _file_at(self, address: int) -> Optional[notes.FileMapping]:
        index = bisect.bisect_right(self.files, address, key=lambda file: file.start) - 1
        if index >= 0 and address < self.files[index].end:
            return self.files[index]
        return None

    def executable(self) -> Optional[str]:
        """The executable's path inside the crashed system: the file mapped at the program headers that the kernel gave the process."""
        for key in (notes.AT_PHDR, notes.AT_ENTRY):
            file = self._file_at(self.auxv[key]) if key in self.auxv else None
            if file and file.path:
                return file.path
        return None

    def arguments_and_environment(self) -> tuple[list[str], list[str]]:
        """argv and the environment, read from the stack below the auxiliary vector (`create_elf_tables`, fs/binfmt_elf.c).

        Both empty where that part of the stack is not in the core.
        """
        vector = self._find_auxiliary_vector()
        if vector is None:
            return [], []
        pointers: list[int] = []
        address = vector - self.word.size
        # Above argc lie argv, NULL, the environment, NULL; read down until the word that counts what is above it.
        blocks: list[list[int]] = []
        for _ in range(4 * _MOST_ARGUMENTS):
            value = self.word_at(address)
            if value is None:
                return [], []
            if blocks and len(blocks) == 2 and value == len(pointers) and value < _MOST_ARGUMENTS:
                blocks.append(pointers)
                break
            if value == 0:
                blocks.append(pointers)
                pointers = []
            else:
                pointers.insert(0, value)
            address -= self.word.size
        if len(blocks) < 3:
            return [], []
        environment, arguments = blocks[1], blocks[2]
        return self._strings(arguments), self._strings(environment)

    def _strings(self, addresses: Sequence[int]) -> list[str]:
        texts, room = [], _MOST_TEXT
        for address in addresses[:_MOST_ARGUMENTS]:
            text = self.string_at(address)
            if text is not None and room > 0:
                texts.append(text)
                room -= len(text)
        return texts

    def _find_auxiliary_vector(self) -> Optional[int]:
        needle = self._auxv_bytes[: 8 * self.word.size]
        if len(needle) < 8 * self.word.size:
            return None
        # The main thread's stack is the segment of the strings that the vector points to (AT_RANDOM, 25).
        stack = self.segment(self.auxv.get(25, 0))
        if stack is None:
            return None
        window = min(stack.stored, 8 << 20)
        start = stack.start + stack.stored - window
        at = self.read(start, window).rfind(needle)
        return start + at if at >= 0 else None


def open_core(file: BinaryIO, path: Path, size: int) -> Optional[Core]:
    """The core in this file, or None where the file is something else.

    Raises EvidenceError for an ELF file that is not a core and for a core that cannot be read at all.
    """
    file.seek(0)
    if file.read(4) != b"\x7fELF":
        return None
    return Core(file, path, size)


def _open_elf(file: BinaryIO, path: Path) -> ELFFile:
    file.seek(0)
    try:
        elf = ELFFile(file)
        kind, machine = elf["e_type"], elf["e_machine"]
    except (ELFError, ConstructError, struct.error, OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise EvidenceError(
            f"{path} begins like an ELF file but its header is damaged ({error})",
            "Check that the core was copied whole, for example with `readelf -h`.",
        ) from error
    if machine in (_EM_CUDA, "EM_CUDA"):
        raise EvidenceError(
            f"{path} is a GPU core; this version reads CPU cores only",
            "Open it with cuda-gdb (`target cudacore FILE`), and give the CPU core of the same crash to crashkit.",
        )
    if kind != "ET_CORE":
        what = {"ET_EXEC": "an executable", "ET_DYN": "an executable or a shared library", "ET_REL": "an object file"}.get(kind, "no core")
        raise EvidenceError(
            f"{path} is an ELF file but {what}, not a core",
            "Give the core that the crash left; the executable goes after --exe.",
        )
    return elf


def _permissions(flags: int) -> str:
    return "".join(letter if flags & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
