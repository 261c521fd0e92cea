"""Where execution was: by what is mapped there, or around it where nothing is. Pure."""

from __future__ import annotations

from typing import Optional

from crashkit.diagnose.case import Case, Native
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import Evidence, Mapping
from crashkit.naming.failing import code_in
from crashkit.regex import regex

_FARTHEST = 64 << 20
"""Bytes between an address and the nearest library, and of a gap that one may have left: more lie between the areas of an address space."""
_LARGEST = 64 << 10
"""Bytes of memory that libffi or cffi take for callbacks at once: code that a JIT compiler made lies in larger pieces."""
_LIBRARY = regex(r"\.so(?:\.[\d.]{1,40})?$")
_CALLS = regex(r"/lib(?:ffi|python)|/_(?:ctypes|cffi_backend)\.|/python[\d.]*$")
_FFI = regex(r"/_(?:ctypes|cffi_backend)\.|/libffi")


def gap_among_libraries(case: Case) -> Outcome:
    """The address that was executed lies in a gap among what is mapped of libraries, as one leaves that is unloaded."""
    native = _innermost(case)
    if case.crashed is None or native is None or native.frame.pc is None or not case.crash.mappings:
        return unknown("where the crashed thread was running, and what was mapped")
    pc = int(native.frame.pc)
    if _at(case, pc) is not None:
        return no("memory is mapped where the crashed thread was running")
    before = max((int(one.end) for one in case.crash.mappings if one.end <= pc), default=0)
    behind = min((int(one.start) for one in case.crash.mappings if one.start > pc), default=1 << 64)
    distances = ((min(abs(pc - int(one.end)), abs(int(one.start) - pc)), one) for one in case.crash.mappings if _library(one))
    distance, nearest = min(distances, key=lambda pair: pair[0], default=(_FARTHEST, None))
    if nearest is None or distance >= _FARTHEST or behind - before > _FARTHEST:
        return no("no library is mapped near it")
    size, name = f"{behind - before:,}", _library(nearest) or ""
    text = f"nothing is mapped in {size} bytes near {name}"
    return Outcome(True, (Evidence(text=text, thread=case.crashed.thread.tid, frame=native.index),), {"near": name, "gap": size})


def in_callbacks_memory(case: Case) -> Outcome:
    """The innermost frame is in a small piece of memory that can be written and executed, as libffi and cffi take it for callbacks, and a
    library called it."""
    native = _innermost(case)
    if case.crashed is None or native is None or native.frame.pc is None or not case.crash.mappings:
        return unknown("where the crashed thread was running, and what was mapped")
    mapping = _at(case, int(native.frame.pc))
    if mapping is None or mapping.path or mapping.permissions != "rwx" or mapping.end - mapping.start > _LARGEST:
        return no("it was not in memory that is made for callbacks")
    if not any(_FFI.search(module.path) for module in case.crash.modules):
        return no("neither ctypes nor cffi is loaded")
    caller = next((one for one in case.crashed.natives if one.index > native.index), None)
    if caller is None or not caller.module or _CALLS.search(caller.module):
        return no("no library had called it")
    where = f"{code_in(native.frame)} in {mapping.end - mapping.start:#x} bytes that can be written and executed, called by {caller.name}"
    return Outcome(True, (Evidence(text=where, thread=case.crashed.thread.tid, frame=native.index),))


def _innermost(case: Case) -> Optional[Native]:
    return next(iter(case.crashed.natives), None) if case.crashed is not None else None


def _at(case: Case, address: int) -> Optional[Mapping]:
    return next((one for one in case.crash.mappings if one.start <= address < one.end), None)


def _library(mapping: Mapping) -> Optional[str]:
    """The name of the library of which something is mapped here."""
    name = (mapping.path or "").rpartition("/")[2]
    return name if _LIBRARY.search(name) else None


CODE_FACTS = {"gap-among-libraries": gap_among_libraries, "in-callbacks-memory": in_callbacks_memory}
