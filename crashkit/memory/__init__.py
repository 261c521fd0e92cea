"""The contract for reading a process's memory, from a core or from a live process."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as AnyMapping
from typing import TYPE_CHECKING, NamedTuple, Optional, Protocol

if TYPE_CHECKING:
    from crashkit.arch import Architecture
    from crashkit.elf.headers import Word
    from crashkit.model import Mapping

MOST_STRING = 128 << 10
"""Most bytes read of one string."""
SCANNED = 4 << 20
"""Most bytes of a piece of memory that is searched."""
PAGE = 4096
"""Bytes of the processor's smallest page, and of what is read at once."""
_STEP = 256


class MemoryThread(NamedTuple):
    """One thread of a process."""

    tid: int
    registers: AnyMapping[str, int]
    """Named as in gdb; empty if unknown."""


class Memory(Protocol):
    """Implemented by cores and live processes. No method raises once it is open."""

    @property
    def architecture(self) -> Architecture:
        """The processor of the process."""
        ...

    @property
    def word(self) -> Word:
        """Size and byte order of a machine word."""
        ...

    @property
    def page(self) -> int:
        """Bytes that are read at once by whoever needs some of them, a power of two. Few where all that is read counts."""
        ...

    def read(self, address: int, size: int) -> bytes:
        """Memory at the address; short or empty if it is missing."""
        ...

    def scan(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """What is there between the addresses, to search it: pieces of up to SCANNED bytes, with their addresses.

        What a search finds is then `read`: only that counts as used.
        """
        ...

    def mappings(self) -> Sequence[Mapping]:
        """The address space, by start address."""
        ...

    def threads(self) -> Sequence[MemoryThread]:
        """All threads; the crashed one first, if one crashed."""
        ...


def word_at(memory: Memory, address: int) -> Optional[int]:
    """The machine word at `address`, unsigned; None if it cannot be read."""
    data = memory.read(address, memory.word.size)
    return int(struct.unpack(memory.word.code, data)[0]) if len(data) == memory.word.size else None


def string_at(memory: Memory, address: int, most: int = MOST_STRING) -> Optional[str]:
    """The NUL-terminated string at the address, up to about `most` bytes; bytes that are not UTF-8 are escaped.

    None if it cannot be read.
    """
    data = bytearray()
    step = _STEP
    while len(data) < most:
        part = memory.read(address + len(data), step)
        if not part:
            return None if not data else data.decode("utf-8", "backslashreplace")
        end = part.find(b"\0")
        data += part if end < 0 else part[:end]
        if end >= 0:
            break
        step *= 2
    return data.decode("utf-8", "backslashreplace")


def scanned(memory: Memory, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """`Memory.scan` of what has no gaps: it ends at the first one."""
    for address in range(start, end, SCANNED):
        size = min(SCANNED, end - address)
        data = memory.read(address, size)
        if data:
            yield address, data
        if len(data) < size:
            return


def mapping_at(mappings: Sequence[Mapping], address: int) -> Optional[Mapping]:
    """The mapping that contains `address`; None if none does."""
    return next((one for one in mappings if one.start <= address < one.end), None)
