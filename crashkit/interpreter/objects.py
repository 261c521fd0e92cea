"""CPython's objects by kind: str, bytes, int, tuple, list, dict, and the attributes of an instance. Each read is bounded and checked.

Sources: Include/cpython/unicodeobject.h and longintrepr.h, Include/internal/pycore_dict.h (`DK_ENTRIES`) and pycore_object.h
(`_PyObject_ManagedDictPointer`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Optional

import msgspec

from crashkit.interpreter.layouts import Layout, Version
from crashkit.interpreter.view import Unreadable, View

MOST_TEXT = 1 << 16
"""Characters of a str that are read."""
MOST_BYTES = 1 << 24
MOST_ITEMS = 20_000
_TOGETHER = 64
"""Entries of a dict that are read at once."""
_MOST_ATTRIBUTES = 1000
_MOST_DIGITS = 1000
_MOST_BASES, _MOST_SLOTS = 16, 100
_MOST_LENGTH = 1 << 48
_LONGEST_TYPE_NAME = 256

# Include/object.h: Py_TPFLAGS_...
INLINE_VALUES, MANAGED_DICT, HEAP_TYPE = 1 << 2, 1 << 4, 1 << 9
INT, LIST, TUPLE, BYTES, TEXT, DICTIONARY, EXCEPTION, TYPE = (1 << bit for bit in range(24, 32))


class Item(msgspec.Struct, frozen=True):
    """A dict's key and value, as addresses."""

    key: int
    value: int


_OWN_REFERENCES_AT, _OTHERS_REFERENCES_AT = 12, 16
"""`ob_ref_local`, `ob_ref_shared` of a free-threaded build's PyObject (Include/object.h)."""
_SIGN = 1 << 63
_COUNT, _MOST_REFERENCES = (1 << 48) - 1, 1 << 20
"""`ob_refcnt` without the `ob_flags` of 3.14; and less than any address, with which begins a block that was freed, or no object at all."""


class Objects:
    """The objects of one interpreter. Methods take an object's address and raise Unreadable.

    `constants` also reads what is in a file and never changes, such as the interpreter's own strings: a truncated core may lack them.
    """

    def __init__(self, view: View, layout: Layout, version: Version, constants: Optional[View] = None) -> None:
        self.view = view
        self.constants = constants or view
        self.layout = layout
        self.version = version
        self.head = layout.object.type + view.word_size
        """Bytes of `PyObject_HEAD`, behind which an object's own fields begin: 32 in free-threaded builds, else 16."""
        self.counted_head = self.head + view.word_size
        """Bytes of `PyObject_VAR_HEAD`."""
        self._order = view.memory.word.order

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """So long the reading in here may take; what takes longer raises TimeUp."""
        with self.view.within(seconds), self.constants.within(seconds):
            yield

    def type_of(self, address: int) -> int:
        """The address of the object's type."""
        return self.view.word(address + self.layout.object.type)

    def is_alive(self, address: int) -> bool:
        """Whether anybody refers to the object, which is none of the immortal ones.

        One that was freed has no references, or the address of the next free block in their place.
        """
        if not self.version.free_threaded:
            return 0 < self.view.word(address) & _COUNT < _MOST_REFERENCES
        # Its own thread's references, and a quarter of the word for those of all others (`_Py_REF_SHARED_SHIFT`).
        own, others = self.view.uint32(address + _OWN_REFERENCES_AT), self.view.word(address + _OTHERS_REFERENCES_AT)
        return own + ((others ^ _SIGN) - _SIGN >> 2) > 0

    def flags(self, kind: int) -> int:
        """The `tp_flags` of the type at `kind`."""
        return self.view.word(kind + self.layout.type.flags)

    def text(self, address: int, most: int = MOST_TEXT) -> str:
        """The str at `address`, at most `most` characters of it. Lone surrogates are escaped."""
        layout = self.layout.text
        length = self.length(address + layout.length)
        state = self.constants.uint32(address + layout.bit_kind // 32 * 4)
        width = state >> layout.bit_kind % 32 & 7
        ascii_only, compact = state >> layout.bit_ascii % 32 & 1, state >> layout.bit_compact % 32 & 1
        if width not in (1, 2, 4) or (ascii_only and width != 1):
            raise Unreadable(f"no str at {address:#x}")
        if not compact:
            start = self.constants.word(address + layout.data)
        else:
            start = address + (layout.after_ascii if ascii_only else layout.after_compact)
        data = self.constants.data(start, min(length, most) * width)
        encoding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width]
        if self._order == ">":
            encoding = encoding.replace("-le", "-be")
        try:
            text = data.decode("ascii" if ascii_only else encoding, "surrogatepass" if width > 1 else "strict")
        except UnicodeDecodeError as error:
            raise Unreadable(f"no str at {address:#x}") from error
        return text.encode("utf-8", "backslashreplace").decode()

    def bytes(self, address: int, most: int = MOST_BYTES) -> bytes:
        """The bytes object at `address`, at most `most` bytes of it."""
        return self.constants.data(address + self.layout.bytes.data, min(self.length(address + self.layout.bytes.length), most))

    def length(self, place: int) -> int:
        """The Py_ssize_t at `place`, which counts something in memory."""
        length = self.constants.signed_word(place)
        if not 0 <= length < _MOST_LENGTH:
            raise Unreadable(f"a length of {length}")
        return length

    def integer(self, address: int) -> Optional[int]:
        """The int at `address`; None if it is too long to be read."""
        layout = self.layout.integer
        size = self.view.signed_word(address + layout.size)
        if self.version >= (3, 12):
            count, sign = (size >> 3), 1 - (size & 3)
        else:
            count, sign = abs(size), (size > 0) - (size < 0)
        if count > _MOST_DIGITS:
            return None
        value = sum(self.view.uint32(address + layout.digits + 4 * index) << 30 * index for index in range(count))
        return sign * value

    def items(self, address: int, most: int = MOST_ITEMS) -> tuple[list[int], int]:
        """The addresses of the first `most` items of the tuple or list at `address`, and how many it has."""
        is_list = self.flags(self.type_of(address)) & LIST
        layout = self.layout.list if is_list else self.layout.tuple
        length = self.length(address + layout.length)
        start = self.view.word(address + layout.items) if is_list else address + layout.items
        return self._pointers(start, min(length, most)), length

    def tuple(self, address: int, most: int) -> list[int]:
        """The addresses of the first `most` items of a tuple. Its type is known: a truncated core may have lost the type object."""
        length = self.length(address + self.layout.tuple.length)
        return self._pointers(address + self.layout.tuple.items, min(length, most))

    def _pointers(self, start: int, count: int) -> list[int]:
        word = self.constants.word_size
        return [self.constants.word(start + word * index) for index in range(count)]

    def dictionary(self, address: int, most: int = MOST_ITEMS, tries: int = MOST_ITEMS) -> Iterator[Item]:
        """The first `most` items of the dict at `address`, in order of insertion; after `tries` entries, used or not, it ends."""
        values = self.view.word(address + self.layout.dictionary.values)
        if values and self.layout.values:
            values += self.layout.values.first
        yield from self._entries(self.view.word(address + self.layout.dictionary.keys), values, most, tries)

    def _entries(self, keys: int, values: int, most: int, tries: int) -> Iterator[Item]:
        """`values`: where those of a split dict are; 0 if they stand beside the keys."""
        layout, word = self.layout.keys, self.view.word_size
        if layout.log2_index_bytes is not None and layout.kind is not None:
            size = 1 << min(self.view.byte(keys + layout.log2_index_bytes), 40)
            start = keys + layout.indices + size
            has_hash = self.view.byte(keys + layout.kind) == 0
        else:
            size = self.length(keys + (layout.size or 0))
            width = 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4 if size <= 0xFFFFFFFF else 8
            start, has_hash = keys + layout.indices + size * width, True
        fields = 3 if has_hash else 2
        # There are no more entries than indices, each of which takes a byte or more.
        count, together = min(self.length(keys + layout.entries), size, tries), max(1, min(_TOGETHER, most))
        rows: Sequence[int] = ()
        for index in range(count):
            if index % together == 0:
                self.view.check_time()
                rows = self._several(start + fields * word * index, fields * min(together, count - index))
            at = fields * (index % together) + fields - 2
            entry = start + word * (fields * index + fields - 2)
            key = rows[at] if rows else self.view.word(entry)
            value = self.view.word(values + word * index) if values else rows[at + 1] if rows else self.view.word(entry + word)
            if key and value:
                yield Item(key, value)
                most -= 1
                if most <= 0:
                    return

    def _several(self, address: int, count: int) -> Sequence[int]:
        """So many words, read at once; none where any of them is missing: then those that are there are read one by one."""
        try:
            return self.view.words(address, count)
        except Unreadable:
            return ()

    def members(self, address: int, most: int, tries: int = MOST_ITEMS) -> Iterator[int]:
        """The addresses of the first `most` members of the set at `address`, among the first `tries` entries of its table."""
        word = self.view.word_size
        start, mask = self.view.word(address + self.layout.set.table), self.length(address + self.layout.set.mask)
        for index in range(min(mask + 1, tries)):
            self.view.check_time()
            key = self.view.word(start + 2 * word * index)
            # A member that was removed leaves an entry with the hash -1, which no object has.
            if key and self.view.signed_word(start + 2 * word * index + word) != -1:
                yield key
                most -= 1
                if most <= 0:
                    return

    def item(self, address: int, key: str) -> Optional[int]:
        """The address of a dict's value for a str; None if there is none."""
        return self._find(self.dictionary(address), key)

    def _find(self, items: Iterator[Item], key: str) -> Optional[int]:
        for item in items:
            try:
                if self.length(item.key + self.layout.text.length) == len(key) and self.text(item.key, len(key)) == key:
                    return item.value
            except Unreadable:
                continue
        return None

    def attribute(self, address: int, name: str) -> Optional[int]:
        """The address of an attribute of this instance; None if it has none of that name."""
        return self._find(self.attributes(address), name)

    def attributes(self, address: int) -> Iterator[Item]:
        """What the `__dict__` of an instance holds; nothing if it has none."""
        kind, word = self.type_of(address), self.view.word_size
        flags, place = self.flags(kind), self.view.signed_word(kind + self.layout.type.dictionary)
        if self.version >= (3, 11) and flags & MANAGED_DICT:
            yield from self._managed(address, kind, flags)
        elif 0 < place < 1 << 20 and place % word == 0:
            dictionary = self.view.word(address + place)
            if dictionary:
                yield from self.dictionary(dictionary, tries=_MOST_ATTRIBUTES)

    def slots(self, address: int) -> Iterator[Item]:
        """What an instance has of its classes' `__slots__`, in the order of their names (`ht_slots`, Objects/typeobject.c)."""
        kind, word = self.type_of(address), self.view.word_size
        for _ in range(_MOST_BASES):
            if not self.flags(kind) & HEAP_TYPE:
                return
            base = self.view.word(kind + self.layout.type.base)
            names = self.view.word(kind + self.layout.type.shared_keys - 2 * word)
            start = address + self.view.word(base + self.layout.type.basic_size)
            for index, name in enumerate(self.tuple(names, _MOST_SLOTS) if names else ()):
                value = self.view.word(start + word * index)
                if value:
                    yield Item(name, value)
            kind = base

    def _managed(self, address: int, kind: int, flags: int) -> Iterator[Item]:
        """A `__dict__` that lies before the object, or whose values lie somewhere without one."""
        word = self.view.word_size
        shared, first = self.view.word(kind + self.layout.type.shared_keys), self.layout.values.first if self.layout.values else 0
        dictionary = self.view.word(address - (1 if self.version.free_threaded else 3) * word)
        values = 0
        if self.version >= (3, 13):
            if not dictionary and flags & INLINE_VALUES:
                values = address + self.view.word(kind + self.layout.type.basic_size)
        elif self.version >= (3, 12):
            if dictionary & 1:
                dictionary, values = 0, dictionary + 1
        elif not dictionary:
            values = self.view.word(address - 4 * word)
        if dictionary:
            yield from self.dictionary(dictionary, tries=_MOST_ATTRIBUTES)
        elif values and shared:
            yield from self._entries(shared, values + first, _MOST_ATTRIBUTES, _MOST_ATTRIBUTES)
