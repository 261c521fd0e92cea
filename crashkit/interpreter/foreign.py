"""Pointers and numbers of C that ctypes and cffi hold.

An object of ctypes begins with the address of its value (Modules/_ctypes/ctypes.h, `CDataObject`), one of cffi with its C type and its
value (c/_cffi_backend.c, `CDataObject`). The name of a C type of cffi is where the fixed part of its object ends.
"""

from __future__ import annotations

import struct
from typing import Optional

from crashkit.interpreter.objects import Objects
from crashkit.interpreter.threads import module_contents
from crashkit.interpreter.view import Unreadable

_MOST_BASES = 16
_LONGEST_NAME = 100
_CTYPES = ("_SimpleCData", "_Pointer", "CFuncPtr")
_CFFI = ("_CDataBase", "CData")
"""Today, and before cffi 1.15."""
_POINTERS = frozenset("PzZ")
_NUMBERS = frozenset("?bBhHiIlLqQfd")
"""Codes of `_type_` that mean the same to `struct`, with the sizes of the machine's C."""


class Foreign:
    """Describes the objects of ctypes and cffi of one interpreter, of a process with words of 8 bytes."""

    def __init__(self, objects: Objects, interpreter: Optional[int]) -> None:
        self._objects, self._view = objects, objects.view
        self._families = {
            kind: name
            for module, names in (("_ctypes", _CTYPES), ("_cffi_backend", _CFFI))
            for name, kind in self._types(interpreter, module, names).items()
        }
        self._known: dict[int, Optional[str]] = {}

    def text(self, address: int, kind: int, name: str) -> Optional[str]:
        """Such as `<c_void_p 0x7f…>`, `<LP_c_int NULL>`, `c_int(3)`, `<cdata 'char *' 0x7f…>`; None for any other object.

        `name` is its type's. Raises Unreadable.
        """
        family = self._family(kind)
        if family is None:
            return None
        own = address + self._objects.head
        if family in _CFFI:
            return self._of_cffi(own)
        place = self._view.word(own)
        code = self._code(kind) if family == "_SimpleCData" else "P"
        if code in _NUMBERS:
            (number,) = struct.unpack(code, self._view.data(place, struct.calcsize(code)))
            return f"{name}({number})"
        return f"<{name} {_pointer(self._view.word(place))}>" if code in _POINTERS else None

    def _of_cffi(self, own: int) -> Optional[str]:
        kind, value = self._view.word(own), self._view.word(own + 8)
        fixed = self._view.word(self._objects.type_of(kind) + self._objects.layout.type.basic_size)
        name = self._view.string(kind + fixed, _LONGEST_NAME)
        return f"<cdata {name!r} {_pointer(value)}>" if name.endswith("*") or "(*" in name else None

    def _family(self, kind: int) -> Optional[str]:
        if not self._families:
            return None
        if kind not in self._known:
            self._known[kind] = next((self._families[base] for base in self._bases(kind) if base in self._families), None)
        return self._known[kind]

    def _bases(self, kind: int) -> list[int]:
        """The type itself and those that it derives from, through the first base of each."""
        found: list[int] = []
        while kind and len(found) < _MOST_BASES:
            found.append(kind)
            kind = self._view.word(kind + self._objects.layout.type.base)
        return found

    def _code(self, kind: int) -> Optional[str]:
        """`_type_` of a simple type, or of one that it derives from."""
        for base in self._bases(kind):
            # `tp_dict` is behind `tp_base` (Include/cpython/object.h).
            contents = self._view.word(base + self._objects.layout.type.base + self._view.word_size)
            code = self._objects.item(contents, "_type_") if contents else None
            if code:
                return self._objects.text(code, 1)
        return None

    def _types(self, interpreter: Optional[int], module: str, names: tuple[str, ...]) -> dict[str, int]:
        try:
            contents = module_contents(self._objects, interpreter, module) if interpreter is not None else None
            found = {name: self._objects.item(contents, name) for name in names} if contents else {}
        except Unreadable:
            return {}
        return {name: kind for name, kind in found.items() if kind}


def _pointer(value: int) -> str:
    return f"{value:#x}" if value else "NULL"
