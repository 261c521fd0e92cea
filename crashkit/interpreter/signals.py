"""Signals that had arrived, and whose Python handlers had not run yet.

A signal's C handler only notes it: `tripped` in the signal's entry. The interpreter calls the Python function later, between two
instructions of the main thread (`_PyErr_CheckSignalsTstate`, Modules/signalmodule.c), so never while that thread is in C code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Optional

import msgspec

from crashkit.interpreter.code import read_code
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.values import Values
from crashkit.interpreter.view import Unreadable

VARIABLE = "Handlers"
"""The table's name up to 3.11."""
_LONGEST = 200


class Pending(msgspec.Struct, frozen=True):
    """One signal."""

    number: int
    handler: Optional[str] = None
    """The function's qualified name, also of one that is bound; of another callable, its value as text."""
    file: Optional[str] = None
    line: Optional[int] = None
    """Where the function begins."""


def pending(objects: Objects, values: Values, table: int, codes: Iterable[int]) -> list[Pending]:
    """The pending signals by the table of handlers at this address, lowest number first; none if that is no such table.

    `codes` are code objects, by whose type functions are known: the names of types may be missing from the core.
    """
    layout, view = objects.layout.signal, objects.view
    entries = [table + layout.size * number for number in range(layout.count)]
    try:
        tripped = [view.int32(entry + layout.tripped) for entry in entries]
        handlers = [view.word(entry + layout.function) for entry in entries]
    except Unreadable:
        return []
    # No signal has the number 0. All others have a handler, if only SIG_DFL or None: anything else is damage, or another variable.
    if not set(tripped) <= {0, 1} or tripped[0] or handlers[0] or not all(one and one % view.word_size == 0 for one in handlers[1:]):
        return []
    code_type = _code_type(objects, codes)
    return [_pending(objects, values, number, handlers[number], code_type) for number, is_set in enumerate(tripped) if is_set]


def _code_type(objects: Objects, codes: Iterable[int]) -> Optional[int]:
    for code in codes:
        with suppress(Unreadable):
            return objects.type_of(code)
    return None


def _pending(objects: Objects, values: Values, number: int, handler: int, code_type: Optional[int]) -> Pending:
    for function in _functions(objects, handler):
        with suppress(Unreadable):
            code = objects.view.word(function + objects.layout.function.code)
            if code_type is not None and objects.type_of(code) == code_type:
                return _of_function(objects, number, function, code)
    with suppress(Unreadable):
        kind = values.type_name(objects.type_of(handler))
        if kind == "builtin_function_or_method":
            return Pending(number, values.builtin_name(handler))
        return Pending(number, values.text(handler) if kind != "object" else None)
    return Pending(number)


def _functions(objects: Objects, handler: int) -> Iterator[int]:
    """The handler, and what it is a method or a `functools.partial` of, which have it at the same place."""
    yield handler
    with suppress(Unreadable):
        yield objects.view.word(handler + objects.layout.method.function)


def _of_function(objects: Objects, number: int, function: int, address: int) -> Pending:
    code = read_code(objects, address)
    name = code.name
    with suppress(Unreadable):
        name = objects.text(objects.view.word(function + objects.layout.function.name), _LONGEST)
    return Pending(number, name, code.file, code.first_line)
