"""Names of native frames that PyStack does not know, or takes from the wrong function.

PyStack 1.7 looks a frame's name up at its return address. Where the call was the last instruction of its function, as that of a function
that never returns is (`abort()`, `std::terminate()`), the return address is where the next function begins. It also reads no table but
`.symtab`, while a stripped library still has the names of what it exports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

import msgspec

from crashkit.debugger.contract import NativeStack
from crashkit.elf.symbols import SymbolTable
from crashkit.evidence.core.modules import LoadedModule, ModuleIndex
from crashkit.evidence.module_files import ModuleFile
from crashkit.model import NativeFrame
from crashkit.naming.itanium import demangled_function

_LARGEST = 1 << 30
"""Bytes of a file whose table is read."""


def with_names(
    stacks: Mapping[int, NativeStack], modules: Sequence[LoadedModule], files: Mapping[str, ModuleFile]
) -> dict[int, NativeStack]:
    """The stacks with the names that the symbol tables have."""
    index = ModuleIndex(modules)
    wanted: dict[str, set[int]] = {}
    bias: dict[str, int] = {}
    for stack in stacks.values():
        for frame, at in (*_looked_up(stack.frames), *_looked_up(stack.outer, inside=True)):
            module = index.at(at)
            if module is not None and frame.pc is not None:
                bias[module.path] = module.bias
                wanted.setdefault(module.path, set()).update((at - module.bias, int(frame.pc) - module.bias))
    names = {path: _names(files.get(path), addresses) for path, addresses in wanted.items()}
    known = {at + bias[path]: name for path, found in names.items() for at, name in found.items()}
    return {
        tid: stack._replace(frames=_named(_looked_up(stack.frames), known), outer=_named(_looked_up(stack.outer, inside=True), known))
        for tid, stack in stacks.items()
    }


def _looked_up(frames: Sequence[NativeFrame], inside: bool = False) -> Iterator[tuple[NativeFrame, int]]:
    """Each frame with an address within the instruction that it is at. `inside`: the frames have inner ones that are not here."""
    innermost = None if inside or not frames else frames[0].pc
    interrupted = False
    for frame in frames:
        if interrupted:
            innermost, interrupted = frame.pc, False
        yield frame, int(frame.pc or 0) - (frame.pc != innermost)
        interrupted = frame.trust == "signal"


def _named(frames: Iterator[tuple[NativeFrame, int]], known: Mapping[int, str]) -> tuple[NativeFrame, ...]:
    named: list[NativeFrame] = []
    for frame, at in frames:
        right = known.get(at)
        is_next = frame.pc is not None and at != frame.pc and known.get(int(frame.pc)) != right
        if right is not None and frame.trust != "inline" and frame.trust != "signal" and (frame.function is None or is_next):
            frame = msgspec.structs.replace(frame, function=demangled_function(right))
        named.append(frame)
    return tuple(named)


def _names(file: Optional[ModuleFile], addresses: set[int]) -> dict[int, str]:
    if file is None or file.path is None:
        return {}
    try:
        if file.path.stat().st_size > _LARGEST:
            return {}
        return {address: symbol.name for address, symbol in SymbolTable.load(file.path).names(addresses).items()}
    except (OSError, ValueError):
        return {}
