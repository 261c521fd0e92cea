"""Values of variables as text, like `repr` where that needs no code of the process: bounded in length, depth and number of reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Optional

from crashkit.interpreter.arrays import Arrays
from crashkit.interpreter.foreign import Foreign
from crashkit.interpreter.objects import BYTES, DICTIONARY, EXCEPTION, HEAP_TYPE, INT, LIST, TEXT, TUPLE, TYPE, Objects
from crashkit.interpreter.threads import module_contents
from crashkit.interpreter.view import Unreadable

_LONGEST = 200
_DEEPEST = 4
_MOST_ITEMS = 64
_LONGEST_TYPE_NAME = 200
_CUT = "…"
NULL = "<NULL>"
"""An item of a tuple or list that was never set, as `repr` has it (Objects/object.c, `PyObject_Repr`)."""
_PATIENCE = 3.0
"""Seconds of processor time for all values of one process: containers that are damaged, or made for it, can take long to look through."""


class Values:
    """Formats the objects of one interpreter. `nothing` says where None is, if the interpreter does not lead there."""

    def __init__(self, objects: Objects, interpreter: Optional[int], nothing: Callable[[], Optional[int]] = lambda: None) -> None:
        self._objects = objects
        self._view = objects.view
        self._builtins = _builtins(objects, interpreter) if interpreter is not None else {}
        if "None" not in self._builtins.values() and (told := nothing()):
            self._builtins[told] = "None"
        self.nothing = next((address for address, name in self._builtins.items() if name == "None"), 0)
        """The address of None; 0 if it is not known."""
        self._types: dict[int, str] = {}
        self._texts: dict[int, str] = {}
        self._spent = self._ends = 0.0
        self._interpreter = interpreter
        self._arrays: Optional[Arrays] = None
        self._foreign: Optional[Foreign] = None

    def text(self, address: int) -> str:
        """The object as text of at most 200 characters; what cannot be read, in angle brackets."""
        if address not in self._texts:
            began = time.thread_time()
            self._ends = began + _PATIENCE - self._spent
            self._texts[address] = _cut(self._represent(address, ()))
            self._spent += time.thread_time() - began
        return self._texts[address]

    def _represent(self, address: int, outside: tuple[int, ...]) -> str:
        """`outside`: the containers that this object is in."""
        if address in self._builtins:
            return self._builtins[address]
        if not address:
            return NULL
        if len(outside) > _DEEPEST:
            return "..."
        if time.thread_time() > self._ends:
            return "<not read: the values take too long>"
        try:
            kind = self._objects.type_of(address)
        except Unreadable:
            return f"<unreadable at {address:#x}>"
        try:
            flags = self._objects.flags(kind)
        except Unreadable:
            return f"<object at {address:#x} of an unreadable type at {kind:#x}>"
        try:
            if address in outside:  # as repr() has it
                return next((text for flag, text in ((LIST, "[...]"), (TUPLE, "(...)"), (DICTIONARY, "{...}")) if flags & flag), "...")
            return self._of_kind(address, kind, flags, (*outside, address))
        except Unreadable:
            return f"<{self.type_name(kind)} at {address:#x}, unreadable>"

    def _of_kind(self, address: int, kind: int, flags: int, outside: tuple[int, ...]) -> str:
        objects, layout = self._objects, self._objects.layout
        if flags & TEXT:
            return repr(objects.text(address, _LONGEST + 1))
        if flags & INT:
            number = objects.integer(address)
            return "<a very long int>" if number is None else _of_integer(number)
        if flags & BYTES:
            return repr(objects.bytes(address, _LONGEST + 1))
        if flags & (LIST | TUPLE):
            items, length = objects.items(address, _MOST_ITEMS)
            return self._sequence(items, length, flags, outside)
        if flags & DICTIONARY:
            pairs = (
                f"{self._represent(item.key, outside)}: {self._represent(item.value, outside)}"
                for item in objects.dictionary(address, _MOST_ITEMS + 1)
            )
            return "{" + _joined(pairs) + "}"
        name = self.type_name(kind)
        if flags & EXCEPTION:
            items, _ = objects.items(self._view.word(address + layout.exception.arguments), _MOST_ITEMS)
            return f"{name}({_joined(self._represent(item, outside) for item in items)})"
        if name in ("set", "frozenset"):
            body = _joined(self._represent(item, outside) for item in objects.members(address, _MOST_ITEMS + 1))
            return f"{name}({f'{{{body}}}' if body else ''})" if name == "frozenset" or not body else f"{{{body}}}"
        if name in ("function", "method"):
            function = self._view.word(address + layout.method.function) if name == "method" else address
            return f"<{name} {objects.text(self._view.word(function + layout.function.name), _LONGEST)}>"
        if name == "builtin_function_or_method":
            return f"<built-in function {self.builtin_name(address)}>"
        if name == "module":
            return f"<module {objects.text(self._view.word(address + layout.module.name), _LONGEST)!r}>"
        if name in ("weakref", "weakref.ReferenceType"):
            # PyWeakReference: the object is the first field behind the head, of which the type is the last.
            object_ = self._view.word(address + layout.object.type + objects.view.word_size)
            return f"<weakref at {address:#x}; {'dead' if object_ == self.nothing else f'to {object_:#x}'}>"
        if name == "float":
            return repr(self._view.double(address + layout.float.value))
        if name == "complex":
            real, imaginary = (self._view.double(address + layout.complex.value + 8 * index) for index in (0, 1))
            return repr(complex(real, imaginary))
        if flags & TYPE:
            return f"<class {self.type_name(address)!r}>"
        if self._objects.view.word_size == 8 and (described := self.arrays.text(address, kind)):
            return f"<{name} {described}>"
        if self._objects.view.word_size == 8 and (described := self.foreign.text(address, kind, name)):
            return described
        fields = self._fields(address, outside) if flags & HEAP_TYPE else ""
        return f"<{name}({fields}) at {address:#x}>" if fields else f"<{name} at {address:#x}>"

    @property
    def arrays(self) -> Arrays:
        """Describes arrays."""
        if self._arrays is None:
            self._arrays = Arrays(self._objects, self._interpreter)
        return self._arrays

    @property
    def foreign(self) -> Foreign:
        """Describes what ctypes and cffi hold."""
        if self._foreign is None:
            self._foreign = Foreign(self._objects, self._interpreter)
        return self._foreign

    def _fields(self, address: int, outside: tuple[int, ...]) -> str:
        """The attributes of an instance. Those of attributes in turn are left out."""
        if len(outside) > 1:
            return ""
        try:
            items = islice(chain(self._objects.slots(address), self._objects.attributes(address)), _MOST_ITEMS)
            return _joined(f"{self._objects.text(item.key, _LONGEST)}={self._represent(item.value, outside)}" for item in items)
        except Unreadable:
            return ""

    def _sequence(self, items: list[int], length: int, flags: int, outside: tuple[int, ...]) -> str:
        body = _joined(self._represent(item, outside) for item in items)
        if length > len(items) and not body.endswith(_CUT):
            body += f", {_CUT}"
        if flags & LIST:
            return f"[{body}]"
        return f"({body},)" if length == 1 else f"({body})"

    def builtin_name(self, address: int) -> str:
        """`m_ml->ml_name` of a `PyCFunctionObject` (Include/cpython/methodobject.h). Raises Unreadable."""
        return self._objects.constants.string(self._view.word(self._view.word(address + self._objects.head)), _LONGEST)

    def type_name(self, kind: int) -> str:
        """The name of the type at `kind`; `object` if it cannot be read."""
        if kind not in self._types:
            self._types[kind] = self._builtins.get(kind, "").removeprefix("<class '").removesuffix("'>") or self._name_of(kind)
        return self._types[kind]

    def _name_of(self, kind: int) -> str:
        try:
            place = self._view.word(kind + self._objects.layout.type.name)
            name = self._objects.constants.string(place, _LONGEST_TYPE_NAME)
        except Unreadable:
            return "object"
        return name if name.isprintable() and name else "object"


def _builtins(objects: Objects, interpreter: int) -> dict[int, str]:
    """Names of what the module `builtins` holds, by address: None, True, int, ... The names of types themselves are not in a core."""
    names: dict[int, str] = {}
    try:
        contents = module_contents(objects, interpreter, "builtins")
        for item in objects.dictionary(contents) if contents else ():
            try:
                name = objects.text(item.key, _LONGEST)
                is_type = objects.flags(objects.type_of(item.value)) & TYPE
            except Unreadable:
                continue
            if is_type:
                names.setdefault(item.value, f"<class {name!r}>")  # OSError, before its old names IOError and EnvironmentError
            elif name in ("None", "True", "False", "Ellipsis", "NotImplemented"):
                names[item.value] = name
    except Unreadable:
        pass
    return names


def _joined(parts: Iterable[str]) -> str:
    """Comma-separated, as many as fit."""
    body = ""
    for part in parts:
        if len(body) > _LONGEST:
            return f"{body}, {_CUT}"
        body += f", {part}" if body else part
    return body


def _of_integer(number: int) -> str:
    # Longer ones take time, and Python limits their conversion.
    return str(number) if number.bit_length() < 4 * _LONGEST else f"<an int of {number.bit_length()} bits>"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + _CUT
