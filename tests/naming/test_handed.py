"""A small number or None in the line that called native code is said to be its null pointer only where it was handed to what failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.model import Address, Frame, NativeFrame, PythonFrame, Signal, Thread
from crashkit.naming.values import bad_pointer
from crashkit.pipeline import analyze
from crashkit.report.answer import answer
from crashkit.report.text import first_answer
from tests.crashes import a_debuggable_interpreter, library_crash, needs_gdb

LOADS = """
import ctypes

def load(name, mode=0):
    return ctypes.CDLL(name, mode)

load({library!r})
"""


@needs_gdb
@pytest.mark.slow
def test_a_constructor_of_a_library_gets_no_value_of_the_line_that_loads_it(tmp_path: Path) -> None:
    """`mode` is 0 in that line and in ctypes' own."""
    early: list[str] = []
    crash = analyze(
        library_crash("plugin.c", LOADS, tmp_path, a_debuggable_interpreter()).core,
        progress=lambda stage, so_far: early.append(first_answer(so_far())) if stage == "gdb" else None,
    )
    assert "used as a pointer" not in early[0]
    found = answer(crash)
    assert found is not None and found.frame.function == "load" and not found.pointer
    assert crash.signal is not None and bad_pointer(next(one for one in crash.threads if one.crashed), crash.signal) is None
    assert not any("mode" in fix for finding in crash.findings for fix in finding.fix)


def value(frames: tuple[Frame, ...], address: int, **values: str) -> str | None:
    line = PythonFrame(function="f", file="/srv/app.py", line=3, source=f"run({', '.join(values)})", locals=values)
    signal = Signal(number=11, name="SIGSEGV", address=Address(address))
    found = bad_pointer(Thread(tid=1, crashed=True, frames=(*frames, line)), signal)
    return found and found.name


@pytest.mark.parametrize(
    ("inside", "expected"),
    [({"path": "None"}, "name"), ({"length": "<LP_c_char_p NULL>", "field": "'x'"}, None), ({}, "name")],
)
def test_a_line_further_out_gave_only_what_the_frame_that_called_has(inside: dict[str, str], expected: str | None) -> None:
    """Where the values of that frame are known."""
    caller = PythonFrame(function="call", file="/v/site-packages/lib/core.py", line=9, source="lib.call(", locals=inside)
    assert value((*natives("lib_call", *CTYPES), caller), 0x10, name="None") == expected


@pytest.mark.parametrize("file", ["/usr/lib/python3.11/ctypes/__init__.py", "ctypes/__init__.py"])
def test_what_ctypes_calls_tells_in_frozen_programs_too(file: str) -> None:
    """They name the library's files by relative paths, and PyInstaller's loader removes the interpreter: its frames have no names."""
    caller = PythonFrame(function="string_at", file=file, line=9, locals={"ptr": "112"})
    assert value((*natives("memcpy", ""), caller), 112, where="112") == "where"


def natives(*names: str) -> tuple[Frame, ...]:
    return tuple(NativeFrame(function=name) for name in names)


CTYPES = ("ffi_call_unix64", "ffi_call", "_ctypes_callproc", "PyCFuncPtr_call")


@pytest.mark.parametrize(
    ("frames", "address", "values", "expected"),
    [
        (natives("memcpy", *CTYPES), 0x18, {"size": "7", "buffer": "24"}, "buffer"),
        (natives("memcpy", *CTYPES), 0x10, {"size": "7", "buffer": "0"}, "buffer"),
        (natives("memcpy", *CTYPES), 0x10, {"size": "7", "buffer": "None"}, "buffer"),
        (natives("memcpy", *CTYPES), 0x18, {"size": "c_int(24)", "buffer": "<c_void_p 0x18>"}, "buffer"),
        (natives("memcpy", *CTYPES), 0x10, {"flags": "0", "into": "<LP_c_int NULL>"}, "into"),
        (natives("strlen", *CTYPES), 0x7F00_1000_03E8, {"text": "<cdata 'char *' 0x7f0010000000>"}, "text"),
        # Far inside of a library only the very address says something.
        (natives("lookup", "find", "read_row", "decode", "run", *CTYPES), 0x10, {"flags": "0"}, None),
        (natives("lookup", "find", "read_row", "decode", "run", *CTYPES), 0x10, {"flags": "16"}, "flags"),
        # Numbers are not pointers to an extension module, and its own structures have fields at small offsets, too.
        (natives("at::native::index_select", "THPVariable_index_select"), 0, {"dim": "0"}, None),
        (natives("at::native::index_select", "THPVariable_index_select"), 8, {"dim": "8"}, None),
        (natives("Engine::run", "pybind11::cpp_function::dispatcher"), 8, {"size": "8", "state": "None"}, "state"),
        (natives("Engine::run", "pybind11::cpp_function::dispatcher"), 0, {"size": "0"}, None),
        (natives(*"abcdef", "pybind11::cpp_function::dispatcher"), 8, {"options": "None"}, None),
        (natives("close_file", "file_dealloc", *CTYPES), 0, {"size": "0"}, None),
        # An address that is no small number is told by itself, whatever ran in between.
        (natives("read_row", "run"), 0x7F00_1000_0018, {"row": str(0x7F00_1000_0000)}, "row"),
    ],
)
def test_what_was_handed_on(frames: tuple[Frame, ...], address: int, values: dict[str, str], expected: str | None) -> None:
    assert value(frames, address, **values) == expected
