"""Names of functions that Python code calls, in modules without symbols: from the tables by which they are called.

A module written in C gives the interpreter an array of `PyMethodDef` for itself and for each of its types (Include/methodobject.h): the
name of each method in Python, and the address of its function. A stripped module has them, too.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Optional

from msgspec.structs import replace

from crashkit.evidence.core.modules import LoadedModule, ModuleIndex
from crashkit.memory import Memory
from crashkit.model import Crash, Frame, NativeFrame, PythonFrame, Thread
from crashkit.regex import regex
from crashkit.stacks.unwinding import Unwinding

_METHOD = struct.Struct("<QQiiQ")
"""PyMethodDef: ml_name, ml_meth, ml_flags, ml_doc."""
_MOST_FLAGS = 0x3FF
"""METH_* use ten bits: the last is METH_METHOD."""
_MOST_METHODS = 4096
_MODULE_NAME = 64 - 40
"""Bytes from m_name to m_methods in PyModuleDef (Include/moduleobject.h)."""
_TYPE_NAME = 232 - 24
"""Bytes from tp_name to tp_methods in PyTypeObject (Include/cpython/object.h)."""
_SLOT = struct.Struct("<iiQ")
"""PyType_Slot: slot, padding, pfunc."""
_TYPE_METHODS, _LAST_SLOT = 64, 90
"""Py_tp_methods, and more than any other number of a slot (Include/typeslots.h)."""
_SPEC_SLOTS = 24
"""Bytes from `name` to `slots` in PyType_Spec (Include/object.h)."""
_LONGEST, _SHORT = 256, 32
"""Bytes of a name that are read."""
_LARGEST = 32 << 20
"""Bytes of a module's data that are searched."""
_NAME = regex(r"[^\W\d]\w{0,200}(?:\.[^\W\d]\w{0,200}){0,8}")
_OF_THE_INTERPRETER = regex(r"/(?:lib)?python[23][^/]*$|/lib-dynload/[^/]+$")
_OF_C = {
    "posix.abort": "os_abort",
    "posix.kill": "os_kill",
    "posix.killpg": "os_killpg",
    "_signal.raise_signal": "signal_raise_signal",
    "_signal.pthread_kill": "signal_pthread_kill",
    "_queue.SimpleQueue.get": "_queue_SimpleQueue_get",
    "_imp.create_dynamic": "_imp_create_dynamic",
    "gc.collect": "gc_collect",
}
"""Names in C that rules ask for: of functions that Argument Clinic declares, which derives them from these."""


Read = Callable[[int, int], bytes]


def with_method_names(
    crash: Crash, memory: Memory, constants: Read, modules: Sequence[LoadedModule], files: Mapping[str, Optional[Path]]
) -> Crash:
    """The crash with names for the nameless native frames that the interpreter called as methods: `_imaging.ImagingCore.crop`.

    `constants` reads memory, or what a core omits from a module's file; `files` are those of the modules.
    """
    if memory.word.code != "<Q":
        return crash
    asked = {pc for thread in crash.threads for pc in _called(thread)}
    if not asked:
        return crash
    index = ModuleIndex(modules)
    unwinding = Unwinding(index, files, memory.architecture)
    starts: dict[LoadedModule, dict[int, int]] = defaultdict(dict)
    for pc in asked:
        module, start = index.at(pc), unwinding.function_start(pc)
        if module is not None and start is not None:
            starts[module][pc] = start
    names: dict[int, str] = {}
    for module, wanted in starts.items():
        found = _Tables(memory, constants, module).names(frozenset(wanted.values()))
        names |= {pc: found[start] for pc, start in wanted.items() if start in found}
    return replace(crash, threads=tuple(_with_names(thread, names) for thread in crash.threads)) if names else crash


def _called(thread: Thread) -> Iterator[int]:
    """Where the nameless functions stood that Python code, or the interpreter, called."""
    for frame, outer in zip(thread.frames, thread.frames[1:], strict=False):
        place = _place(frame)
        if place is not None and (isinstance(outer, PythonFrame) or _is_interpreter(outer)):
            yield place


def _place(frame: Frame) -> Optional[int]:
    """An address in the function: the byte before a return address lies in the calling function for sure."""
    if not isinstance(frame, NativeFrame) or frame.function or frame.pc is None:
        return None
    return frame.pc if frame.trust == "context" else frame.pc - 1


def _is_interpreter(frame: Frame) -> bool:
    return isinstance(frame, NativeFrame) and _OF_THE_INTERPRETER.search(frame.module or "") is not None


def _with_names(thread: Thread, names: Mapping[int, str]) -> Thread:
    frames = [replace(frame, function=names.get(place)) if (place := _place(frame)) is not None else frame for frame in thread.frames]
    return replace(thread, frames=tuple(frames))


class _Tables:
    """The tables of methods in the data of one module."""

    def __init__(self, memory: Memory, constants: Read, module: LoadedModule) -> None:
        self._read = constants
        self._module = module
        self._data = list(_data(memory, module))

    def names(self, starts: Collection[int]) -> dict[int, str]:
        """By the address where the function starts."""
        return {start: name for start in starts if (name := self._name(start)) is not None}

    def _name(self, start: int) -> Optional[str]:
        for at in self._places(start):
            method = self._method(at - 8)
            if method is not None:
                owner = self._owner(self._table(at - 8))
                name = method if owner in (None, "builtins") else f"{owner}.{method}"
                return _OF_C.get(name, name)
        return None

    def _method(self, at: int) -> Optional[str]:
        """The name in the entry at this address; None if it is none."""
        name = self._name_of(at)
        return self._text(name) if name is not None else None

    def _name_of(self, at: int) -> Optional[int]:
        """Where the name is of what looks like an entry."""
        data = self._read(at, _METHOD.size)
        name, function, flags, _, _ = _METHOD.unpack(data) if len(data) == _METHOD.size else (0, 0, 0, 0, 0)
        return name if self._is_inside(name) and self._is_inside(function) and 0 < flags <= _MOST_FLAGS else None

    def _table(self, at: int) -> int:
        """Where the table begins that has this entry."""
        for _ in range(_MOST_METHODS):
            if self._name_of(at - _METHOD.size) is None:
                break
            at -= _METHOD.size
        return at

    def _owner(self, table: int) -> Optional[str]:
        """The module or type whose methods these are."""
        for at in self._places(table):
            for offset in (_MODULE_NAME, _TYPE_NAME):
                if (name := self._string(at - offset)) is not None:
                    return name
            if (name := self._of_spec(at - 8)) is not None:
                return name
        return None

    def _of_spec(self, slot: int) -> Optional[str]:
        """The name in the PyType_Spec whose slots have this one."""
        if self._slot(slot) != _TYPE_METHODS:
            return None
        while 0 < (self._slot(slot - _SLOT.size) or 0) <= _LAST_SLOT:
            slot -= _SLOT.size
        return next((name for at in self._places(slot) if (name := self._string(at - _SPEC_SLOTS)) is not None), None)

    def _slot(self, at: int) -> Optional[int]:
        data = self._read(at, _SLOT.size)
        number, padding, _ = _SLOT.unpack(data) if len(data) == _SLOT.size else (0, 0, 0)
        return number if not padding else None

    def _string(self, at: int) -> Optional[str]:
        return self._text(int.from_bytes(self._read(at, 8), "little"))

    def _text(self, at: int) -> Optional[str]:
        if not self._is_inside(at):
            return None
        # Constants may end with their page.
        data = self._read(at, _LONGEST) or self._read(at, _SHORT)
        text = data.partition(b"\0")[0].decode("utf-8", "replace")
        return text if _NAME.fullmatch(text) else None

    def _is_inside(self, address: int) -> bool:
        return self._module.base <= address < self._module.end

    def _places(self, pointer: int) -> Iterator[int]:
        """Where the module's data has this pointer."""
        wanted = pointer.to_bytes(8, "little")
        for begin, piece in self._data:
            at = piece.find(wanted)
            while at >= 0:
                if (begin + at) % 8 == 0:
                    self._read(begin + at, 8)  # so that a minimal core has what was found
                    yield begin + at
                at = piece.find(wanted, at + 1)


def _data(memory: Memory, module: LoadedModule) -> Iterator[tuple[int, bytes]]:
    """What the module's file gave to memory, but for its code."""
    left = _LARGEST
    for mapping in memory.mappings():
        size = mapping.end - mapping.start
        if mapping.path != module.path or "x" in (mapping.permissions or "") or size > left:
            continue
        left -= size
        yield from memory.scan(mapping.start, mapping.end)
