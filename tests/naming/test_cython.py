"""Names and lines of Cython's functions; real ones are in tests/test_frozen.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.evidence.cython_source import with_cython_sources
from crashkit.evidence.module_files import ModuleFile
from crashkit.model import Crash, NativeFrame, PythonFrame, Thread
from crashkit.naming.cython import cython_name
from crashkit.naming.own_code import python_frames

MODULE = "/srv/app/reader.cpython-311-x86_64-linux-gnu.so"


@pytest.mark.parametrize(
    ("function", "module", "written"),
    [
        ("__pyx_f_6reader_peek", MODULE, "peek"),
        ("__pyx_pf_6reader_2read", MODULE, "read"),
        ("__pyx_pw_6reader_1total", MODULE, "total"),
        ("__pyx_pf_7package_6reader_6Reader_2read", MODULE, "Reader.read"),
        ("__pyx_pf_7package_6reader_6Reader___init__", MODULE, "Reader.__init__"),
        ("__pyx_pf_6reader_2do_it", MODULE, "do_it"),
        ("__pyx_f_6pandas_5algos_take_1d_object_object_memview", "", "take_1d_object_object_memview"),
        ("__pyx_gb_6reader_4generator", MODULE, "generator"),
        ("__Pyx_AddTraceback", MODULE, None),
        ("__pyx_f_", MODULE, None),
        ("__pyx_f_6reader_", MODULE, None),
        ("peek", MODULE, None),
    ],
)
def test_name_that_was_written(function: str, module: str, written: str | None) -> None:
    assert cython_name(function, module) == written


@pytest.mark.parametrize(
    ("functions", "line", "written"),
    [
        (["__pyx_f_6reader_peek", "__pyx_pf_6reader_total", "__pyx_pw_6reader_1total"], None, ["reader.peek", "reader.total"]),
        (["__pyx_pw_7package_6reader_6Reader_1read"], None, ["package.reader.Reader.read"]),
        (["__pyx_f_5other_peek"], None, ["peek"]),  # the module is not named so
        (["__pyx_f_6reader_peek", "__pyx_f_6reader_peek"], 6, ["peek", "peek"]),  # a recursion
    ],
)
def test_name_of_a_frame(functions: list[str], line: int | None, written: list[str]) -> None:
    frames = tuple(NativeFrame(function=name, file="reader.pyx", line=line, module=MODULE) for name in functions)
    assert [frame.function for frame in python_frames(Thread(tid=1, crashed=True, frames=frames))] == written


@pytest.mark.parametrize(
    ("constants", "source"),
    [
        (b"\0x\0reader.pyx\0reader.c\0", "reader.pyx"),
        (b"\0package/reader.py\0", "package/reader.py"),
        (b"\0reader.pyx\0package/reader.pyx\0", None),  # which one is not known
        (b"\0other_reader.pyx\0reader.pyxs\0reader.c\0", None),
        (b"\0cannot open reader.pyx\0", None),
        (b"", None),
    ],
)
def test_source_from_the_constants(constants: bytes, source: str | None, tmp_path: Path) -> None:
    path = tmp_path / "reader.so"
    path.write_bytes(b"\x7fELF" + constants)
    lost = NativeFrame(function="__pyx_f_6reader_peek", file="reader.c", line=1234, module=MODULE)
    threads = (Thread(tid=1, crashed=True, frames=(lost, NativeFrame(function="main", file="main.c", line=3, module=MODULE))),)
    found = with_cython_sources(Crash(threads=threads), {MODULE: ModuleFile("found", path)}).threads[0].frames
    named = (source, None) if source else ("reader.c", 1234)
    assert [(frame.file, frame.line) for frame in found if isinstance(frame, NativeFrame)] == [named, ("main.c", 3)]


def stack(module: str, file: str, function: str = "__pyx_f_6reader_peek") -> Thread:
    native = NativeFrame(function=function, file=file, line=6, module=module)
    return Thread(tid=1, crashed=True, frames=(native, PythonFrame(function="main", file="/srv/app/use.py", line=5)))


@pytest.mark.parametrize(
    ("thread", "innermost"),
    [
        (stack(MODULE, "/srv/app/reader.pyx"), "peek"),
        (stack(MODULE, "/srv/app/reader.c"), "main"),  # no #line
        (stack(MODULE, "/srv/app/reader.pyx", "__pyx_pw_6reader_1peek"), "main"),  # only unpacks the arguments
        (stack("/venv/lib/python3.11/site-packages/reader/reader.so", "/project/reader.pyx"), "main"),  # an installed package
        (stack(MODULE, "/srv/app/reader.pyx", "helper"), "main"),
    ],
)
def test_own_functions_are_lines_of_the_user(thread: Thread, innermost: str) -> None:
    assert python_frames(thread)[0].function == innermost
