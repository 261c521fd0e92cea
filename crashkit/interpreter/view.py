"""Numbers and bytes of a process's memory, read by the page: a walk through CPython's structures takes a few words of each place."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Optional

from crashkit.memory import Memory

_MOST_KEPT = 32 << 20
"""Bytes of all pages that are kept."""
_UNCHECKED = 16
"""Reads between two looks at the time."""
_TOP = 1 << 64


Read = Callable[[int, int], bytes]
"""Up to so many bytes at an address; fewer or none if they are missing."""


class Unreadable(Exception):
    """The memory is missing, or what it holds cannot be what it should be."""


class TimeUp(Exception):
    """The time for what is being read has run out.

    No kind of Unreadable: who skips what cannot be read goes on with the next, and this ends all of it.
    """


class View:
    """A `Memory` as numbers. All methods raise Unreadable for memory that is missing.

    `read` takes the place of the memory's own, for what other sources know of it.
    """

    def __init__(self, memory: Memory, read: Optional[Read] = None) -> None:
        self.memory = memory
        self._read = read or memory.read
        self.word_size = memory.word.size
        order = memory.word.order
        self._page_size = memory.page
        self._pages: dict[int, bytes] = {}
        self._ends: Optional[float] = None
        self._unchecked = 0
        self._word = struct.Struct(memory.word.code)
        self._int32 = struct.Struct(order + "i")
        self._uint32 = struct.Struct(order + "I")
        self._uint16 = struct.Struct(order + "H")
        self._double = struct.Struct(order + "d")

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """So much processor time the reading in here may take; what takes longer raises TimeUp, wherever it is.

        Not the time on the clock: on a busy machine, little would be read of what is there.
        """
        before = self._ends
        self._ends = time.thread_time() + seconds
        try:
            yield
        finally:
            self._ends = before

    def check_time(self) -> None:
        """For loops whose steps are reads in line. Raises TimeUp."""
        if self._ends is not None and time.thread_time() > self._ends:
            raise TimeUp

    def word(self, address: int) -> int:
        """The machine word at `address`, unsigned."""
        try:
            # The common case, in line: a stack overflow has a hundred thousand frames.
            return int(self._word.unpack_from(self._pages[address // self._page_size], address % self._page_size)[0])
        except (KeyError, struct.error):
            return int(self._word.unpack(self.data(address, self.word_size))[0])

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """So many machine words, unsigned; the caller has bounded `count`."""
        code = self.memory.word.code
        return struct.unpack(f"{code[:-1]}{count}{code[-1]}", self.data(address, count * self.word_size))

    def signed_word(self, address: int) -> int:
        """The machine word at `address`, signed."""
        value = self.word(address)
        return value - (1 << 8 * self.word_size) if value >> (8 * self.word_size - 1) else value

    def int32(self, address: int) -> int:
        """The C int at `address`."""
        return int(self._int32.unpack(self.data(address, 4))[0])

    def uint32(self, address: int) -> int:
        """The unsigned C int at `address`."""
        return int(self._uint32.unpack(self.data(address, 4))[0])

    def uint16(self, address: int) -> int:
        """The unsigned C short at `address`."""
        return int(self._uint16.unpack(self.data(address, 2))[0])

    def byte(self, address: int) -> int:
        """The byte at `address`."""
        return self.data(address, 1)[0]

    def double(self, address: int) -> float:
        """The C double at `address`."""
        return float(self._double.unpack(self.data(address, 8))[0])

    def data(self, address: int, size: int) -> bytes:
        """Exactly `size` bytes; the caller has bounded `size`."""
        if self._ends is not None:
            self._unchecked += 1
            # The kernel is asked for it, which takes longer than most reads.
            if self._unchecked % _UNCHECKED == 0:
                self.check_time()
        if not 0 <= address < _TOP - size or size < 0:
            raise Unreadable(f"no memory at {address:#x}")
        number, offset = divmod(address, self._page_size)
        data = self._page(number)[offset : offset + size] if offset + size <= self._page_size else b""
        if len(data) < size:
            # What begins or ends within a page, or is in more than one.
            data = self._read(address, size)
        if len(data) < size:
            raise Unreadable(f"the memory at {address:#x} is missing")
        return data

    def string(self, address: int, most: int) -> str:
        """The NUL-terminated string at `address`, of at most `most` bytes."""
        text, end, _ = self._read(address, most).partition(b"\0")
        if not end:
            raise Unreadable(f"no string at {address:#x}")
        return text.decode("utf-8", "backslashreplace")

    def _page(self, number: int) -> bytes:
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) >= _MOST_KEPT // self._page_size:
                self._pages.clear()
            page = self._pages[number] = self._read(number * self._page_size, self._page_size)
        return page
