"""The memory of buffers: bytes, bytearray, array.array, memoryview, mmap, arrays and structures of ctypes, beside numpy's and torch's.

Sources: Include/cpython/bytearrayobject.h, Include/cpython/memoryobject.h (`PyMemoryViewObject`, behind whose head of four words is a
`Py_buffer`), Modules/arraymodule.c (`arrayobject`, `arraydescr`), Modules/mmapmodule.c (`mmap_object`), Modules/_ctypes/ctypes.h
(`CDataObject`).
"""

from __future__ import annotations

from typing import Optional

from crashkit.interpreter.arrays import Arrays, Extent, covered
from crashkit.interpreter.objects import BYTES, Objects
from crashkit.interpreter.threads import type_in_module
from crashkit.interpreter.view import Unreadable

_MOST_BASES = 16
_MOST_DIMENSIONS = 64
_TYPES = (
    *(("builtins", "bytearray"), ("builtins", "memoryview"), ("array", "array"), ("mmap", "mmap")),
    *(("_ctypes", "Array"), ("_ctypes", "Structure"), ("_ctypes", "Union")),
)


class Buffers:
    """Tells what memory the buffers of one interpreter have, of a process with words of 8 bytes."""

    def __init__(self, objects: Objects, interpreter: Optional[int], arrays: Arrays) -> None:
        self._objects, self._view, self._arrays = objects, objects.view, arrays
        self._families = {kind: name for module, name in _TYPES if (kind := type_in_module(objects, interpreter, module, name))}

    def extent(self, address: int, kind: int) -> Optional[Extent]:
        """What memory of this machine the object has or shows; None if it is no buffer. Raises Unreadable."""
        if self._objects.flags(kind) & BYTES:
            length = self._objects.length(address + self._objects.layout.bytes.length)
            return _of_bytes("bytes", address + self._objects.layout.bytes.data, length)
        family = self._family(kind)
        if family is None:
            return self._arrays.extent(address, kind)
        own, counted, view = address + self._objects.head, address + self._objects.counted_head, self._view
        if family == "bytearray":
            return _of_bytes(family, view.word(counted + 16), self._objects.length(own))
        if family == "mmap":
            return _of_bytes(family, view.word(own), self._objects.length(own + 8))
        if family == "memoryview":
            return self._of_memoryview(counted + 32)
        if family == "array":
            return self._of_array(own, counted)
        return _of_bytes(f"ctypes {family.lower()}", view.word(own), self._objects.length(own + 24))

    def _of_array(self, own: int, counted: int) -> Extent:
        count, constants = self._objects.length(own), self._objects.constants
        described = self._view.word(counted + 16)
        code, width = chr(constants.byte(described)), constants.int32(described + 4)
        if not (code.isalpha() and 0 < width <= 16):
            raise Unreadable(f"no array at {own:#x}")
        start = self._view.word(counted)
        return Extent(f"array({code!r}) of {count:,} items", range(start, start + count * width))

    def _of_memoryview(self, buffer: int) -> Extent:
        view = self._view
        start, base, width, dimensions = view.word(buffer), view.word(buffer + 8), view.word(buffer + 24), view.int32(buffer + 36)
        if not 0 <= dimensions <= _MOST_DIMENSIONS:
            raise Unreadable(f"a memoryview of {dimensions} dimensions")
        shape, strides = ([view.signed_word(view.word(buffer + field) + 8 * index) for index in range(dimensions)] for field in (48, 56))
        addresses = covered(start, shape, strides, width)
        return Extent(f"memoryview of {self._objects.length(buffer + 16):,} bytes", addresses, base)

    def _family(self, kind: int) -> Optional[str]:
        for _ in range(_MOST_BASES):
            if not kind or kind in self._families:
                break
            kind = self._view.word(kind + self._objects.layout.type.base)
        return self._families.get(kind)


def _of_bytes(name: str, start: int, length: int) -> Extent:
    return Extent(f"{name} of {length:,} bytes", range(start, start + length))
