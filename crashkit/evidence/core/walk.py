"""Walks a thread's native frames by the unwind tables of its modules' files, without a debugger: for what the frames were passed.

The stack that the report shows is the debugger's, which also knows other ways. This walk ends where no table tells the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Optional

import msgspec

from crashkit.elf.symbols import SymbolTable
from crashkit.elf.unwind_table import UnwindTable
from crashkit.evidence.core.constants import read_constant
from crashkit.evidence.core.core import Core
from crashkit.evidence.core.modules import LoadedModule, ModuleIndex
from crashkit.evidence.core.untabled import Places, caller, lacks_tables, signal_frame_at, symbol_at
from crashkit.evidence.module_files import ModuleFile
from crashkit.memory import word_at
from crashkit.naming.musl import is_musl

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

    called: Optional[str] = None
    """Of code without unwind tables: the exported name by which the function was called."""

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
        if rules is None and module is not None and lacks_tables(module, files) and signal_frame_at(core, sp) is None:
            calling = caller(Places(core, index, files), module, {**known, arch.program_counter: pc}, is_caller)
            if calling is None:
                break
            known, pc = calling.registers, calling.registers[arch.program_counter]
            found[-1] = found[-1]._replace(called=calling.called)
            is_caller = signal_frame_at(core, known[arch.stack_pointer]) is None
            continue
        if rules is None:
            # The kernel's frame of a signal handler is the only one that needs an expression.
            signal = signal_frame_at(core, sp)
            if signal is None:
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


class Step(msgspec.Struct, frozen=True):
    """From a frame of code without unwind tables to its caller."""

    pc: int
    sp: int
    registers: Mapping[str, int]
    """The caller's; of a signal handler's frame those of the interrupted code."""
    is_signal: bool


class Walked(msgspec.Struct, frozen=True):
    """A frame that `walk` found."""

    pc: int
    function: Optional[str]
    """Mangled; None if it has no name."""
    is_signal: bool


class Steps(msgspec.Struct, frozen=True):
    """What debuggers cannot know of code without unwind tables: where its frames return to."""

    found: tuple[Step, ...] = ()
    modules: frozenset[str] = frozenset()
    """Paths of the modules that lack tables."""
    names: Mapping[int, Optional[str]] = MappingProxyType({})
    """By program counter: what a function that is not exported was called as, or None where the nearest name before it is not its own."""
    walks: Mapping[int, tuple[Walked, ...]] = MappingProxyType({})
    """The frames of the threads that such code is in, by tid: for whoever cannot be told the steps."""


def untabled_steps(
    core: Core, modules: Sequence[LoadedModule], files: Mapping[str, ModuleFile], threads: Mapping[int, Mapping[str, int]]
) -> Steps:
    """The steps of the threads with these tids and registers out of modules without unwind tables, as far as `walk` leads."""
    if not any(is_musl(module.path) for module in modules):
        # Looking into the files of all modules takes a while, and of other systems' none is without tables.
        return Steps()
    lacking = frozenset(module.path for module in modules if lacks_tables(module, files))
    found: list[Step] = []
    called: dict[int, Optional[str]] = {}
    walks = {}
    general = {*core.architecture.dwarf_registers, core.architecture.program_counter}
    for tid, at_end in threads.items():
        frames = walk(core, modules, files, at_end)
        for frame, outer in zip_longest(frames, frames[1:]):
            if frame.module is None or frame.module.path not in lacking:
                continue
            symbol = symbol_at(files, frame.module, frame.looked_up)
            if (symbol is None or not symbol.size) and (frame.called is not None or _waits_in_kernel(core, files, frame)):
                called[frame.pc] = frame.called
            if outer is not None:
                sp = frame.registers.get(core.architecture.stack_pointer, 0)
                registers = {name: value for name, value in outer.registers.items() if name in general}
                found.append(Step(frame.pc, sp, registers, signal_frame_at(core, sp) is not None))
        if any(frame.module is not None and frame.module.path in lacking for frame in frames):
            signals = {(step.pc, step.sp) for step in found if step.is_signal}
            walks[tid] = tuple(
                Walked(frame.pc, called.get(frame.pc, name), (frame.pc, frame.registers.get(core.architecture.stack_pointer)) in signals)
                for frame, name in zip(frames, names(frames, files), strict=True)
            )
    return Steps(tuple(found), lacking, called, walks)


def _waits_in_kernel(core: Core, files: Mapping[str, ModuleFile], frame: Frame) -> bool:
    """Whether a system call is before the program counter, which no function has that is exported without a size, such as memset()."""
    return any(read_constant(core, files, frame.pc - len(code), len(code)) == code for code in core.architecture.system_call_codes)


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
