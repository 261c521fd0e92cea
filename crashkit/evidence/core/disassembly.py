"""Instructions around the faulting one. Pure: bytes in, instructions out."""

from __future__ import annotations

from crashkit.arch import Architecture
from crashkit.model import Address, Instruction

_BEFORE, _AFTER = 8, 7
_LONGEST = 15
REACH = (_BEFORE + 4) * _LONGEST
"""Bytes of code needed on either side of the program counter."""


def disassemble(code: bytes, start: int, pc: int, architecture: Architecture) -> tuple[Instruction, ...]:
    """Up to sixteen instructions, including the faulting one; fewer if code is missing.

    x86 code cannot be decoded backwards: of the starting points before `pc` from which decoding arrives at `pc` exactly, the most
    agree after a few instructions, so the farthest one is taken and its first instructions are dropped.
    """
    engine, step = architecture.disassembler(), architecture.instruction_step
    if engine is None:
        return ()
    at = pc - start
    if not 0 <= at < len(code):
        return ()
    before = []
    for begin in range(max(0, at - REACH) // step * step, at, step):
        decoded = list(engine.disasm_lite(code[begin:at], start + begin))
        if decoded and decoded[-1][0] + decoded[-1][1] == pc:
            before = decoded[-_BEFORE:]
            break
    after = list(engine.disasm_lite(code[at : at + (_AFTER + 1) * _LONGEST], pc, _AFTER + 1))
    return tuple(
        Instruction(
            address=Address(address),
            text=f"{mnemonic} {operands}".rstrip(),
            bytes=code[address - start : address - start + size].hex(),
            faulting=address == pc,
        )
        for address, size, mnemonic, operands in before + after
    )
