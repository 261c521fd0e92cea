"""Finds the caller of code without unwind tables, as musl's is: it is built without them, so that debuggers can only guess.

The code itself tells: on its way to its return it takes back what it did to the stack. Where it never returns, as in `abort()`, the stack
is searched. Either way the return address must be behind a call, and where the call names its target, that has to be the function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Optional

import msgspec

from crashkit.arch.contract import SignalFrame
from crashkit.elf.file import open_elf
from crashkit.elf.headers import SHF_EXECINSTR
from crashkit.elf.symbols import Symbol, SymbolTable
from crashkit.evidence.core.constants import read_constant
from crashkit.evidence.core.core import Core
from crashkit.evidence.core.modules import LoadedModule, ModuleIndex
from crashkit.evidence.module_files import ModuleFile
from crashkit.memory import word_at
from crashkit.naming.musl import is_musl

_MOST_SEARCHED = 4 << 10
"""Bytes of a stack."""
_MOST_OF_FUNCTION = 8 << 10
"""Bytes of a function that the symbol table does not have."""
_BEGINNING = 64
_LEAST_SHARE = 200
"""Tables take a tenth of what they are for; musl's are of the few bytes that the compiler's own files add."""


class Places(msgspec.Struct, frozen=True):
    """Where the modules are, and their files."""

    core: Core
    by_address: ModuleIndex
    files: Mapping[str, ModuleFile]


def lacks_tables(module: LoadedModule, files: Mapping[str, ModuleFile]) -> bool:
    """Whether the module has code without unwind tables: by its file or, where that is not here, by musl's names."""
    file = files[module.path].path if module.path in files else None
    if file is None:
        return is_musl(module.path)
    return _lacks_tables(file)


@lru_cache(maxsize=256)
def _lacks_tables(file: Path) -> bool:
    try:
        elf = open_elf(file)
    except OSError:
        return False
    if elf is None:
        return False
    code = sum(one.size for one in elf.sections if one.flags & SHF_EXECINSTR)
    tables = elf.section(".eh_frame")
    return code > 0 and (tables.size if tables else 0) * _LEAST_SHARE < code and elf.section(".debug_frame") is None


class Caller(msgspec.Struct, frozen=True):
    """Who called a function, and as what."""

    registers: dict[str, int]
    """As far as they are known."""
    called: Optional[str]
    """The exported name of what was called, which may have gone on to another function; None if it has none."""


def caller(places: Places, module: LoadedModule, registers: Mapping[str, int], is_caller: bool) -> Optional[Caller]:
    """The caller of the code at these registers; None if it cannot be told for sure."""
    core = places.core
    arch = core.architecture
    pc, sp = registers.get(arch.program_counter), registers.get(arch.stack_pointer)
    if pc is None or sp is None:
        return None
    function = _Function(places, module, pc - is_caller)
    found = arch.at_return(registers, lambda address, size: read_constant(core, places.files, address, size), lambda at: word_at(core, at))
    if found is not None:
        if signal_frame_at(core, found[arch.stack_pointer]) is not None:
            return Caller(found, None)
        called = function.called_before(found[arch.program_counter])
        if called is not None:
            return Caller(found, called.name)
    for address in range(sp, sp + _MOST_SEARCHED, core.word.size):
        word = word_at(core, address)
        if word is None:
            break
        called = function.called_before(word) if places.by_address.at(word) is not None else None
        if called is not None and called.start is not None:
            kept = _preserved(places, range(called.start, pc), registers, address)
            return Caller({**kept, arch.program_counter: word, arch.stack_pointer: address + core.word.size}, called.name)
    return None


def _preserved(places: Places, code: range, registers: Mapping[str, int], entry_sp: int) -> dict[str, int]:
    """What the caller had in the registers that calls preserve, where the function's code up to here shows where that is now."""
    core = places.core
    arch = core.architecture
    followed = arch.values(read_constant(core, places.files, code.start, len(code)), code)
    inside = followed[1] if followed is not None else {}
    sp = registers[arch.stack_pointer]
    if inside.get(arch.stack_pointer) != ("stack", sp - entry_sp):
        # What jumps over a part of the code was not followed.
        return {}
    found: dict[str, int] = {}
    for name in arch.preserved:
        for place, value in inside.items():
            if value == ("entry", name):
                now = registers.get(place) if isinstance(place, str) else word_at(core, entry_sp + place[1])
                found |= {name: now} if now is not None else {}
    return found


def signal_frame_at(core: Core, sp: Optional[int]) -> Optional[SignalFrame]:
    """The kernel's frame of a signal handler, if it begins at this stack pointer: the handler returns to it."""
    # The word before it is the return address that the handler has taken from the stack already.
    before = sp - core.word.size if sp else 0
    found = next(iter(core.architecture.signal_frames(core.read(before, 4096), before)), None) if before > 0 else None
    return found if found is not None and found.address == sp else None


class _Called(msgspec.Struct, frozen=True):
    name: Optional[str]
    start: Optional[int]
    """Where the function begins; None if only registers told what was called."""


class _Function:
    """The function that an address is in."""

    def __init__(self, places: Places, module: LoadedModule, address: int) -> None:
        self._places, self._module, self._address = places, module, address
        symbol = symbol_at(places.files, module, address)
        # What has no size is the nearest one before: between them lie functions that are not exported.
        self._start = symbol.start + module.bias if symbol is not None and symbol.size else None

    def called_before(self, address: int) -> Optional[_Called]:
        """What the call before this return address called, if that may be this function."""
        core, files = self._places.core, self._places.files
        target = core.architecture.called_before(
            address, lambda start, size: read_constant(core, files, start, size), lambda at: word_at(core, at)
        )
        if not target:
            return None if target is None else _Called(None, None)
        start = next(filter(self._begins, self._entries(target)), None)
        symbol = symbol_at(files, self._module, target)
        name = symbol.name if symbol is not None and symbol.start + self._module.bias == target else None
        return None if start is None else _Called(name, start)

    def _entries(self, target: int) -> Iterator[int]:
        """The address, and where the code there goes on: free() of musl is a jump."""
        yield target
        core = self._places.core
        yield from core.architecture.jumps(read_constant(core, self._places.files, target, _BEGINNING), target)

    def _begins(self, entry: int) -> bool:
        if self._start is not None:
            return entry == self._start
        return 0 <= self._address - entry < _MOST_OF_FUNCTION


def symbol_at(files: Mapping[str, ModuleFile], module: LoadedModule, address: int) -> Optional[Symbol]:
    """The function of the module's file that names this address of the process; None if none does."""
    file = files[module.path].path if module.path in files else None
    return _symbols(file).name(address - module.bias) if file is not None else None


@lru_cache(maxsize=16)
def _symbols(file: Path) -> SymbolTable:
    try:
        return SymbolTable.load(file)
    except OSError:
        return SymbolTable(b"", ())
