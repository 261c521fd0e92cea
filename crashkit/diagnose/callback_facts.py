"""Callbacks that C code calls through libffi: Modules/_ctypes/callbacks.c. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Optional

from crashkit.diagnose.case import Case, Native, Stack
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.memory import mapping_at
from crashkit.model import Evidence
from crashkit.naming.failing import code_in
from crashkit.regex import regex

_CLOSURE = regex(r"ffi_closure_\w+")
_CTYPES = regex(r"(?:closure_fcn|_CallPythonObject|PyTuple_GET_SIZE|Py_SIZE|PyTuple_GET_ITEM)")
_ARGUMENT = regex(r"[A-Za-z]\w?_get|Py_X?INCREF")
"""Conversions of the callback's arguments (cfield.c): their pointers come from the caller."""
_CALLING = regex(
    r"_?PyObject_\w*[Cc]all\w*|_?PyVectorcall_\w+|_PyFunction_Vectorcall|_PyEval_Vector|_PyEvalFrameClearAndPop|_PyFrame_Clear|clear_thread_frame"
    r"|_Py_CheckFunctionResult|func_dealloc|_Py_Dealloc|_?Py_X?DECREF|_?Py_INCREF|_?PyObject_GC_\w+|_Py_IsImmortal|Py_TYPE"
)
"""What the interpreter runs between ctypes and a Python function, and as that is freed in its own call."""
_CALLERS = regex(r"/_(?:ctypes|cffi_backend)\.|/libpython|/python[\d.]*$")
_POINTER = regex(r"(?:\w{1,40}@entry=)?(0x[0-9a-f]{1,16})\b")
_FFI = regex(r"/_(?:ctypes|cffi_backend)\.|/libffi")
_LARGEST_BLOCK = 64 << 10
"""Bytes of memory that libffi or cffi take for callbacks at once: code that a JIT compiler made lies in larger pieces."""
_OF_CALL = 3
"""Functions of libffi that a call goes through: ffi_call, ffi_call_int, ffi_call_unix64. A callback adds its own."""


def callback_freed(case: Case) -> Outcome:
    """The crashed thread failed between libffi's entry of a callback and the Python function: what ctypes had put there is gone."""
    natives = _without_call(case.crashed) if case.crashed is not None else []
    inside = list(takewhile(_is_ctypes, natives))
    if any(_ARGUMENT.fullmatch(native.name) for native in inside):
        return no("an argument of a callback was converted")
    outside = natives[len(inside) :]
    if case.crashed is None or not outside or not (_enters(outside) if not inside else _is_entry(outside[0])):
        return no("it did not fail as a callback was entered")
    entry = outside[0]
    return Outcome(True, (Evidence(text=entry.name or code_in(entry.frame), thread=case.crashed.thread.tid, frame=entry.index),))


def called_function_freed(case: Case) -> Outcome:
    """The crashed thread failed as it freed the Python function that ctypes was calling: whoever calls a callback must keep that."""
    frames = case.crashed.natives if case.crashed is not None else []
    called = next((native for native in frames if native.name == "_CallPythonObject"), None)
    freed = next((native for native in frames if native.name == "func_dealloc"), None)
    if case.crashed is None or called is None or freed is None or freed.index > called.index:
        return no("no function was freed in a call by ctypes")
    addresses = {_address(freed, "op"), _address(called, "callable")}
    if None in addresses:
        return unknown("which function was freed")
    if len(addresses) > 1:
        return no("another function was freed than the one that ctypes called")
    text = f"func_dealloc frees the function at {addresses.pop()}, which _CallPythonObject is calling"
    return Outcome(True, (Evidence(text=text, thread=case.crashed.thread.tid, frame=freed.index),))


def in_callbacks_memory(case: Case) -> Outcome:
    """The innermost frame is in a small piece of memory that can be written and executed, as libffi and cffi take it for callbacks, and a
    library called it."""
    native = case.crashed.innermost if case.crashed is not None else None
    if case.crashed is None or native is None or native.frame.pc is None or not case.crash.mappings:
        return unknown("where the crashed thread was running, and what was mapped")
    mapping = mapping_at(case.crash.mappings, native.frame.pc)
    if mapping is None or mapping.path or mapping.permissions != "rwx" or mapping.end - mapping.start > _LARGEST_BLOCK:
        return no("it was not in memory that is made for callbacks")
    if not any(_FFI.search(module.path) for module in case.crash.modules):
        return no("neither ctypes nor cffi is loaded")
    caller = next((one for one in case.crashed.natives if one.index > native.index), None)
    if caller is None or not caller.module or _is_libffi(caller) or _CALLERS.search(caller.module):
        return no("no library had called it")
    where = f"{code_in(native.frame)} in {mapping.end - mapping.start:#x} bytes that can be written and executed, called by {caller.name}"
    return Outcome(True, (Evidence(text=where, thread=case.crashed.thread.tid, frame=native.index),))


def _address(native: Native, argument: str) -> Optional[str]:
    """The pointer that a debugger shows for an argument."""
    found = _POINTER.match(native.frame.args.get(argument, ""))
    return found[1] if found is not None else None


def _without_call(stack: Stack) -> list[Native]:
    """The frames from the one that failed on; where no Python code ran within ctypes' call, without the interpreter's part of that call."""
    calling = len(list(takewhile(lambda native: _CALLING.fullmatch(native.name) is not None, stack.failing)))
    outer = stack.failing[calling : calling + 1]
    called = bool(outer) and outer[0].name == "_CallPythonObject"
    ran_python = called and any(index is None or index < outer[0].index for index, _ in stack.pythons)
    return stack.failing[calling:] if called and not ran_python else stack.failing


def _enters(natives: Sequence[Native]) -> bool:
    """Whether libffi itself failed on the way into a callback, not on the way out to a C function."""
    run = list(takewhile(_is_libffi, natives))
    if any(_CLOSURE.fullmatch(native.name) for native in (*natives[:1], *run)):
        return True
    if run and run[-1].name == "ffi_call":
        return len(run) > _OF_CALL
    # Nothing but ctypes and cffi calls functions through it.
    return bool(run) and len(natives) > len(run) and not _CALLERS.search(natives[len(run)].module)


def _is_entry(native: Native) -> bool:
    return _is_libffi(native) or _CLOSURE.fullmatch(native.name) is not None


def _is_ctypes(native: Native) -> bool:
    return "/_ctypes." in native.module or (not _is_libffi(native) and _CTYPES.fullmatch(native.name) is not None)


def _is_libffi(native: Native) -> bool:
    return "/libffi" in native.module


CALLBACK_FACTS = {
    "callback-freed": callback_freed,
    "called-function-freed": called_function_freed,
    "in-callbacks-memory": in_callbacks_memory,
}
