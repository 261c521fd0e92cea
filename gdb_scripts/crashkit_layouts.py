"""The layout of CPython's structures, from the debug info of one interpreter: the tables in crashkit/interpreter/layouts.

Usage: gdb -nx -batch -iex 'set auto-load no' -x gdb_scripts/crashkit_layouts.py FILE > TABLE.json

FILE is libpython, a static python, or the separate debug file of either. Offsets are in bytes, those of bit fields (`bit_...`) in bits.
A field that this version does not have is absent.
"""

import json
from typing import Dict, List, Optional, Tuple

import gdb

# Our name of a structure: its name in C, and our name of each field: the paths that it has or had in C, newest first.
STRUCTURES: Dict[str, Tuple[str, Dict[str, str]]] = {
    "runtime": (
        "_PyRuntimeState",
        {
            "interpreters": "interpreters.head",
            "main_interpreter": "interpreters.main",
            "finalizing": "_finalizing finalizing",
            "gil_locked": "ceval.gil.locked",
            "gil_holder": "gilstate.tstate_current ceval.gil.last_holder",
            "collector": "gc",
            "signals": "signals.handlers",
        },
    ),
    "interpreter": (
        "PyInterpreterState",
        {
            "next": "next",
            "id": "id",
            "threads": "threads.head tstate_head",
            "modules": "imports.modules modules",
            "gil": "ceval.gil",
            "collector": "gc",
            "finalizing": "_finalizing",
        },
    ),
    "collector": ("struct _gc_runtime_state", {"running": "collecting"}),
    "gil": ("struct _gil_runtime_state", {"locked": "locked", "holder": "last_holder", "enabled": "enabled"}),
    "thread": (
        "PyThreadState",
        {
            "previous": "prev",
            "next": "next",
            "interpreter": "interp",
            "ident": "thread_id",
            "native_id": "native_thread_id",
            "frame": "current_frame frame",
            "cframe": "cframe",
            "pending": "current_exception curexc_value",
            "pending_type": "curexc_type",
            "handled": "exc_value",
            "handlers": "exc_info",
            "chunk": "datastack_chunk",
            "top": "datastack_top",
            "bit_holds_gil": "_status.holds_gil _status.active",
        },
    ),
    "chunk": ("_PyStackChunk", {"previous": "previous", "top": "top", "data": "data"}),
    "handler": ("struct _err_stackitem", {"exception": "exc_value", "previous": "previous_item"}),
    "cframe": ("_PyCFrame", {"frame": "current_frame"}),
    "frame": (
        "struct _PyInterpreterFrame | PyFrameObject",
        {
            "previous": "previous f_back",
            "code": "f_executable f_code",
            "instruction": "instr_ptr prev_instr f_lasti",
            "locals": "localsplus f_localsplus",
            "owner": "owner",
            "is_entry": "is_entry",
            "bytecode_copy": "tlbc_index",
            "stack_top": "stacktop stackpointer",
            "runs": "f_executing f_state",
        },
    ),
    "code": (
        "PyCodeObject",
        {
            "name": "co_name",
            "qualified_name": "co_qualname",
            "file": "co_filename",
            "first_line": "co_firstlineno",
            "lines": "co_linetable co_lnotab",
            "units": "ob_base.ob_size",
            "bytecode": "co_code_adaptive",
            "bytecode_copies": "co_tlbc",
            "flags": "co_flags",
            "arguments": "co_argcount",
            "keyword_arguments": "co_kwonlyargcount",
            "variables": "co_varnames",
            "cells": "co_cellvars",
            "free": "co_freevars",
            "slots": "co_localsplusnames",
            "slot_kinds": "co_localspluskinds",
            "frame_slots": "co_nlocalsplus",
            "stack_size": "co_stacksize",
        },
    ),
    "object": ("PyObject", {"type": "ob_type"}),
    "type": (
        "PyHeapTypeObject",
        {
            "name": "ht_type.tp_name",
            "base": "ht_type.tp_base",
            "flags": "ht_type.tp_flags",
            "basic_size": "ht_type.tp_basicsize",
            "dictionary": "ht_type.tp_dictoffset",
            "shared_keys": "ht_cached_keys",
        },
    ),
    "text": (
        "PyUnicodeObject",
        {
            "length": "_base._base.length",
            "bit_kind": "_base._base.state.kind",
            "bit_compact": "_base._base.state.compact",
            "bit_ascii": "_base._base.state.ascii",
            "data": "data",
        },
    ),
    "bytes": ("PyBytesObject", {"length": "ob_base.ob_size", "data": "ob_sval"}),
    "tuple": ("PyTupleObject", {"length": "ob_base.ob_size", "items": "ob_item"}),
    "list": ("PyListObject", {"length": "ob_base.ob_size", "items": "ob_item"}),
    "integer": ("struct _longobject", {"size": "long_value.lv_tag ob_base.ob_size", "digits": "long_value.ob_digit ob_digit"}),
    "float": ("PyFloatObject", {"value": "ob_fval"}),
    "complex": ("PyComplexObject", {"value": "cval"}),
    "exception": ("PyBaseExceptionObject", {"arguments": "args"}),
    "set": ("PySetObject", {"mask": "mask", "table": "table"}),
    "function": ("PyFunctionObject", {"name": "func_qualname", "code": "func_code", "closure": "func_closure"}),
    "method": ("PyMethodObject", {"function": "im_func"}),
    "generator": ("PyGenObject", {"handler": "gi_exc_state", "state": "gi_frame_state", "frame": "gi_iframe"}),
    "cell": ("PyCellObject", {"content": "ob_ref"}),
    "dictionary": ("PyDictObject", {"used": "ma_used", "keys": "ma_keys", "values": "ma_values"}),
    "keys": (
        "PyDictKeysObject",
        {
            "log2_index_bytes": "dk_log2_index_bytes",
            "size": "dk_size",
            "kind": "dk_kind",
            "entries": "dk_nentries",
            "indices": "dk_indices",
        },
    ),
    "values": ("struct _dictvalues", {"first": "values"}),
    "buffered": ("buffered", {"data": "buffer", "write_start": "write_pos", "write_end": "write_end", "size": "buffer_size"}),
    "textio": ("textio", {"buffer": "buffer", "pending": "pending_bytes"}),
    "module": ("PyModuleObject", {"dictionary": "md_dict", "name": "md_name"}),
}

# Sizes that are offsets: behind these structures lies an object's data.
SIZES = {"text": {"after_ascii": "PyASCIIObject", "after_compact": "PyCompactUnicodeObject"}}

# The entry of a signal in the table of its handlers, a structure without a name: the table's name, 3.12 and newer, and before.
SIGNALS = "_PyRuntime.signals.handlers | Handlers"
SIGNAL = {"tripped": "tripped", "function": "func"}

# 3.13 and newer: `_PyRuntime` begins with offsets of its own build (Include/internal/pycore_debug_offsets.h); where each stands in there.
DEBUG_OFFSETS: Dict[str, str] = {
    "runtime.interpreters": "runtime_state.interpreters_head",
    "runtime.finalizing": "runtime_state.finalizing",
    "interpreter.next": "interpreter_state.next",
    "interpreter.id": "interpreter_state.id",
    "interpreter.threads": "interpreter_state.threads_head",
    "interpreter.modules": "interpreter_state.imports_modules",
    "interpreter.gil": "interpreter_state.ceval_gil",
    "interpreter.collector": "interpreter_state.gc",
    "collector.running": "gc.collecting",
    "thread.previous": "thread_state.prev",
    "thread.next": "thread_state.next",
    "thread.interpreter": "thread_state.interp",
    "thread.ident": "thread_state.thread_id",
    "thread.native_id": "thread_state.native_thread_id",
    "thread.frame": "thread_state.current_frame",
    "frame.previous": "interpreter_frame.previous",
    "frame.code": "interpreter_frame.executable",
    "frame.instruction": "interpreter_frame.instr_ptr",
    "frame.locals": "interpreter_frame.localsplus",
    "frame.owner": "interpreter_frame.owner",
    "frame.bytecode_copy": "interpreter_frame.tlbc_index",
    "code.name": "code_object.name",
    "code.qualified_name": "code_object.qualname",
    "code.file": "code_object.filename",
    "code.first_line": "code_object.firstlineno",
    "code.lines": "code_object.linetable",
    "code.bytecode": "code_object.co_code_adaptive",
    "code.bytecode_copies": "code_object.co_tlbc",
    "code.arguments": "code_object.argcount",
    "code.slots": "code_object.localsplusnames",
    "code.slot_kinds": "code_object.localspluskinds",
    "object.type": "pyobject.ob_type",
    "type.name": "type_object.tp_name",
    "type.flags": "type_object.tp_flags",
    "text.length": "unicode_object.length",
    "text.after_ascii": "unicode_object.asciiobject_size",
    "bytes.length": "bytes_object.ob_size",
    "bytes.data": "bytes_object.ob_sval",
    "tuple.length": "tuple_object.ob_size",
    "tuple.items": "tuple_object.ob_item",
    "list.length": "list_object.ob_size",
    "list.items": "list_object.ob_item",
    "integer.size": "long_object.lv_tag",
    "integer.digits": "long_object.ob_digit",
    "float.value": "float_object.ob_fval",
    "dictionary.keys": "dict_object.ma_keys",
    "dictionary.values": "dict_object.ma_values",
}


def lookup(names: str) -> Optional[gdb.Type]:
    """The first of these types, separated by |, whose members the debug info describes."""
    for name in names.split(" | "):
        try:
            kind = gdb.lookup_type(name).strip_typedefs()
        except gdb.error:
            continue
        if kind.code == gdb.TYPE_CODE_STRUCT and kind.fields():
            return kind
    return None


def bits(kind: gdb.Type, path: List[str]) -> Optional[int]:
    """Position of the member in bits; None where there is none of that name, or it lies behind a pointer."""
    for member in kind.strip_typedefs().fields():
        position: Optional[int] = None
        if member.type is None or member.bitpos is None:
            continue
        holds_members = member.type.strip_typedefs().code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)
        if member.name == path[0]:
            position = 0 if len(path) == 1 else bits(member.type, path[1:]) if holds_members else None
        elif not member.name and holds_members:
            position = bits(member.type, path)
        if position is not None:
            return member.bitpos + position
    return None


def signal() -> Dict[str, int]:
    """Where the fields of a signal's entry are, its size, and how many entries there are."""
    for name in SIGNALS.split(" | "):
        try:
            handlers = gdb.parse_and_eval(name).type.strip_typedefs()
        except gdb.error:
            continue
        entry = handlers.target().strip_typedefs()
        positions = {field: bits(entry, [path]) for field, path in SIGNAL.items()}
        found = {field: position // 8 for field, position in positions.items() if position is not None}
        return {**found, "size": entry.sizeof, "count": handlers.range()[1] + 1}
    return {}


def table() -> Dict[str, Dict[str, int]]:
    """Our names of structures and fields, with the offsets in this interpreter."""
    found: Dict[str, Dict[str, int]] = {}
    for structure, (names, fields) in STRUCTURES.items():
        kind = lookup(names)
        if kind is None:
            continue
        found[structure] = {}
        for field, paths in fields.items():
            positions = (bits(kind, path.split(".")) for path in paths.split())
            position = next((one for one in positions if one is not None), None)
            if position is not None:
                found[structure][field] = position if field.startswith("bit_") else position // 8
    for structure, sizes in SIZES.items():
        for field, name in sizes.items():
            found[structure][field] = gdb.lookup_type(name).sizeof
    if entry := signal():
        found["signal"] = entry
    own = lookup("_Py_DebugOffsets | struct _Py_DebugOffsets")
    if own is not None:
        # The table is the same with and without the GIL: where this build has no such field, its offset there is none.
        known = {f"{structure}.{field}" for structure, fields in found.items() for field in fields}
        places = {name: bits(own, path.split(".")) for name, path in DEBUG_OFFSETS.items() if name in known}
        found["debug_offsets"] = {name: place // 8 for name, place in places.items() if place is not None}
        found["debug_offsets"]["size"] = own.sizeof
    return found


print(json.dumps(table(), indent=1))
