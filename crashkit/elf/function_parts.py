"""Finds the parts of one function of a stripped file: compilers move rarely executed code to another place.

Only the symbol table names such a part. But the function jumps into the part's middle, which no other function does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from crashkit.elf.unwind_table import UnwindTable

_MOST_CODE = 1 << 20


def parts(table: UnwindTable, start: int, jumps: Callable[[bytes, int], Iterable[int]], calls_last: bool = True) -> frozenset[int]:
    """Start addresses of the function at `start` and of its other parts, relative to the file; empty if no function starts there.

    `jumps` tells the targets of the direct jumps in code at an address (`Architecture.jumps`). A jump to where another function begins may
    be its last call: such a part counts only where it is known that the function has none (`calls_last`).
    """
    function = table.function(start)
    if function is None or function.start != start:
        return frozenset()
    found = {start}
    for target in set(jumps(table.code(function[:_MOST_CODE]), function.start)):
        part = table.function(target) if target not in function else None
        if part is not None and (part.start != target or not calls_last):
            found.add(part.start)
    return frozenset(found)
