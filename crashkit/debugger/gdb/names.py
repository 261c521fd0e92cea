"""Names for frames of modules that gdb was not given whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

import msgspec

from crashkit.debugger.gdb.session import NativeResult, NativeRow, Session
from crashkit.elf.symbols import SymbolTable
from crashkit.evidence.core.modules import LoadedModule, ModuleIndex
from crashkit.naming.functions import without_suffix


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
    # gdb's demangler refuses a name with a compiler-added suffix (`.constprop.0`).
    plain = session.demangle(sorted({without_suffix(name) for name in names.values()}))
    readable = {address: plain.get(without_suffix(name), name) for address, name in names.items()}
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
