"""Names for frames of modules that gdb was not given whole. Knows no gdb: while it works through its questions, names are looked up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Optional

import msgspec

from crashkit.debugger.gdb.session import NativeResult, NativeRow
from crashkit.elf.symbols import SymbolTable
from crashkit.evidence.core.modules import LoadedModule, ModuleIndex
from crashkit.naming.functions import without_suffix


class Names(msgspec.Struct, frozen=True):
    """What symbol tables call the frames that gdb could not name."""

    by_address: dict[int, str]
    """As compilers write them."""
    kinds: dict[str, str]
    """Each such module's kind of table, by its path in the core."""

    @property
    def plain(self) -> list[str]:
        """The names to be demangled: gdb's demangler refuses one with a compiler-added suffix (`.constprop.0`)."""
        return sorted({without_suffix(name) for name in self.by_address.values()})


class FileNames(msgspec.Struct, frozen=True):
    """Names from the symbol table of one file."""

    table: SymbolTable
    by_address: dict[int, str]
    """As compilers write them, by the address in the file."""


def usual_names(file: Path, addresses: Iterable[int]) -> FileNames:
    """The names of those functions that the unwind tables and the symbol table know alike. Raises OSError, ValueError."""
    table = SymbolTable.load(file)
    return FileNames(table, {address: symbol.name for address, symbol in table.usual_names(addresses).items()})


def names_missing(
    native: NativeResult, index: ModuleIndex, files: Mapping[str, Optional[Path]], early: Mapping[str, FileNames] = MappingProxyType({})
) -> Names:
    """The names of the frames that gdb could not name, from their modules' symbol tables. Modules that cannot be read name nothing.

    `early` are names that were looked up before, by the module's path.
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
        known = early[path].by_address if path in early else {}
        left = [address - bias for address in addresses if address - bias not in known]
        try:
            table = early[path].table if path in early else SymbolTable.load(file)
            found = table.names(left) if left else {}
        except (OSError, ValueError):
            continue
        kinds[path] = table.kind
        names.update((address, known[address - bias]) for address in addresses if address - bias in known)
        names.update((address + bias, symbol.name) for address, symbol in found.items())
    return Names(names, kinds)


def corrected(native: NativeResult, names: Mapping[int, Optional[str]]) -> NativeResult:
    """The stacks with these names of functions, by program counter; those with debug info keep theirs."""

    def kept(rows: Sequence[NativeRow]) -> tuple[NativeRow, ...]:
        return tuple(msgspec.structs.replace(row, function=names[row.pc]) if row.pc in names and not row.debug else row for row in rows)

    threads = tuple(msgspec.structs.replace(thread, frames=kept(thread.frames), outer=kept(thread.outer)) for thread in native.threads)
    return msgspec.structs.replace(native, threads=threads)


def with_names(native: NativeResult, names: Names, demangled: Mapping[str, str]) -> NativeResult:
    """The stacks with these names; `demangled` are the readable ones of `names.plain`."""
    readable = {address: demangled.get(without_suffix(name), name) for address, name in names.by_address.items()}
    threads = tuple(
        msgspec.structs.replace(thread, frames=_named(thread.frames, readable), outer=_named(thread.outer, readable))
        for thread in native.threads
    )
    return msgspec.structs.replace(native, threads=threads)


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
