"""Everything that depends on the processor. To add one, write one file here and add one line below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from crashkit.arch.aarch64 import AArch64
from crashkit.arch.contract import Architecture
from crashkit.arch.i386 import I386
from crashkit.arch.x86_64 import X86_64


class _Arm(Architecture):
    name = "arm"
    machine = 40
    gdb = "arm"


class _RiscV(Architecture):
    name = "riscv"
    machine = 243
    gdb = "riscv"


ARCHITECTURES: list[Architecture] = [X86_64(), AArch64(), I386(), _Arm(), _RiscV()]


def named(name: Optional[str]) -> Architecture:
    """The processor named in `Process.architecture`; an unknown one has only its name."""
    known = next((one for one in ARCHITECTURES if one.name == name), None)
    return known or type("Unknown", (Architecture,), {"name": name or "unknown"})()


def of_machine(machine: int) -> Architecture:
    """The processor for the ELF header's e_machine."""
    known = next((one for one in ARCHITECTURES if one.machine == machine), None)
    return known or named(_machine_name(machine))


def stack_pointer(registers: Mapping[str, int]) -> Optional[int]:
    """The stack pointer in these registers of any processor; None if missing."""
    return next((registers[one.stack_pointer] for one in ARCHITECTURES if one.stack_pointer in registers), None)


def program_counter(registers: Mapping[str, int]) -> Optional[int]:
    """The program counter in these registers of any processor; None if missing."""
    return next((registers[one.program_counter] for one in ARCHITECTURES if one.program_counter in registers), None)


def _machine_name(machine: int) -> str:
    # 0.1 s to import, and next to no core needs it.
    from elftools.elf.enums import ENUM_E_MACHINE

    return next((name for name, value in ENUM_E_MACHINE.items() if value == machine), str(machine))


__all__ = ["ARCHITECTURES", "Architecture", "named", "of_machine", "program_counter", "stack_pointer"]
