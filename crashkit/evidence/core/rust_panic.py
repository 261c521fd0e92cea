"""What Rust panicked with, from memory: the payload and the place that the panic's frames refer to, or the exception that unwound them.

Library layouts (library/std/src/panicking.rs, library/panic_unwind/src/gcc.rs; looked at with Rust 1.95): a `Location` is a pointer to the
file's name, its length, line and column; a payload is a `&str` or a `String`, known by the size in its table of virtual functions; the
exception begins with its class and has the payload behind the unwinder's header. The order of a String's words is the compiler's choice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Optional

from crashkit.memory import Memory, mapping_at

Read = Callable[[int, int], bytes]
"""Memory and constants; short or empty where they are missing."""

IsCode = Callable[[int], bool]

_CLASS = b"MOZ\0RUST"
_PAYLOAD_AT = 40
_WINDOW = 8 << 10
"""Bytes of the stack that the frames of a panic take."""
_MOST_HEAP = 256 << 20
_LONGEST_NAME, _LONGEST, _MOST_LENGTH = 4096, 1000, 1 << 30
_MOST_LINE, _MOST_COLUMN = 1 << 20, 1 << 14


class Panic(NamedTuple):
    """One panic."""

    place: Optional[str]
    """`src/lib.rs:3:5`."""
    message: str


def panic(memory: Memory, stack_pointer: int, read: Read) -> Optional[Panic]:
    """The panic in which the thread with this stack pointer ended the process; None if its frames show none.

    Where a panic came to a function that cannot unwind, the second one, about that, is on the stack: the first one's words are told.
    """
    if memory.word.size != 8:
        return None
    data = memory.read(stack_pointer, _WINDOW)
    words = struct.unpack_from(f"<{len(data) // 8}Q", data)
    is_code = _code(memory)
    places = [(index, place) for index, word in enumerate(words) if (place := _place(read, word)) is not None]
    if not places:
        return None
    for index, place in places:
        # PanicHookInfo: the payload, with its table of functions, then the place.
        message = _payload(read, is_code, words[index - 2], words[index - 1]) if index >= 2 else None
        if message is not None and not _is_of_library(place):
            return Panic(place, message)
    unwinding = list(dict.fromkeys(_thrown(memory, read, is_code)))
    if len(unwinding) == 1:
        return Panic(None, unwinding[0])
    return None


def _is_of_library(place: str) -> bool:
    return "/library/core/src/panicking.rs" in place


def _place(read: Read, address: int) -> Optional[str]:
    """The `Location` at the address."""
    data = read(address, 24) if address > _LONGEST_NAME and address % 8 == 0 else b""
    if len(data) < 24:
        return None
    name, length, line, column = struct.unpack("<QQII", data)
    if not (3 < length < _LONGEST_NAME and 0 < line < _MOST_LINE and 0 < column < _MOST_COLUMN):
        return None
    text = _text(read, name, length)
    return f"{text}:{line}:{column}" if text is not None and text.endswith(".rs") else None


def _code(memory: Memory) -> Callable[[int], bool]:
    """Tells whether an address is in executable memory."""
    mappings = [mapping for mapping in memory.mappings() if "x" in (mapping.permissions or "")]
    return lambda address: mapping_at(mappings, address) is not None


def _payload(read: Read, is_code: IsCode, value: int, table: int) -> Optional[str]:
    """The words at `value`, if `table` is the table of virtual functions of what has words.

    Such a table begins with the function that drops the value, if it needs one, its size and its alignment; functions follow.
    """
    if value % 8 or table % 8 or min(value, table) <= _LONGEST_NAME:
        return None
    head = read(table, 32)
    if len(head) < 32:
        return None
    drop, size, alignment, first = struct.unpack("<QQQQ", head)
    if size not in (16, 24) or alignment != 8 or not is_code(first) or (drop and not is_code(drop)):
        return None
    data = read(value, size)
    return _words(read, struct.unpack(f"<{size // 8}Q", data)) if len(data) == size else None


def _words(read: Read, parts: Sequence[int]) -> Optional[str]:
    """A `&str`, pointer and length; or a `String`, which has its capacity, too."""
    *numbers, pointer = sorted(parts)
    return _text(read, pointer, numbers[0]) if 0 < numbers[0] <= numbers[-1] < _MOST_LENGTH else None


def _text(read: Read, pointer: int, length: int) -> Optional[str]:
    data = read(pointer, min(length, _LONGEST))
    if len(data) < min(length, _LONGEST):
        return None
    text = data.decode("utf-8", "replace" if length > _LONGEST else "backslashreplace")
    return text if text.replace("\n", " ").replace("\t", " ").isprintable() else None


def _thrown(memory: Memory, read: Read, is_code: IsCode) -> Iterator[str]:
    """The words of the exceptions that are in flight: the heap's first bytes of one are overwritten when it is freed."""
    left = _MOST_HEAP
    for mapping in memory.mappings():
        if mapping.path is not None or "w" not in (mapping.permissions or ""):
            continue
        for at, piece in memory.scan(mapping.start, min(mapping.end, mapping.start + left)):
            left -= len(piece)
            found = piece.find(_CLASS)
            while found >= 0:
                head = memory.read(at + found, _PAYLOAD_AT + 16)[_PAYLOAD_AT:]  # with the class, so that a minimal core has it, too
                words = _payload(read, is_code, *struct.unpack("<QQ", head)) if len(head) == 16 and found % 8 == 0 else None
                if words is not None:
                    yield words
                found = piece.find(_CLASS, found + 1)
