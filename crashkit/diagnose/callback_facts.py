"""Callbacks that C code calls through libffi: Modules/_ctypes/callbacks.c. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from crashkit.diagnose.case import Case, Native
from crashkit.diagnose.outcome import Outcome, no
from crashkit.model import Evidence
from crashkit.naming.failing import code_in
from crashkit.regex import regex

_CLOSURE = regex(r"ffi_closure_\w+")
_CTYPES = regex(r"(?:closure_fcn|_CallPythonObject|PyTuple_GET_SIZE|Py_SIZE|PyTuple_GET_ITEM)")
_ARGUMENT = regex(r"[A-Za-z]\w?_get|Py_X?INCREF")
"""Conversions of the callback's arguments (cfield.c): their pointers come from the caller."""
_CALLERS = regex(r"/_(?:ctypes|cffi_backend)\.|/libpython|/python[\d.]*$")
_OF_CALL = 3
"""Functions of libffi that a call goes through: ffi_call, ffi_call_int, ffi_call_unix64. A callback adds its own."""


def callback_freed(case: Case) -> Outcome:
    """The crashed thread failed between libffi's entry of a callback and the Python function: what ctypes had put there is gone."""
    natives = case.crashed.failing if case.crashed is not None else []
    inside = list(takewhile(_is_ctypes, natives))
    if any(_ARGUMENT.fullmatch(native.name) for native in inside):
        return no("an argument of a callback was converted")
    outside = natives[len(inside) :]
    if case.crashed is None or not outside or not (_enters(outside) if not inside else _is_entry(outside[0])):
        return no("it did not fail as a callback was entered")
    entry = outside[0]
    return Outcome(True, (Evidence(text=entry.name or code_in(entry.frame), thread=case.crashed.thread.tid, frame=entry.index),))


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


CALLBACK_FACTS = {"callback-freed": callback_freed}
