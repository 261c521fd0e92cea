"""What the modules' own tables say about an address: whether they cover its unwinding, where its function starts, and its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from crashkit.arch import Architecture
from crashkit.elf.function_parts import parts
from crashkit.elf.symbols import SymbolTable
from crashkit.elf.unwind_table import UnwindTable
from crashkit.evidence.core.modules import ModuleIndex


class Unwinding:
    """Whether the unwind tables of the modules cover an address. Reads each module's table once."""

    def __init__(self, index: ModuleIndex, files: Mapping[str, Optional[Path]], architecture: Architecture) -> None:
        self._index = index
        self._architecture = architecture
        self._files = files
        self._tables: dict[str, Optional[UnwindTable]] = {}

    def covers(self, address: int) -> Optional[bool]:
        """Whether unwind tables cover the address; None if unknown."""
        module = self._index.at(address)
        if module is None:
            return None
        if module.path not in self._tables:
            self._tables[module.path] = self._load(module.path)
        table = self._tables[module.path]
        return table.covers(address - module.bias) if table and table.is_known else None

    def function_start(self, address: int) -> Optional[int]:
        """Where the function at the address starts, in the process."""
        module = self._index.at(address)
        if module is None or self.covers(address) is None:
            return None
        table = self._tables[module.path]
        found = table.function(address - module.bias) if table else None
        return found.start + module.bias if found else None

    def parts(self, base: int, name: str, calls_last: bool = True) -> frozenset[int]:
        """Start addresses of the named function of the module at `base`, and of the parts that the compiler moved elsewhere.

        `calls_last`: whether the function may end with calls of others.
        """
        module = self._index.at(base)
        file = self._files.get(module.path) if module else None
        if module is None or file is None or self.covers(base) is None:
            return frozenset()
        table = self._tables[module.path]
        try:
            symbol = SymbolTable.load(file).find(name)
        except (OSError, ValueError):
            return frozenset()
        found = parts(table, symbol.start, self._architecture.jumps, calls_last) if table and symbol else frozenset()
        return frozenset(start + module.bias for start in found)

    def name(self, address: int) -> Optional[str]:
        """The function at the address, as its module's symbol table has it (mangled)."""
        module = self._index.at(address)
        file = self._files.get(module.path) if module else None
        if module is None or file is None:
            return None
        try:
            symbol = SymbolTable.load(file).name(address - module.bias)
        except (OSError, ValueError):
            return None
        return symbol.name if symbol else None

    def _load(self, path: str) -> Optional[UnwindTable]:
        file = self._files.get(path)
        try:
            return UnwindTable.load(file) if file else None
        except (OSError, ValueError):
            return None
