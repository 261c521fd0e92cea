"""Source lines of GPU code: `.debug_line` as NVIDIA's compilers write it, with its two opcodes for inlined functions.

DWARF 2 (section 6.2). After the file table stand four bytes: where the unit's function names begin in `.debug_str`. DW_LNE 0x90
(NVIDIA_inlined_call) says that rows were inlined: into which row of the same sequence (counted from 1, 0: not inlined), and the inlined
function's name. DW_LNE 0x91 sets the name of a function that is not inlined. Checked against nvdisasm -gi.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

_MOST_ROWS = 1 << 20
_MOST_OPERATIONS = 1 << 22
_DEEPEST = 64
_INLINED_CALL, _FUNCTION_NAME = 0x90, 0x91


class Place(NamedTuple):
    """A line of source, and the function that it is in where the table names it."""

    file: Optional[str]
    line: Optional[int]
    function: Optional[str]
    """Mangled. None for code that was not inlined: the symbol table has that name."""


class _Row(NamedTuple):
    address: int
    file: int
    line: int
    context: int
    function: int


class _Unit(NamedTuple):
    files: dict[int, str]
    names: int
    rows: list[list[_Row]]
    """By sequence."""


class _End(Exception):
    """The data ends, or makes no sense from here on."""


class _Bytes:
    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, min(end, len(data))

    def number(self, size: int) -> int:
        if self.at + size > self.end:
            raise _End
        value = int.from_bytes(self.data[self.at : self.at + size], "little")
        self.at += size
        return value

    def leb(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
        raise _End

    def signed_leb(self) -> int:
        start = self.at
        value = self.leb()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value

    def string(self) -> str:
        end = self.data.find(b"\0", self.at, self.end)
        if end < 0:
            raise _End
        text = self.data[self.at : end].decode("utf-8", "replace")
        self.at = end + 1
        return text


class LineTable:
    """The line tables of one image, read once. `lines` and `strings` are its `.debug_line` and `.debug_str`."""

    def __init__(self, lines: bytes, strings: bytes) -> None:
        self._strings = strings
        self._units: list[_Unit] = []
        at = 0
        budget = _MOST_OPERATIONS
        while at + 4 <= len(lines) and budget > 0:
            length = int.from_bytes(lines[at : at + 4], "little")
            if length >= 0xFFFFFFF0 or not length:
                break
            unit, used = _read_unit(lines, at + 4, at + 4 + length, budget)
            budget -= used
            self._units += [unit] if unit else []
            at += 4 + length

    def places(self, address: int) -> tuple[Place, ...]:
        """Where the code at `address` comes from, the innermost inlined function first; empty if no table covers it."""
        for unit in self._units:
            found = _covering(unit, address)
            if found is not None:
                return _chain(unit, *found, self._strings)
        return ()


def _covering(unit: _Unit, address: int) -> Optional[tuple[list[_Row], _Row]]:
    """The sequence that covers the address, and the last row that applies to it."""
    for rows in unit.rows:
        if not rows or not min(row.address for row in rows) <= address < rows[-1].address:
            continue
        best = None
        for row in rows[:-1]:
            if row.address <= address and (best is None or row.address >= best.address):
                best = row
        if best is not None:
            return rows, best
    return None


def _chain(unit: _Unit, rows: list[_Row], row: _Row, strings: bytes) -> tuple[Place, ...]:
    found = []
    for _ in range(_DEEPEST):
        found.append(Place(unit.files.get(row.file), row.line or None, _name(strings, unit.names + row.function) if row.context else None))
        if not 0 < row.context <= len(rows) or rows[row.context - 1] is row:
            break
        row = rows[row.context - 1]
    return tuple(found)


def _name(strings: bytes, offset: int) -> Optional[str]:
    if not 0 <= offset < len(strings):
        return None
    return strings[offset : offset + (1 << 16)].partition(b"\0")[0].decode("utf-8", "replace") or None


def _read_unit(data: bytes, at: int, end: int, budget: int) -> tuple[Optional[_Unit], int]:
    source = _Bytes(data, at, end)
    unit = None
    used = 0
    try:
        version = source.number(2)
        if not 2 <= version <= 4:
            return None, 1
        program = source.number(4) + source.at
        step = source.number(1)
        if version >= 4:
            source.number(1)
        source.number(1)  # default_is_stmt
        base = source.number(1)
        base -= 256 if base > 127 else 0
        spread, first = source.number(1), source.number(1)
        lengths = [source.number(1) for _ in range(first - 1)]
        unit = _Unit(_files(source), source.number(4) if source.at + 4 <= program else 0, [])
        source.at = program
        used = _run(source, unit, (step, base, spread or 1, first, lengths), budget)
    except _End:
        pass
    return unit, used + 1


def _files(source: _Bytes) -> dict[int, str]:
    folders = [""]
    while folder := source.string():
        folders.append(folder)
    files: dict[int, str] = {}
    while name := source.string():
        number = source.leb()
        source.leb()  # time
        source.leb()  # size
        inside = folders[number] if number < len(folders) else ""
        files[len(files) + 1] = name if name.startswith("/") or not inside else f"{inside}/{name}"
    return files


def _run(source: _Bytes, unit: _Unit, how: tuple[int, int, int, int, list[int]], budget: int) -> int:
    """Runs a line number program; returns how many operations it took."""
    step, base, spread, first, lengths = how
    address, file, line, context, function = 0, 1, 1, 0, 0
    rows: list[_Row] = []
    total = used = 0

    def emit() -> None:
        nonlocal total
        total += 1
        if total > _MOST_ROWS:
            raise _End
        rows.append(_Row(address, file, line, context, function))

    while source.at < source.end and used < budget:
        used += 1
        operation = source.number(1)
        if operation >= first:
            address += (operation - first) // spread * step
            line += base + (operation - first) % spread
            emit()
        elif operation == 0:
            length = source.leb()
            after = source.at + length
            if not length:
                continue
            extended = source.number(1)
            if extended == 1:  # end of the sequence
                emit()
                unit.rows.append(rows)
                rows = []
                address, file, line, context, function = 0, 1, 1, 0, 0
            elif extended == 2:
                address = source.number(min(length - 1, 8))
            elif extended == _INLINED_CALL:
                context, function = source.leb(), source.leb()
            elif extended == _FUNCTION_NAME:
                context, function = 0, source.leb()
            source.at = after
        elif operation == 1:
            emit()
        elif operation == 2:
            address += source.leb() * step
        elif operation == 3:
            line += source.signed_leb()
        elif operation == 4:
            file = source.leb()
        elif operation == 8:
            address += (255 - first) // spread * step
        elif operation == 9:
            address += source.number(2)
        else:
            for _ in range(lengths[operation - 1] if operation <= len(lengths) else 0):
                source.leb()
    return used
