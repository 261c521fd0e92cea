"""Names and trust for frames of modules that gdb was not given whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

import msgspec

from crashkit.debugger.function_parts import parts
from crashkit.debugger.session import NativeResult, NativeRow, Session
from crashkit.debugger.symbols import SymbolTable
from crashkit.debugger.unwind_table import UnwindTable
from crashkit.evidence.modules import LoadedModule, ModuleIndex

_SUFFIXES = (".cold", ".constprop", ".isra", ".part", ".lto_priv", ".localalias", ".llvm")


def complete_names(
    native: NativeResult, index: ModuleIndex, files: Mapping[str, Optional[Path]], session: Session
) -> tuple[NativeResult, dict[str, str]]:
    """`native` with the frames that gdb could not name looked up in their modules' symbol tables, and each such module's kind of table.

    Modules that cannot be read name nothing.
    """
    wanted: dict[str, set[int]] = {}
    modules: dict[str, LoadedModule] = {}
    for thread in native.threads:
        for rows in (thread.frames, thread.outer):
            for address, module in _nameless(rows, index):
                modules[module.path] = module
                wanted.setdefault(module.path, set()).add(address)
    names: dict[int, str] = {}
    kinds: dict[str, str] = {}
    for path, addresses in wanted.items():
        file = files.get(path)
        if file is None:
            continue
        bias = modules[path].bias
        try:
            table = SymbolTable.load(file)
            found = table.names(address - bias for address in addresses)
        except (OSError, ValueError):
            continue
        kinds[path] = table.kind
        names.update((address + bias, symbol.name) for address, symbol in found.items())
    plain = session.demangle(sorted({_without_suffix(name) for name in names.values()}))
    readable = {address: plain.get(_without_suffix(name), name) for address, name in names.items()}
    threads = tuple(
        msgspec.structs.replace(thread, frames=_named(thread.frames, readable), outer=_named(thread.outer, readable))
        for thread in native.threads
    )
    return msgspec.structs.replace(native, threads=threads), kinds


def _nameless(rows: Sequence[NativeRow], index: ModuleIndex) -> list[tuple[int, LoadedModule]]:
    return [
        (address, module)
        for row, address in zip(rows, call_addresses(rows), strict=True)
        if row.function is None and row.kind == "normal" and (module := index.at(row.pc))
    ]


def _named(rows: Sequence[NativeRow], names: Mapping[int, str]) -> tuple[NativeRow, ...]:
    return tuple(
        msgspec.structs.replace(row, function=names[address]) if row.function is None and row.kind == "normal" and address in names else row
        for row, address in zip(rows, call_addresses(rows), strict=True)
    )


def call_addresses(rows: Sequence[NativeRow]) -> list[int]:
    """An address inside the code of each frame: a return address can lie behind its function's end, the byte before it cannot."""
    addresses = []
    exact = not (rows and rows[0].found)
    for row in rows:
        addresses.append(row.pc if exact else row.pc - 1)
        if row.kind != "inline":
            exact = row.kind == "signal"
    return addresses


def _without_suffix(name: str) -> str:
    """gdb's demangler refuses a name with what the compiler hung on it (`.constprop.0`)."""
    cut = min((at for suffix in _SUFFIXES if (at := name.find(suffix)) > 0), default=len(name))
    return name[:cut]


class Unwinding:
    """Whether the unwind tables of the modules cover an address. Reads each module's table once."""

    def __init__(self, index: ModuleIndex, files: Mapping[str, Optional[Path]]) -> None:
        self._index = index
        self._files = files
        self._tables: dict[str, Optional[UnwindTable]] = {}

    def covers(self, address: int) -> Optional[bool]:
        """None where that cannot be told."""
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

    def parts(self, base: int, name: str) -> frozenset[int]:
        """Where in the process that function of the module at `base` starts, and where the parts that the compiler moved elsewhere do."""
        module = self._index.at(base)
        file = self._files.get(module.path) if module else None
        if module is None or file is None or self.covers(base) is None:
            return frozenset()
        table = self._tables[module.path]
        try:
            symbol = SymbolTable.load(file).find(name)
        except (OSError, ValueError):
            return frozenset()
        found = parts(table, symbol.start) if table and symbol else frozenset()
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
