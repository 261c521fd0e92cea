"""A set of pages of a process's memory: which ones were read."""

from __future__ import annotations

from collections.abc import Iterator

SIZE = 128
"""Bytes: less than a page of the processor, since few bytes of each page are read. A power of two."""
_MOST = 1 << 22
"""Pages kept: 512 MiB."""


class Pages:
    """Pages by number; adding memory of any size and place is safe, as long as there are not too many pages."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()

    def add(self, address: int, size: int) -> None:
        """Add the pages that hold these bytes."""
        if size > 0 and address >= 0 and len(self._numbers) + size // SIZE < _MOST:
            self._numbers.update(range(address // SIZE, (address + size - 1) // SIZE + 1))

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Start and end of each run of neighbouring pages, by address."""
        numbers = sorted(self._numbers.copy())
        first = 0
        for at in range(1, len(numbers) + 1):
            if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
                yield numbers[first] * SIZE, (numbers[at - 1] + 1) * SIZE
                first = at
