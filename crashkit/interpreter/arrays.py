"""numpy's arrays and torch's tensors: type, shape, device and where the data is, never the data.

An array is a C structure that has not changed since numpy 1.7 (numpy/_core/include/numpy/ndarraytypes.h, `PyArrayObject_fields`). A tensor
is one of C++ (c10/core/TensorImpl.h) that changes: its sizes are found by what follows them, the number of elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple, Optional

import msgspec

from crashkit.interpreter.objects import Objects
from crashkit.interpreter.threads import type_in_module
from crashkit.interpreter.view import Unreadable

_MOST_BASES = 16
_MOST_DIMENSIONS = 64
_MOST_ELEMENTS = 1 << 60
_ADDRESSES = 1 << 64

_DATA_AT, _DIMENSIONS_AT, _SHAPE_AT, _STRIDES_AT, _BASE_AT, _TYPE_AT, _NUMBER_AT = 0, 8, 16, 24, 32, 40, 12
"""Behind PyObject_HEAD: `data`, `nd`, `dimensions`, `strides`, `base` and `descr` of an array; `type_num` of a descr."""
_NUMPY_TYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "int64", "uint64", "float32", "float64"),
    *("longdouble", "complex64", "complex128", "clongdouble", "object", "bytes", "str", "void", "datetime64", "timedelta64", "float16"),
)
"""`NPY_TYPES`, by number; where long has 64 bits."""
_NUMPY_WIDTHS = (1, 1, 1, 2, 2, 4, 4, 8, 8, 8, 8, 4, 8, 16, 8, 16, 32, 8, 1, 1, 1, 8, 8, 2)
"""Bytes of an element, by the same number; at least one for those whose width is their array's."""

_IMPLEMENTATIONS_AT = (8, 0)
"""Behind PyObject_HEAD: `cdata` of a tensor's object (torch/csrc/autograd/python_variable.h), behind whether it is borrowed, or in newer
versions by itself."""
_SEARCHED = range(3, 24)
"""Words of a `TensorImpl` among which its sizes and strides begin, 11 words (c10/core/impl/SizesAndStrides.h)."""
_INLINE = 5
"""Dimensions that are not elsewhere."""
_TORCH_TYPES: Sequence[tuple[str, int]] = (
    *(("uint8", 1), ("int8", 1), ("int16", 2), ("int32", 4), ("int64", 8), ("float16", 2), ("float32", 4), ("float64", 8)),
    *(("complex32", 4), ("complex64", 8), ("complex128", 16), ("bool", 1), ("qint8", 1), ("quint8", 1), ("qint32", 4), ("bfloat16", 2)),
    *(("quint4x2", 1), ("quint2x4", 1), ("bits1x8", 1), ("bits2x4", 1), ("bits4x2", 1), ("bits8", 1), ("bits16", 2)),
    *(("float8_e5m2", 1), ("float8_e4m3fn", 1), ("float8_e5m2fnuz", 1), ("float8_e4m3fnuz", 1), ("uint16", 2), ("uint32", 4)),
    ("uint64", 8),
)
"""`ScalarType` (c10/core/ScalarType.h), by number, with the bytes of an element."""
_DEVICES = (
    *("cpu", "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip", "fpga", "maia", "xla", "vulkan", "metal", "xpu", "mps", "meta", "hpu"),
    *("ve", "lazy", "ipu", "mtia", "privateuseone"),
)
"""`DeviceType` (c10/core/DeviceType.h), by number."""


class Extent(msgspec.Struct, frozen=True):
    """The memory that an array or a tensor describes: from its lowest element to behind its highest."""

    description: str
    """Its type and shape: `float32 (3, 4)`."""
    addresses: range
    base: int = 0
    """The object that owns the memory, or is a view of it in turn; 0 if it is the array itself, or not known."""


class _Sizes(msgspec.Struct, frozen=True):
    at: int
    """The number of the word of the implementation at which they begin."""
    shape: tuple[int, ...]
    offset: int
    """Of the first element in the storage, in elements."""
    strides: tuple[int, ...]
    """In elements."""


class _Tensor(NamedTuple):
    kind: str
    width: int
    device: str
    data: int
    """Of the storage; 0 if it has none."""
    sizes: _Sizes


class Arrays:
    """Describes the arrays and tensors of one interpreter."""

    def __init__(self, objects: Objects, interpreter: Optional[int]) -> None:
        self._objects, self._view = objects, objects.view
        self._array = type_in_module(objects, interpreter, "numpy", "ndarray")
        self._tensor = type_in_module(objects, interpreter, "torch._tensor", "Tensor")

    def text(self, address: int, kind: int) -> Optional[str]:
        """Such as `float32 (3, 4), data at 0x7f…`; None for any other object. Raises Unreadable."""
        base = self._base(kind)
        return None if base is None else self._of_array(address) if base == self._array else self._of_tensor(address)

    def extent(self, address: int, kind: int) -> Optional[Extent]:
        """What memory of this machine the array or tensor describes; None for any other object. Raises Unreadable."""
        base = self._base(kind)
        return None if base is None else self._extent_of_array(address) if base == self._array else self._extent_of_tensor(address)

    def _base(self, kind: int) -> Optional[int]:
        """The type of arrays or that of tensors, whichever this type derives from."""
        for _ in range(_MOST_BASES if self._array or self._tensor else 0):
            if not kind:
                break
            if kind in (self._array, self._tensor):
                return kind
            kind = self._view.word(kind + self._objects.layout.type.base)
        return None

    def _of_array(self, address: int) -> str:
        shape, number = self._shape_and_type(address)
        return f"{_numpy_type(number)} {shape}, data at {self._view.word(address + self._objects.head + _DATA_AT):#x}"

    def _extent_of_array(self, address: int) -> Extent:
        view, own = self._view, address + self._objects.head
        shape, number = self._shape_and_type(address)
        width = _NUMPY_WIDTHS[number] if 0 <= number < len(_NUMPY_WIDTHS) else 1
        strides = self._numbers(view.word(own + _STRIDES_AT), len(shape))
        addresses = covered(view.word(own + _DATA_AT), shape, strides, width)
        return Extent(f"{_numpy_type(number)} {shape}", addresses, view.word(own + _BASE_AT))

    def _shape_and_type(self, address: int) -> tuple[tuple[int, ...], int]:
        view, own = self._view, address + self._objects.head
        dimensions = view.int32(own + _DIMENSIONS_AT)
        if not 0 <= dimensions <= _MOST_DIMENSIONS:
            raise Unreadable(f"an array of {dimensions} dimensions")
        return self._numbers(view.word(own + _SHAPE_AT), dimensions), view.int32(
            view.word(own + _TYPE_AT) + self._objects.head + _NUMBER_AT
        )

    def _of_tensor(self, address: int) -> Optional[str]:
        found = self._tensor_at(address)
        if found is None:
            return None
        kind, width, device, data, sizes = found
        placed = f", data at {data + sizes.offset * width:#x}" if data else ""
        return f"{kind} {sizes.shape} on {device}{placed}"

    def _extent_of_tensor(self, address: int) -> Optional[Extent]:
        found = self._tensor_at(address)
        if found is None or not found.data or not found.device.startswith("cpu"):
            return None
        kind, width, _, data, sizes = found
        strides = [width * stride for stride in sizes.strides]
        return Extent(f"{kind} {sizes.shape}", covered(data + sizes.offset * width, sizes.shape, strides, width))

    def _tensor_at(self, address: int) -> Optional[_Tensor]:
        for place in _IMPLEMENTATIONS_AT:
            try:
                implementation = self._view.word(address + self._objects.head + place)
                sizes = self._sizes(implementation) if implementation else None
                if sizes is not None:
                    return self._described(implementation, sizes)
            except Unreadable:
                continue
        return None

    def _described(self, implementation: int, sizes: _Sizes) -> _Tensor:
        view = self._view
        about = implementation + 8 * (sizes.at + 13)
        number, device, index = view.uint16(about), view.byte(about + 2), view.byte(about + 3)
        kind, width = _TORCH_TYPES[number]
        return _Tensor(kind, width, _DEVICES[device] + (f":{index}" if index < 128 else ""), self._data(implementation), sizes)

    def _sizes(self, implementation: int) -> Optional[_Sizes]:
        """Where they are, then the storage's offset and the number of elements, then known numbers of a type and a device."""
        view = self._view
        for index in _SEARCHED:
            start = implementation + 8 * index
            try:
                dimensions, offset, elements = view.word(start), view.word(start + 88), view.word(start + 96)
                if dimensions > _MOST_DIMENSIONS or max(offset, elements) > _MOST_ELEMENTS:
                    continue
                inline = dimensions <= _INLINE
                first = start + 8 if inline else view.word(start + 8)
                shape = self._numbers(first, dimensions)
                known = (
                    view.uint16(start + 104) < len(_TORCH_TYPES) and view.byte(start + 106) < len(_DEVICES) and view.byte(start + 108) == 1
                )
                if known and min(shape, default=0) >= 0 and prod(shape) == elements:
                    return _Sizes(index, shape, offset, self._numbers(first + 8 * (_INLINE if inline else dimensions), dimensions))
            except Unreadable:
                continue
        return None

    def _data(self, implementation: int) -> int:
        """The first word behind the counters of references is the storage, and in that the data: 0 if it has none."""
        view = self._view
        behind = next((place for place in (16, 24) if view.word(implementation + place) > 4096), None)
        return view.word(view.word(implementation + behind) + behind) if behind is not None else 0

    def _numbers(self, start: int, count: int) -> tuple[int, ...]:
        return tuple(self._view.signed_word(start + 8 * index) for index in range(count))


def _numpy_type(number: int) -> str:
    return _NUMPY_TYPES[number] if 0 <= number < len(_NUMPY_TYPES) else f"type {number}"


def covered(first: int, shape: Sequence[int], strides: Sequence[int], width: int) -> range:
    """The addresses from the lowest element to behind the highest, where the one with index 0 is at `first`. Strides are in bytes.

    Raises Unreadable for what no address space has room for.
    """
    if 0 in shape:
        return range(first, first)
    reaches = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    low, high = first + sum(reach for reach in reaches if reach < 0), first + sum(reach for reach in reaches if reach > 0) + width
    if not 0 <= low < high <= _ADDRESSES:
        raise Unreadable(f"an array from {low:#x} to {high:#x}")
    return range(low, high)
