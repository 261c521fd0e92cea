"""Where a thread failed, and what to call it: the frame's name, or its module and its caller where it has no name. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crashkit.model import Frame, NativeFrame, PythonFrame, Signal
from crashkit.naming.cython import cython_name
from crashkit.naming.functions import libc_name, plain, short_function
from crashkit.naming.gil import INTERPRETER
from crashkit.naming.handed import is_foreign_call
from crashkit.naming.machinery import handler_end, is_outermost, is_signal_frame, machinery_end

# What these define is part of the function that calls it, and no more its author's than the C library.
_HEADER = re.compile(r"(?:^|/)Include/|/include/(?:python\d|c\+\+/)|(?:^|/)(?:\w*intrin|arm_neon)\.h$")
# What Cython writes into each module, and what the headers of pybind11 and nanobind do.
_WRITTEN = ("__Pyx_", "pybind11::", "nanobind::")
_BINDING_HEADER = re.compile(r"/include/(?:pybind11|nanobind)/")
# Libraries that do what they are told, and interpreters.
_BASE = re.compile(
    r"/(?:(?:libc|libm|ld-linux[\w-]*|ld-musl[\w-]*|libpthread|libffi|libpython\d[\w.]*|_ctypes|libstdc\+\+|libgcc_s)[.-][^/]*"
    r"|python(?:\d(?:\.\d+)?)?[a-z]*)$"
)

# libstdc++-v3/src/c++11/functexcept.cc, and libc++'s of the same names: distributions strip most of the former.
_THROWS = re.compile(r"std::(?:__\w{1,20}::)?__throw_\w{1,60}")
_CXX_LIBRARY = re.compile(r"/lib(?:std)?c\+\+[.-][^/]*$")


def failing(frames: Sequence[Frame], signal: Signal | None = None) -> int | None:
    """Index of the native frame that failed, named or not: the innermost one, without what ends the process on its behalf.

    It is below a signal handler, unless `signal` is a fault of the handler itself. Where Python code called what ends the process through
    ctypes or cffi, nothing native failed but that. What called an inline function of CPython's headers or of the C++ library failed, and
    what uses an intrinsic of the compiler's.
    None if there is no such frame, and where the stack breaks off within a handler that hid the fault.
    """
    start = handler_end(frames)
    if signal is not None and signal.recovered and not start:
        return None
    if signal is not None and not signal.recovered and (signal.code or 0) > 0:
        start = 0
    natives = [index for index in range(start, len(frames)) if isinstance(frames[index], NativeFrame)]
    ends = machinery_end([frames[index].function for index in natives])  # type: ignore[union-attr]
    while 0 < ends < len(natives) and _throws(frames[natives[ends]]):
        ends += 1
    if ends and ends < len(natives) and is_foreign_call(frames[natives[ends]]):  # type: ignore[arg-type]
        return natives[ends - 1]
    return _caller_of_inlined(frames, natives[ends]) if ends < len(natives) else None


def _throws(frame: Frame) -> bool:
    """Whether what called `__cxa_throw` is a function of the C++ library that only does so on behalf of its caller, as for vector::at."""
    if not isinstance(frame, NativeFrame):
        return False
    return _THROWS.fullmatch(plain(frame.function)) is not None if frame.function else _CXX_LIBRARY.search(frame.module or "") is not None


def _caller_of_inlined(frames: Sequence[Frame], index: int) -> int:
    """The function whose code contains this one, where it is an inline function of CPython's headers, the C++ library, an intrinsic or
    a function that Cython wrote, or one of pybind11's or nanobind's headers."""
    frame = frames[index]
    if not (isinstance(frame, NativeFrame) and _is_part(frame)):
        return index
    module = frame.module or ""
    for outer, one in enumerate(frames[index + 1 :], index + 1):
        if not isinstance(one, NativeFrame) or one.module != module:
            break
        # An extension's own inline function is one that its author knows, unlike the interpreter's.
        if not _is_part(one) and not (_is_inline(one) and INTERPRETER.search(module)):
            return outer
    return index


def _is_part(frame: NativeFrame) -> bool:
    """Whether it is an inline function of a header, or one that a binding generator writes into each module: `__Pyx_NewRef`."""
    if (frame.function or "").startswith(_WRITTEN) or _BINDING_HEADER.search(frame.file or ""):
        return True
    return _is_inline(frame) and _HEADER.search(frame.file or "") is not None


def _is_inline(frame: NativeFrame) -> bool:
    return frame.trust == "inline"


def extension(frames: Sequence[Frame], signal: Signal | None, interpreter: str | None, named: bool = False) -> int | None:
    """Index of the innermost native function that failed or called what failed, outside of the C library and the interpreter's file.

    What runs Python code, as gevent's greenlets do, did not call what that code calls. `named`: only one with a name.
    """
    start = failing(frames, signal)
    for index, frame in enumerate(frames[start:] if start is not None else (), start or 0):
        if not isinstance(frame, NativeFrame) or is_outermost(frame.function):
            return None
        module = frame.module or ""
        if module not in ("", interpreter) and not _BASE.search(module) and (frame.function or not named):
            return _caller_of_inlined(frames, index)
    return None


def said_name(frame: NativeFrame) -> str | None:
    """The function's name for use in a sentence: `memcpy` for `__memcpy_avx_unaligned_erms`; None if it has none."""
    if not frame.function:
        return None
    if (written := cython_name(frame.function, frame.module or "")) is not None:
        return written
    name = short_function(frame.function)
    return libc_name(name).lstrip("_") if name.startswith(("__", "_IO_")) else name


def code_in(frame: NativeFrame) -> str:
    """What a frame without a name ran: `code in libc.so.6`."""
    if frame.module:
        return f"code in {frame.module.rstrip('/').rpartition('/')[2]}"
    return f"code at {frame.pc}" if frame.pc is not None else "code in an unknown place"


def said(frames: Sequence[Frame], index: int) -> str:
    """`memcpy`; for a frame without a name `code in libc.so.6, called by ffi_call`."""
    frame = frames[index]
    assert isinstance(frame, NativeFrame)
    name = said_name(frame)
    if name is not None:
        return name
    caller = _caller(frames, index, frame)
    return code_in(frame) if caller is None else f"{code_in(frame)}, called by {caller}"


def where(frames: Sequence[Frame], index: int) -> str:
    """`in memcpy`; for a frame without a name `in libc.so.6, called by ffi_call`, or `in code at 0x…`, as it is not what was accessed."""
    phrase = said(frames, index)
    return phrase.removeprefix("code ") if phrase.startswith("code in ") else f"in {phrase}"


def _caller(frames: Sequence[Frame], index: int, frame: NativeFrame) -> str | None:
    """What called the nameless code: the nearest frame further out with a name, or of another module; None beyond native code."""
    for other in frames[index + 1 :]:
        if isinstance(other, PythonFrame):
            return other.function
        if not isinstance(other, NativeFrame) or is_signal_frame(other):
            return None
        if other.function:
            return said_name(other)
        if other.module != frame.module:
            return code_in(other)
    return None
