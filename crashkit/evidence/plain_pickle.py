"""Loads pickles of plain data, such as torch writes of its flight recorder and of its allocator.

A pickle can run code and exhaust memory. Before one is loaded, its opcodes are looked through: only those that build plain dicts, lists,
tuples, strings, numbers, booleans and None are allowed. The unpickler itself refuses every class as well.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import Any, NoReturn

from crashkit.errors import EvidenceError

# Opcodes without an argument: MARK STOP POP POP_MARK DUP NONE TRUE FALSE APPEND(S) LIST DICT EMPTY_* SETITEM(S) TUPLE* MEMOIZE.
# Then those with arguments of a fixed length: PROTO BININT* BINFLOAT BINGET BINPUT LONG_BINGET FRAME.
_FIXED = re.compile(
    rb"(?:[(01.2N\x88\x89ael\]d}sut\x85\x86\x87)\x94]|\x80[\x02-\x05]|[Kqh].|M..|J.{4}|j.{4}|G.{8}|\x95.{8})*",
    re.DOTALL,
)
_COUNTED = {b"X": 4, b"\x8c": 1, b"\x8d": 8, b"U": 1, b"T": 4, b"\x8a": 1, b"C": 1, b"B": 4}
"""Bytes of the count before a string, a long integer or bytes."""
START = re.compile(rb"\x80[\x02-\x05]")
"""How such a file begins: protocol 2 to 5."""


class _Plain(pickle.Unpickler):
    """Builds nothing but what pickle itself knows."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"refused to load {module}.{name}")

    def persistent_load(self, _: Any) -> NoReturn:
        raise pickle.UnpicklingError("refused a persistent id")


def load(content: bytes, path: str, what: str, why_damaged: str) -> Any:
    """The data. `what` it should be and `why_damaged` it may be are for messages. Raises EvidenceError."""
    _look_through(content, path, what)
    try:
        return _Plain(io.BytesIO(content)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, UnicodeError,
            MemoryError, RecursionError) as error:  # fmt: skip
        raise EvidenceError(f"{path}: this pickle is damaged ({error})", why_damaged) from error


def dump(data: Any) -> bytes:
    """A pickle of plain data, which `load` reads."""
    return pickle.dumps(data, protocol=4)


def _look_through(content: bytes, path: str, what: str) -> None:
    """Refuses what is not plain data, and places in the memo beyond what the file can fill: the unpickler would allocate up to there."""
    hint = f"{what} never contains that: check where this file comes from."
    at = 0
    while at < len(content):
        match = _FIXED.match(content, at)
        at = match.end() if match is not None else at
        opcode = content[at : at + 1]
        if not opcode:
            break
        if opcode == b"r":
            if int.from_bytes(content[at + 1 : at + 5], "little") > len(content):
                raise EvidenceError(f"{path} is a pickle that would take up too much memory, and was not loaded", hint)
            at += 5
        elif opcode in _COUNTED:
            width = _COUNTED[opcode]
            at += 1 + width + int.from_bytes(content[at + 1 : at + 1 + width], "little")
        else:
            message = f"{path} is a pickle with more than plain data in it (opcode {opcode!r} at byte {at}), and was not loaded"
            raise EvidenceError(message, hint)
