"""What is at an address, in words: a module, the stack of the crashed thread, anonymous memory. Pure."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import pairwise

import msgspec

from crashkit import arch
from crashkit.model import Address, Mapping, Module, Thread
from crashkit.report.wording import base_name


class Cell(msgspec.Struct, frozen=True):
    """A stretch of the address space: a mapping, or a gap between mappings."""

    start: Address
    end: int
    mapping: Mapping | None
    name: str
    """What is mapped there; '' for a gap."""
    hit: bool
    """Whether the address asked for lies in it."""


class AddressSpace(msgspec.Struct, frozen=True, dict=True):
    """Describes what is at an address."""

    mappings: tuple[Mapping, ...]
    modules: tuple[Module, ...]
    stack: int | None = None
    """An address within the crashed thread's stack."""

    @cached_property
    def _sorted(self) -> tuple[list[int], list[Mapping]]:
        ordered = sorted(self.mappings, key=lambda mapping: mapping.start)
        return [mapping.start for mapping in ordered], ordered

    @cached_property
    def _bases(self) -> dict[str, int]:
        return {module.path: module.base for module in self.modules if module.base is not None}

    def mapping(self, address: int) -> Mapping | None:
        """The mapping that contains the address, or None."""
        starts, ordered = self._sorted
        index = bisect_right(starts, address) - 1
        return ordered[index] if index >= 0 and address < ordered[index].end else None

    def around(self, address: int) -> list[Cell]:
        """The mapping or gap that contains the address, between the nearest mappings below and above it; empty without mappings."""
        starts, ordered = self._sorted
        after = bisect_right(starts, address)
        near = ordered[max(after - (2 if self.mapping(address) else 1), 0) : after + 1]
        cells = [Cell(one.start, one.end, one, self.what(one.start), one.start <= address < one.end) for one in near]
        if cells and address < cells[0].start:
            cells.insert(0, Cell(Address(0), cells[0].start, None, "", True))
        if cells and address >= cells[-1].end:
            cells.append(Cell(Address(cells[-1].end), 1 << 64, None, "", True))
        gaps = [
            Cell(Address(one.end), two.start, None, "", one.end <= address < two.start)
            for one, two in pairwise(cells)
            if one.end < two.start
        ]
        return sorted([*cells, *gaps], key=lambda cell: cell.start)

    def what(self, address: int) -> str:
        """`libc.so.6+0x178c5c r-x`, `[stack] rw-`, or nothing."""
        mapping = self.mapping(address)
        if mapping is None:
            return ""
        permissions = f" {mapping.permissions}" if mapping.permissions else ""
        if self.stack is not None and mapping.start <= self.stack < mapping.end:
            return f"stack of the crashed thread{permissions}"
        if not mapping.path:
            return f"anonymous memory{permissions}"
        if mapping.path in self._bases and address >= self._bases[mapping.path]:
            return f"{base_name(mapping.path)}+{address - self._bases[mapping.path]:#x}{permissions}"
        return base_name(mapping.path) + permissions


def stack_pointer(thread: Thread | None) -> int | None:
    """The value of the thread's stack pointer register."""
    return arch.stack_pointer(thread.registers) if thread else None
