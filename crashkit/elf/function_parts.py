"""The parts of one function of a stripped file (x86-64): the compiler moves what seldom runs, or most of it, to another place.

Only the symbol table names such a part. But the function jumps into its middle, and no function is entered so from another one.
"""

from __future__ import annotations

from crashkit.elf.unwind_table import UnwindTable

_MOST_CODE = 1 << 20


def parts(table: UnwindTable, start: int) -> frozenset[int]:
    """Where the function that starts there and its other parts start, as addresses of the file; empty where no function does."""
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
    """Targets of its jumps that lie elsewhere."""
    import capstone

    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    targets = {
        int(operands, 16)
        for _address, _size, mnemonic, operands in engine.disasm_lite(code, function.start)
        if mnemonic.startswith("j") and operands.startswith("0x")
    }
    return {target for target in targets if target not in function}
