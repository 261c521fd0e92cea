"""Names and lines of Cython's functions; real ones are in tests/test_frozen.py."""

from __future__ import annotations

import pytest

from crashkit.model import NativeFrame, PythonFrame, Thread
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
