"""Finds the parts of one function of a stripped file (x86-64): compilers move rarely executed code to another place.

Only the symbol table names such a part. But the function jumps into the part's middle, which no other function does.
"""

from __future__ import annotations

from crashkit.elf.unwind_table import UnwindTable

_MOST_CODE = 1 << 20


def parts(table: UnwindTable, start: int) -> frozenset[int]:
    """Start addresses of the function at `start` and of its other parts, relative to the file; empty if no function starts there."""
    function = table.function(start)
    if function is None or function.start != start:
        return frozenset()
    found = {start}
    for target in _jumps_out(table.code(function[:_MOST_CODE]), function):
        part = table.function(target)
        if part is not None and part.start != target:
            found.add(part.start)
    return frozenset(found)


def _jumps_out(code: bytes, function: range) -> set[int]:
    """Targets of its jumps to addresses outside it."""
    import capstone

    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    targets = {
        int(operands, 16)
        for _address, _size, mnemonic, operands in engine.disasm_lite(code, function.start)
        if mnemonic.startswith("j") and operands.startswith("0x")
    }
    return {target for target in targets if target not in function}
