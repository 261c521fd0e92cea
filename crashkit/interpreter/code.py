"""Code objects: names, file, and the line of an instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

import msgspec

from crashkit.interpreter import linetable
from crashkit.interpreter.linetable import Position
from crashkit.interpreter.objects import MOST_TEXT, Objects
from crashkit.interpreter.view import Unreadable

_MOST_UNITS = 1 << 28
_MOST_LINE = 1 << 30
_MOST_TABLE = 4 << 20
_MOST_SLOTS = 256
_OPTIMIZED, _VARARGS, _VARKEYWORDS = 1, 4, 8
"""Include/cpython/code.h: CO_OPTIMIZED, CO_VARARGS, CO_VARKEYWORDS."""
_CELL, _FREE = 0x40, 0x80
"""Include/internal/pycore_code.h: CO_FAST_CELL, CO_FAST_FREE."""

Decode = Callable[[bytes, int, int], Position]


class Slot(msgspec.Struct, frozen=True):
    """One variable of a frame."""

    name: str
    is_cell: bool
    """Whether the frame holds a cell with the variable."""


class Code(msgspec.Struct, frozen=True):
    """A code object; a part that could not be read is None."""

    address: int
    name: Optional[str]
    qualified_name: Optional[str]
    file: Optional[str]
    first_line: int
    table: Optional[bytes]
    decode: Decode
    """From a table, the first line and an instruction to a position."""
    bytecode: int
    """Address of the first instruction, 3.11 and newer."""
    units: int
    """Number of code units of two bytes, 3.11 and newer."""
    copies: int
    """Address of the threads' own copies of the bytecode (free-threaded 3.14); 0 if there are none."""
    arguments: int
    """How many of the first variables are arguments."""
    is_function: bool
    """Whether its variables are in its frame; those of a module or a class's body are in a dict."""

    def position(self, instruction: int) -> Optional[Position]:
        """Where an instruction is in the source; None if the line table is missing."""
        return self.decode(self.table, self.first_line, instruction) if self.table is not None else None


def read_code(objects: Objects, address: int) -> Code:
    """The code object at `address`. Raises Unreadable if neither its name nor its file can be read, or it is no code object."""
    view, layout = objects.constants, objects.layout.code
    first_line = view.int32(address + layout.first_line)
    name, file = _text(objects, address + layout.name), _text(objects, address + layout.file)
    if (name is None and file is None) or not 0 <= first_line < _MOST_LINE:
        raise Unreadable(f"no code object at {address:#x}")
    units = view.signed_word(address + layout.units) if layout.units is not None else 0
    if not 0 <= units < _MOST_UNITS:
        raise Unreadable(f"a code object of {units} instructions")
    flags = view.uint32(address + layout.flags)
    arguments = view.uint32(address + layout.arguments) + view.uint32(address + layout.keyword_arguments)
    return Code(
        address=address,
        name=name,
        qualified_name=_text(objects, address + layout.qualified_name) if layout.qualified_name is not None else None,
        file=file,
        first_line=first_line,
        table=_table(objects, address + layout.lines),
        decode=_decoder(objects),
        bytecode=address + layout.bytecode if layout.bytecode is not None else 0,
        units=units,
        copies=objects.view.word(address + layout.bytecode_copies) if layout.bytecode_copies is not None else 0,
        arguments=arguments + bool(flags & _VARARGS) + bool(flags & _VARKEYWORDS),
        is_function=flags & _OPTIMIZED != 0,
    )


def _decoder(objects: Objects) -> Decode:
    if objects.version >= (3, 11):
        return linetable.locations
    return linetable.linetable_310 if objects.version >= (3, 10) else linetable.lnotab


def _text(objects: Objects, place: int) -> Optional[str]:
    try:
        return objects.text(objects.constants.word(place), MOST_TEXT)
    except Unreadable:
        return None


def _table(objects: Objects, place: int) -> Optional[bytes]:
    try:
        return objects.bytes(objects.constants.word(place), _MOST_TABLE)
    except Unreadable:
        return None


def read_slots(objects: Objects, address: int) -> tuple[Slot, ...]:
    """The variables of the frames that run the code object at `address`, in their order; of very many, the first. None if they are lost."""
    layout, view = objects.layout.code, objects.constants
    try:
        if layout.slots is not None and layout.slot_kinds is not None:
            names = objects.tuple(view.word(address + layout.slots), _MOST_SLOTS)
            kinds = objects.bytes(view.word(address + layout.slot_kinds), _MOST_SLOTS)
            return tuple(Slot(_name(objects, name), kind & (_CELL | _FREE) != 0) for name, kind in zip(names, kinds, strict=False))
        slots: list[Slot] = []
        for place, is_cell in ((layout.variables, False), (layout.cells, True), (layout.free, True)):
            if place is not None:
                slots += [Slot(_name(objects, name), is_cell) for name in objects.tuple(view.word(address + place), _MOST_SLOTS)]
        return tuple(slots)
    except Unreadable:
        return ()


def _name(objects: Objects, address: int) -> str:
    try:
        return objects.text(address, 200)
    except Unreadable:
        return ""
