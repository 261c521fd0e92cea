"""The C++ exception that a thread was handling, with its type and words, from the runtime's record of it: as std::terminate prints them.

Every thread has `__cxa_eh_globals` in its thread-local storage: a pointer to the exceptions being handled and a count of those in flight.
An uncaught exception counts as handled when std::terminate is called (libstdc++-v3/libsupc++/eh_throw.cc, eh_call.cc). The record carries
the exception's class, so it is known for what it is wherever the storage has it. While one unwinds the stack, nothing but the code that
cleans up knows it: a pointer to its record is on the stack. Layouts: unwind-cxx.h; Itanium C++ ABI, "RTTI Layout".

libc++abi keeps the same fields under a class of its own; only what stands before them differs (LLVM, libcxxabi/src/cxa_exception.h).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Optional

import msgspec
from ahocorasick_rs import BytesAhoCorasick

from crashkit.memory import Memory, mapping_at, word_at
from crashkit.naming.itanium import demangled

ReadText = Callable[[int], Optional[str]]
"""The string at an address of the process; None if it cannot be read."""

_GNU, _GNU_DEPENDENT = b"\0++CCUNG", b"\x01++CCUNG"
_LLVM, _LLVM_DEPENDENT = b"\0++CGNLC", b"\x01++CGNLC"
_CLASSES = (_GNU, _GNU_DEPENDENT, _LLVM, _LLVM_DEPENDENT)
_PRIMARY = re.compile(re.escape(_GNU) + b"|" + re.escape(_LLVM))
# Where the type stands behind what a thread's globals point to: in libstdc++; in libc++abi since LLVM 10, and before.
_BEFORE_TYPE = (0, 16, 8)
# struct __cxa_exception: the type first, the unwinder's header with the class last; the object follows.
_CLASS_AT, _SIZE, _COUNT_AT, _ADJUSTED_AT = 80, 112, 40, 72
# The number of references stands before that. It is 1, and overwritten when the memory is freed.
_REFERENCES = {_GNU: (-16, b"\1\0\0\0"), _LLVM: (-8, b"\1\0\0\0\0\0\0\0")}
_STACK = 64 << 10
_MOST_IN_FLIGHT = 8
_MOST_RECORDS = 1000
_MOST_HEAP = 256 << 20
_STATIC_STORAGE = 64 << 10
# struct pthread, before or behind the thread pointer.
_CONTROL_BLOCK = 0x900
_MOST_MODULES = 512
_DEEPEST, _MOST_BASES = 8, 64
_LONGEST = 1000
_NAME = re.compile(r"\*?([A-Za-z0-9_$.]{1,4000})")


class Thrown(msgspec.Struct, frozen=True):
    """One exception of C++."""

    type: str
    what: Optional[str]
    address: int
    """Of the thrown object."""
    is_standard: bool
    """Whether its type is one of the language or of the C++ library: what follows its own few words is not part of it."""


# Their words are constants of the library.
_CONSTANT = {
    "St9bad_alloc": "std::bad_alloc",
    "St20bad_array_new_length": "std::bad_array_new_length",
    "St8bad_cast": "std::bad_cast",
    "St10bad_typeid": "std::bad_typeid",
    "St13bad_exception": "std::bad_exception",
    "St17bad_function_call": "bad_function_call",
    "St19bad_optional_access": "bad optional access",
    "St12bad_weak_ptr": "bad_weak_ptr",
    "St12bad_any_cast": "bad any_cast",
    "St9exception": "std::exception",
}
# Those that libc++ has other words for (libcxxabi/src/stdlib_exception.cpp, libcxx/src/optional.cpp, any.cpp).
_CONSTANT_OF_LIBCXX = {
    **_CONSTANT,
    "St20bad_array_new_length": "bad_array_new_length",
    "St19bad_optional_access": "bad_optional_access",
    "St12bad_any_cast": "bad any cast",
}
# A pointer to the characters behind the pointer to the virtual functions.
_OWNS_POINTER = frozenset({"St13runtime_error", "St11logic_error"})
# A std::string there.
_OWNS_STRING = frozenset({"N3c105ErrorE"})
_STRINGS = frozenset(
    {"NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "NSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEE"}
)
_NUMBERS = {"i": "<i", "j": "<I", "l": "<q", "m": "<Q", "x": "<q", "y": "<Q", "s": "<h", "t": "<H", "d": "<d", "f": "<f", "b": "<?"}


def handled(memory: Memory, thread_pointer: int, text: ReadText) -> Optional[Thrown]:
    """The exception that the thread with this thread pointer handles last; None if it handles none that can be read."""
    for place in _storage(memory, thread_pointer):
        for before in _BEFORE_TYPE:
            found = _of_record(memory, place + before, text)
            if found is not None:
                return found
    return None


def in_flight(memory: Memory, registers: Sequence[Mapping[str, int]], text: ReadText) -> list[Thrown]:
    """The exceptions that were unwinding the stack, and that no handler had: the last one first.

    `registers` are those of the frames, innermost first: what cleans up keeps a pointer to the exception in one of them, or on the stack.
    Where the compiler has no more use for that, the exception lies in the same heap as the others. The unwinder has noted in each which
    frame of the stack will handle it (struct _Unwind_Exception: the class, a function, private_1, private_2): none in one that is kept
    and was never thrown.
    """
    records: dict[int, None] = {}
    for word in _words_of(memory, registers):
        for record in (word - _CLASS_AT, word - _SIZE):
            if word > 4096 and word % 16 == 0 and record not in records and memory.read(record + _CLASS_AT, 8) in _CLASSES:
                records[record] = None
    stack_pointer = memory.architecture.stack_pointer
    stack = range(*(frame.get(stack_pointer, 0) for frame in (registers[0], registers[-1]))) if registers else range(0)
    records.update(dict.fromkeys(islice(_beside(memory, next(iter(records), 0), stack), _MOST_RECORDS)))
    found: dict[int, Thrown] = {}
    handlers: dict[int, int] = {}
    live = {frame.get(stack_pointer, 0) for frame in registers}
    for record in islice(records, _MOST_RECORDS):
        thrown = _of_record(memory, record, text, handled=False)
        handler = word_at(memory, record + _CLASS_AT + 24)
        if thrown is not None and handler in live and _is_referred_to_once(memory, record):
            found[record], handlers[record] = thrown, handler
    kept = _kept(memory, handlers)
    return [thrown for record, thrown in found.items() if record not in kept][:_MOST_IN_FLIGHT]


def _is_referred_to_once(memory: Memory, record: int) -> bool:
    place, once = _REFERENCES.get(memory.read(record + _CLASS_AT, 8), (0, b""))
    return bool(once) and memory.read(record + place, len(once)) == once


def _kept(memory: Memory, handlers: Mapping[int, int]) -> set[int]:
    """Which of these records are of objects to which a std::exception_ptr points: one on the heap, or in a frame from the handler's on.

    `handlers`: by record, which frame will handle it. What unwinds has no such pointer there. The heap is searched once for all of them.
    """
    records = [record for record in handlers if record + _SIZE < 1 << 64]
    if not records:
        return set()
    pointers = BytesAhoCorasick([struct.pack("<Q", record + _SIZE) for record in records])
    kept: set[int] = set()
    for start, end, handler in _where_kept(memory, handlers):
        for address, data in memory.scan(start, end):
            for number, at, _ in pointers.find_matches_as_indexes(data, overlapping=True):
                record = records[number]
                if address + at != record + _ADJUSTED_AT and handler in (None, handlers[record]):
                    memory.read(address + at, 8)  # so that a minimal core has what was found
                    kept.add(record)
            if len(kept) == len(records):
                return kept
    return kept


def _where_kept(memory: Memory, handlers: Mapping[int, int]) -> Iterator[tuple[int, int, Optional[int]]]:
    """Start and end of each part of memory to search, and the frame whose part of the stack it is; None for the heap."""
    heaps = {mapping.start: mapping for record in handlers if (mapping := mapping_at(memory.mappings(), record)) is not None}
    left = _MOST_HEAP
    for heap in heaps.values():
        end = min(heap.end, heap.start + left)
        left -= end - heap.start
        yield heap.start, end, None
    for handler in dict.fromkeys(handlers.values()):
        stack = mapping_at(memory.mappings(), handler)
        if stack is not None:
            yield handler, min(stack.end, handler + _STACK), handler


def _beside(memory: Memory, record: int, stack: range) -> Iterator[int]:
    """The records in the same mapping that unwind this stack."""
    mapping = mapping_at(memory.mappings(), record)
    if mapping is None:
        return
    for start, data in memory.scan(mapping.start, min(mapping.end, mapping.start + _MOST_HEAP)):
        for match in _PRIMARY.finditer(data):
            at = match.start()
            handler = struct.unpack_from("<Q", data, at + 24)[0] if at + 32 <= len(data) else 0
            if (start + at) % 16 == 0 and handler in stack:
                yield start + at - _CLASS_AT


def _words_of(memory: Memory, registers: Sequence[Mapping[str, int]]) -> Iterator[int]:
    """What the registers of each frame hold, then the words of the frame, as many as may be read."""
    stack_pointer, left = memory.architecture.stack_pointer, _STACK
    for own, outer in pairwise(registers):
        yield from own.values()
        start, end = own.get(stack_pointer, 0), outer.get(stack_pointer, 0)
        data = memory.read(start, min(end - start, left)) if memory.word.size == 8 and start < end else b""
        left -= len(data)
        yield from (word for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]))


def _storage(memory: Memory, thread_pointer: int) -> Iterator[int]:
    """What the words of the thread's storage hold, that of each module first: libstdc++ keeps little else in its own."""
    vector_at = memory.architecture.dynamic_thread_vector
    if vector_at is None or memory.word.size != 8:
        return
    vector = word_at(memory, thread_pointer + vector_at)
    blocks = []
    data = memory.read(vector, 16 * _MOST_MODULES) if vector else b""
    for value, _ in struct.iter_unpack("<QQ", data[16 : len(data) // 16 * 16]):
        if value and value != (1 << 64) - 1:
            blocks.append(value)
    mapping = mapping_at(memory.mappings(), thread_pointer)
    around = range(max(mapping.start, thread_pointer - _STATIC_STORAGE), thread_pointer) if mapping is not None else range(0)
    pieces = [*(memory.read(block, 32) for block in blocks), memory.read(around.start, len(around))]
    words = dict.fromkeys(_pointers(b"".join(piece[: len(piece) // 8 * 8] for piece in pieces)))
    yield from words
    # pthread_setspecific() keeps its values in the control block: one of libc++abi's that was built without thread-local storage.
    block = memory.read(thread_pointer - _CONTROL_BLOCK, 2 * _CONTROL_BLOCK) or memory.read(thread_pointer, _CONTROL_BLOCK)
    for word in dict.fromkeys(_pointers(block)):
        yield from _pointers(memory.read(word, 8))


def _pointers(data: bytes) -> Iterator[int]:
    """The words that may be pointers to words."""
    return (word for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]) if word > 4096 and word % 8 == 0)


def _of_record(memory: Memory, record: int, text: ReadText, handled: bool = True) -> Optional[Thrown]:
    """None also where that a handler has it is not as `handled` says."""
    data = memory.read(record, _SIZE)
    if len(data) < _SIZE or data[_CLASS_AT : _CLASS_AT + 8] not in _CLASSES:
        return None
    (count,) = struct.unpack_from("<i", data, _COUNT_AT)
    if (count != 0) != handled:
        return None
    (first,) = struct.unpack_from("<Q", data)
    of_libcxx = data[_CLASS_AT : _CLASS_AT + 8] in (_LLVM, _LLVM_DEPENDENT)
    # One that std::rethrow_exception threw refers to the object: in libstdc++ in the place of the type, in libc++abi before that.
    if data[_CLASS_AT] == 0:
        kind, object_ = first, record + _SIZE
    elif of_libcxx:
        kind, object_ = first, word_at(memory, record - 8) or 0
    else:
        kind, object_ = word_at(memory, first - _SIZE) or 0, first
    name = _type_name(memory, kind, text)
    if name is None:
        return None
    what = _words(memory, kind, name, object_, text, of_libcxx)
    is_standard = len(name) == 1 or name.startswith(("P", "St", "NSt"))
    return Thrown(_readable(name), what[:_LONGEST] if what else None, object_, is_standard)


def _type_name(memory: Memory, kind: int, text: ReadText) -> Optional[str]:
    """The mangled name that a std::type_info has."""
    pointer = word_at(memory, kind + 8) if kind else None
    match = _NAME.fullmatch(text(pointer) or "") if pointer else None
    return match[1] if match else None


def _readable(name: str) -> str:
    """As a program shows it: the name of a type is mangled like that of a parameter."""
    mangled = f"_Z1f{name}"
    shown = demangled(mangled)
    return shown[2:-1] if shown != mangled else name


def _words(memory: Memory, kind: int, name: str, object_: int, text: ReadText, of_libcxx: bool) -> Optional[str]:
    """What the exception has to say: what() of the classes whose layout is known, or the thrown value."""
    string, constant = (_string_of_libcxx, _CONSTANT_OF_LIBCXX) if of_libcxx else (_string, _CONSTANT)
    if name in _NUMBERS:
        data = memory.read(object_, struct.calcsize(_NUMBERS[name]))
        return str(struct.unpack(_NUMBERS[name], data)[0]) if len(data) == struct.calcsize(_NUMBERS[name]) else None
    if name in ("PKc", "Pc"):
        return _printable(text(word_at(memory, object_) or 0))
    if name in _STRINGS:
        return string(memory, object_)
    if name in constant:
        return constant[name]
    # Damaged memory may tell of classes that derive from themselves.
    lineage = list(islice(_lineage(memory, kind, name, object_, text, 0), _MOST_BASES))
    for base, place in lineage:
        if base in _OWNS_POINTER:
            return _printable(text(word_at(memory, place + 8) or 0))
        if base in _OWNS_STRING:
            return string(memory, place + 8)
    # Most other exceptions keep their words in a string of their own, behind that of the class they derive from.
    return string(memory, object_ + 8) if any(base == "St9exception" for base, _ in lineage) else None


def _lineage(memory: Memory, kind: int, name: str, place: int, text: ReadText, depth: int) -> Iterator[tuple[str, int]]:
    """The class and those that it derives from, with where the part of each is in the object."""
    yield name, place
    if depth >= _DEEPEST:
        return
    data = memory.read(kind + 16, 8)
    if len(data) < 8:
        return
    (word,) = struct.unpack("<Q", data)
    flags, count = word & 0xFFFFFFFF, word >> 32
    bases = [(word, 0)]
    if flags < 4 and 0 < count <= 16:
        table = memory.read(kind + 24, 16 * count)
        # __base_class_type_info: bit 0 says virtual, where the number is no offset into the object.
        bases = [(base, offset >> 8) for base, offset in struct.iter_unpack("<Qq", table[: len(table) // 16 * 16]) if not offset & 1]
    for base, offset in bases:
        base_name = _type_name(memory, base, text)
        if base_name is not None:
            yield from _lineage(memory, base, base_name, place + offset, text, depth + 1)


def _string(memory: Memory, place: int) -> Optional[str]:
    """A std::string: a pointer to its characters and their number, which a NUL follows."""
    data = memory.read(place, 16)
    if len(data) < 16:
        return None
    pointer, size = struct.unpack("<QQ", data)
    raw = memory.read(pointer, min(size, _LONGEST) + 1) if 0 < size < 1 << 24 else b""
    if len(raw) != min(size, _LONGEST) + 1 or (size <= _LONGEST and raw[-1]):
        return None
    return _printable(raw[:-1].decode("utf-8", "backslashreplace"))


def _string_of_libcxx(memory: Memory, place: int) -> Optional[str]:
    """A std::string of libc++: the lowest bit says whether its size and a pointer follow, or its characters (libcxx/include/string)."""
    data = memory.read(place, 24)
    if len(data) < 24:
        return None
    if data[0] & 1:
        capacity, size, pointer = struct.unpack("<QQQ", data)
        raw = memory.read(pointer, min(size, _LONGEST) + 1) if 0 < size < min(capacity, 1 << 24) else b""
    else:
        size, raw = data[0] >> 1, data[1 : 2 + (data[0] >> 1)]
    if len(raw) != min(size, _LONGEST) + 1 or (size <= _LONGEST and raw[-1]):
        return None
    return _printable(raw[:-1].decode("utf-8", "backslashreplace"))


def _printable(text: Optional[str]) -> Optional[str]:
    return text if text and "\0" not in text and text.replace("\n", " ").replace("\t", " ").isprintable() else None
