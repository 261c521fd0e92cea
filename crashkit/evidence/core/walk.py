"""Walks a thread's native frames by the unwind tables of its modules' files, without a debugger: for what the frames were passed.

The stack that the report shows is the debugger's, which also knows other ways. This walk ends where no table tells the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.elf.symbols import SymbolTable
from crashkit.elf.unwind_table import UnwindTable
from crashkit.evidence.core.core import Core
from crashkit.evidence.core.modules import LoadedModule, ModuleIndex
from crashkit.evidence.module_files import ModuleFile
from crashkit.memory import word_at

MOST_FRAMES = 64
_LARGEST = 64 << 20
"""Bytes of a file whose functions are named: the tables of larger ones take long."""


class Frame(NamedTuple):
    """One native frame: where it is, and the registers that are known in it."""

    pc: int
    registers: Mapping[str, int]
    module: Optional[LoadedModule]
    start: Optional[int]
    """Where its function, or the part of it, begins in memory."""
    is_caller: bool
    """Whether `pc` is a return address."""

    @property
    def looked_up(self) -> int:
        """An address within the instruction that is running."""
        return self.pc - self.is_caller


def walk(core: Core, modules: Sequence[LoadedModule], files: Mapping[str, ModuleFile], registers: Mapping[str, int]) -> list[Frame]:
    """The frames from these registers outward, as far as tables tell and MOST_FRAMES."""
    arch, index = core.architecture, ModuleIndex(modules)
    found: list[Frame] = []
    is_caller = False
    pc = registers.get(arch.program_counter)
    known = dict(registers)
    while pc and arch.dwarf_registers and len(found) < MOST_FRAMES:
        module = index.at(pc)
        table, bias = _table(module, files), module.bias if module else 0
        reach = table.function(pc - is_caller - bias) if table else None
        found.append(Frame(pc, known, module, reach.start + bias if reach else None, is_caller))
        rules = table.rules(pc - is_caller - bias) if table else None
        sp = known.get(arch.stack_pointer)
        if rules is None:
            # The kernel's frame of a signal handler is the only one that needs an expression.
            signal = next(iter(arch.signal_frames(core.read(sp, 4096), sp)), None) if sp else None
            if signal is None or signal.address != sp:
                break
            known, is_caller, pc = signal.registers, False, signal.registers.get(arch.program_counter)
            continue
        base = known.get(_name(arch.dwarf_registers, rules.base) or "")
        if base is None or sp is None or base + rules.offset <= sp - (not found):
            break
        frame = base + rules.offset
        saved = {number: word_at(core, frame + offset) for number, offset in rules.saved.items()}
        after = {name: known[name] for name in arch.preserved if name in known}
        after |= {name: value for number, value in saved.items() if value is not None and (name := _name(arch.dwarf_registers, number))}
        after[arch.stack_pointer] = frame
        pc = saved.get(rules.return_register) or (
            known.get(_name(arch.dwarf_registers, rules.return_register) or "") if not is_caller else None
        )
        known, is_caller = after, True
    return found


def names(frames: Sequence[Frame], files: Mapping[str, ModuleFile]) -> list[Optional[str]]:
    """The frames' functions, mangled, as the symbol tables of their modules' files have them."""
    found: dict[int, str] = {}
    for module in {frame.module for frame in frames if frame.module is not None}:
        path = files[module.path].path if module.path in files else None
        inside = [frame.looked_up - module.bias for frame in frames if frame.module == module]
        with suppress(OSError):
            if path is not None and path.stat().st_size <= _LARGEST:
                found |= {address + module.bias: symbol.name for address, symbol in SymbolTable.load(path).names(inside).items()}
    return [found.get(frame.looked_up) for frame in frames]


def _name(registers: Sequence[str], number: int) -> Optional[str]:
    return registers[number] if number < len(registers) else None


def _table(module: Optional[LoadedModule], files: Mapping[str, ModuleFile]) -> Optional[UnwindTable]:
    path = files[module.path].path if module is not None and module.path in files else None
    return _loaded(path) if path is not None else None


@lru_cache(maxsize=32)
def _loaded(path: Path) -> Optional[UnwindTable]:
    try:
        return UnwindTable.load(path)
    except (OSError, ValueError):
        return None
