"""What is at an address, in words: a module, the stack of the crashed thread, anonymous memory. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from crashkit import arch
from crashkit.model import Mapping, Module, Thread
from crashkit.report.wording import base_name


@dataclass(frozen=True)
class AddressSpace:
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
