"""Where the fields of CPython's structures are: one table a version, made from debug info by gdb_scripts/crashkit_layouts.py.

From 3.13 on a process carries most offsets of its own build, which then count: `_Py_DebugOffsets`, at the beginning of `_PyRuntime`
(Include/internal/pycore_debug_offsets.h).
"""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import NamedTuple, Optional

import msgspec

from crashkit.elf.headers import Word
from crashkit.prepared import prepared

_TABLES = Path(__file__).with_name("layouts")
_MOST_OFFSET = 1 << 20
COOKIE = b"xdebugpy"
"""The first bytes of `_Py_DebugOffsets`, followed by PY_VERSION_HEX and whether the build is free-threaded, 8 bytes each."""


class _Structure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Runtime(_Structure, frozen=True):
    """`_PyRuntimeState`, 3.7 and newer. The GIL is in it from 3.7 to 3.11, the garbage collector in 3.7 and 3.8, the table of signals'
    handlers from 3.12 on."""

    interpreters: int
    main_interpreter: int
    finalizing: int
    gil_locked: Optional[int] = None
    gil_holder: Optional[int] = None
    """The current thread state, `gilstate.tstate_current`."""
    collector: Optional[int] = None
    signals: Optional[int] = None


class InterpreterState(_Structure, frozen=True):
    """`PyInterpreterState`. It contains its garbage collector from 3.9 on, and points to its GIL from 3.12 on."""

    next: int
    threads: int
    modules: int
    id: Optional[int] = None
    gil: Optional[int] = None
    collector: Optional[int] = None
    finalizing: Optional[int] = None


class Collector(_Structure, frozen=True):
    """`struct _gc_runtime_state`, 3.7 and newer."""

    running: int


class Gil(_Structure, frozen=True):
    """`struct _gil_runtime_state`, 3.7 and newer. A free-threaded build has one that is not `enabled`, unless an extension or
    PYTHON_GIL=1 asked for it."""

    locked: int
    holder: int
    enabled: Optional[int] = None


class ThreadState(_Structure, frozen=True):
    """`PyThreadState`. 3.11 and 3.12 reach the current frame through `_PyCFrame`, 3.7 and newer exceptions through `_PyErr_StackItem`.

    `pending` is the exception that is set; up to 3.11 it may be its arguments instead, beside `pending_type`.
    From 3.11 on it has a data stack: `chunk` points to its newest part, `top` to the end of what is used of that. From 3.12 on one of its
    bits says whether the thread holds the GIL.
    """

    previous: int
    next: int
    interpreter: int
    ident: int
    native_id: Optional[int] = None
    frame: Optional[int] = None
    cframe: Optional[int] = None
    pending: Optional[int] = None
    pending_type: Optional[int] = None
    handled: Optional[int] = None
    handlers: Optional[int] = None
    chunk: Optional[int] = None
    top: Optional[int] = None
    bit_holds_gil: Optional[int] = None


class Chunk(_Structure, frozen=True):
    """`_PyStackChunk`, 3.11 and newer: a part of a thread's data stack. `top` counts words of `data`, where a newer part follows."""

    previous: int
    top: int
    data: int


class Handler(_Structure, frozen=True):
    """`_PyErr_StackItem`, 3.7 and newer: an exception that is being handled."""

    exception: int
    previous: int


class CFrame(_Structure, frozen=True):
    """`_PyCFrame`, 3.10 (where it holds no frame) to 3.12."""

    frame: Optional[int] = None


class Frame(_Structure, frozen=True):
    """`_PyInterpreterFrame` (3.11 and newer, with an owner) or `PyFrameObject`.

    `stack_top` is where its values end: a number of words up to 3.13, then an address. `runs` is a byte of a `PyFrameObject` that says
    whether it does: 1 up to 3.9, 0 in 3.10 (`FRAME_EXECUTING`).
    """

    previous: int
    code: int
    instruction: int
    locals: int
    owner: Optional[int] = None
    is_entry: Optional[int] = None
    bytecode_copy: Optional[int] = None
    stack_top: Optional[int] = None
    runs: Optional[int] = None


class CodeObject(_Structure, frozen=True):
    """`PyCodeObject`. `bytecode`, `slots` and their like are of 3.11 and newer; `variables`, `cells` and `free` of older ones.

    A frame of 3.11 and newer ends with `frame_slots` + `stack_size` words.
    """

    name: int
    file: int
    first_line: int
    lines: int
    flags: int
    arguments: int
    keyword_arguments: int
    qualified_name: Optional[int] = None
    units: Optional[int] = None
    bytecode: Optional[int] = None
    bytecode_copies: Optional[int] = None
    slots: Optional[int] = None
    slot_kinds: Optional[int] = None
    variables: Optional[int] = None
    cells: Optional[int] = None
    free: Optional[int] = None
    frame_slots: Optional[int] = None
    stack_size: Optional[int] = None


class Object(_Structure, frozen=True):
    """`PyObject`."""

    type: int


class Type(_Structure, frozen=True):
    """`PyTypeObject` and `PyHeapTypeObject`."""

    name: int
    base: int
    flags: int
    basic_size: int
    dictionary: int
    shared_keys: int


class Text(_Structure, frozen=True):
    """`PyUnicodeObject`: the bits of its state by their position in the object, and where its characters are, by its form."""

    length: int
    bit_kind: int
    bit_compact: int
    bit_ascii: int
    data: int
    after_ascii: int
    after_compact: int


class Bytes(_Structure, frozen=True):
    """`PyBytesObject`."""

    length: int
    data: int


class Items(_Structure, frozen=True):
    """`PyTupleObject`, which holds its items, or `PyListObject`, which points to them."""

    length: int
    items: int


class Integer(_Structure, frozen=True):
    """`PyLongObject`. `size` is a signed number of digits up to 3.11, then `lv_tag`."""

    size: int
    digits: int


class Float(_Structure, frozen=True):
    """`PyFloatObject`, or `PyComplexObject` with two."""

    value: int


class Raised(_Structure, frozen=True):
    """`PyBaseExceptionObject`."""

    arguments: int


class Set(_Structure, frozen=True):
    """`PySetObject`."""

    mask: int
    table: int


class Function(_Structure, frozen=True):
    """`PyFunctionObject`."""

    name: int
    code: int
    closure: int


class Method(_Structure, frozen=True):
    """`PyMethodObject`."""

    function: int


class Generator(_Structure, frozen=True):
    """`PyGenObject`, as which coroutines and asynchronous generators begin, too. It contains its frame from 3.11 on, and `state`, a byte
    that says whether this runs: 0 (`FRAME_EXECUTING`)."""

    handler: Optional[int] = None
    state: Optional[int] = None
    frame: Optional[int] = None


class Cell(_Structure, frozen=True):
    """`PyCellObject`."""

    content: int


class Dictionary(_Structure, frozen=True):
    """`PyDictObject`."""

    used: int
    keys: int
    values: int


class Keys(_Structure, frozen=True):
    """`PyDictKeysObject`: `size` up to 3.10, `kind` and `log2_index_bytes` from 3.11 on."""

    entries: int
    indices: int
    size: Optional[int] = None
    kind: Optional[int] = None
    log2_index_bytes: Optional[int] = None


class Values(_Structure, frozen=True):
    """`PyDictValues`, 3.11 and newer."""

    first: int


class Module(_Structure, frozen=True):
    """`PyModuleObject`."""

    dictionary: int
    name: int


class Signal(_Structure, frozen=True):
    """An entry of the table of signals' handlers, one for each number: `_PyRuntime.signals.handlers`, up to 3.11 the variable `Handlers`
    (Modules/signalmodule.c)."""

    tripped: int
    function: int
    size: int
    count: int


class Buffered(_Structure, frozen=True):
    """`buffered` (Modules/_io/bufferedio.c)."""

    data: int
    write_start: int
    write_end: int
    size: int


class TextIO(_Structure, frozen=True):
    """`textio` (Modules/_io/textio.c)."""

    buffer: int
    pending: int


class Layout(_Structure, frozen=True):
    """One version of CPython: offsets in bytes, of bits in bits."""

    interpreter: InterpreterState
    thread: ThreadState
    frame: Frame
    code: CodeObject
    object: Object
    type: Type
    text: Text
    bytes: Bytes
    tuple: Items
    list: Items
    integer: Integer
    float: Float
    complex: Float
    exception: Raised
    set: Set
    function: Function
    method: Method
    generator: Generator
    cell: Cell
    dictionary: Dictionary
    keys: Keys
    module: Module
    signal: Signal
    runtime: Optional[Runtime] = None
    gil: Optional[Gil] = None
    collector: Optional[Collector] = None
    cframe: Optional[CFrame] = None
    chunk: Optional[Chunk] = None
    handler: Optional[Handler] = None
    values: Optional[Values] = None
    buffered: Optional[Buffered] = None
    textio: Optional[TextIO] = None
    debug_offsets: dict[str, int] = {}
    """Where in `_Py_DebugOffsets` the offset of each of our fields is."""


class Version(NamedTuple):
    """Which CPython."""

    major: int
    minor: int
    free_threaded: bool = False

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}{'t' if self.free_threaded else ''}"


@cache
def layout_of(version: Version) -> Optional[Layout]:
    """The table of that version; None if there is none."""
    try:
        return msgspec.json.decode((_TABLES / f"{version}.json").read_bytes(), type=prepared(Layout))
    except OSError:
        return None


def versions() -> list[Version]:
    """All versions with a table, oldest first."""
    names = (path.stem for path in _TABLES.glob("*.json"))
    parts = ((name.rstrip("t").split("."), name.endswith("t")) for name in names)
    return sorted(Version(int(major), int(minor), free) for (major, minor), free in parts)


def version_of(head: bytes, word: Word) -> Optional[Version]:
    """The version that the first 24 bytes of `_Py_DebugOffsets` give; None if they are something else."""
    if len(head) < 24 or not head.startswith(COOKIE):
        return None
    number, free_threaded = struct.unpack(word.order + "QQ", head[8:24])
    return Version(number >> 24 & 0xFF, number >> 16 & 0xFF, free_threaded != 0) if number >> 32 == 0 else None


def with_debug_offsets(layout: Layout, table: bytes, word: Word) -> Layout:
    """The layout with the offsets that this process itself gives; `table` is its `_Py_DebugOffsets`."""
    told: dict[str, dict[str, int]] = {}
    for name, place in layout.debug_offsets.items():
        structure, _, field = name.partition(".")
        if field and place + 8 <= len(table):
            offset = struct.unpack_from(word.order + "Q", table, place)[0]
            if offset <= _MOST_OFFSET:
                told.setdefault(structure, {})[field] = offset
    changed = {name: msgspec.structs.replace(getattr(layout, name), **fields) for name, fields in told.items()}
    return msgspec.structs.replace(layout, **changed)
