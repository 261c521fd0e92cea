"""Whether native code got the values of a Python line as they are, so that a small number or None there can be its null pointer. Pure."""

from __future__ import annotations

import re
from itertools import takewhile

from crashkit.model import NativeFrame, PythonFrame, Thread
from crashkit.naming.functions import plain
from crashkit.naming.machinery import handler_end
from crashkit.naming.own_code import python_frames

ADDRESS, ZERO, NONE = "address", "zero", "none"

# ctypes and cffi call C functions through libffi, which checks nothing.
_FOREIGN = re.compile(r"ffi_call\w*|_ctypes_callproc|_call_function_pointer")
_FOREIGN_FILES = re.compile(r"/libffi|/_ctypes\.|/_cffi_backend\.")
# These turn None into a null pointer, but take no number for a pointer.
_WRAPPERS = re.compile(r"(?:pybind11|nanobind|boost::python)::.*|_wrap_\w+|nb_func_\w+")
# What runs in between by itself got nothing of the line: the loader with a library's constructors, a deallocator, the end of the process.
_BY_ITSELF = re.compile(r"_?dl_\w+|dlopen\w*|call_init|PyInit_\w+|_?Py_Dealloc|\w+_dealloc|exit|__run_exit_handlers")
_LOADER = re.compile(r"/ld-(?:linux|musl|\d)[^/]*$")
_READS = ("string_at", "wstring_at", "cast")
"""What ctypes has in Python of its own and calls such functions with what it was given."""
_NEAR = 4
"""Native frames up to the call: what failed further in was seldom given what the line gives."""


def handed_on(thread: Thread) -> frozenset[str]:
    """Which values of the line that called it the failed native code may have used as a null pointer.

    ADDRESS: a small number that is the address itself; ZERO; NONE.
    """
    frames = thread.frames[handler_end(thread.frames) :]
    natives = list(takewhile(lambda frame: not isinstance(frame, PythonFrame), frames))
    for inside, frame in enumerate(natives):
        if not isinstance(frame, NativeFrame):
            return frozenset()
        name, module = plain(frame.function or ""), frame.module or ""
        if _BY_ITSELF.fullmatch(name) or _LOADER.search(module):
            return frozenset()
        if is_foreign_call(frame):
            return _through_libffi(inside)
        if _WRAPPERS.fullmatch(name):
            return frozenset({NONE} if inside <= _NEAR else ())
    # Where libffi is part of a stripped interpreter, and before the native stack has been read, what called it tells.
    caller = next(iter(python_frames(thread)), None)
    # Frozen programs name the library's files by relative paths.
    reads = caller is not None and "/ctypes/" in f"/{caller.file}" and caller.function in _READS
    return _through_libffi(len(natives)) if reads else frozenset()


def is_foreign_call(frame: NativeFrame) -> bool:
    """Whether the frame is one of libffi, ctypes or cffi on the way to a C function that Python code named."""
    return _FOREIGN.fullmatch(plain(frame.function or "")) is not None or _FOREIGN_FILES.search(frame.module or "") is not None


def _through_libffi(inside: int) -> frozenset[str]:
    return frozenset({ADDRESS, ZERO, NONE} if inside <= _NEAR else {ADDRESS})
