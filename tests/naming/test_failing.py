"""A frame without a name is told by its module and its caller: a function further out that has a name did not fail."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.model import Address, Crash, ElidedFrames, Frame, NativeFrame, PythonFrame, PythonRuntime, Signal, Thread
from crashkit.naming.failing import failing, said, where
from crashkit.pipeline import analyze
from crashkit.report import html, markdown, text, wording

from ..crashes import NO_COMPILER, an_interpreter, crash, library_crash, needs_binutils, needs_gdb, needs_x86_64

LIBC, FFI, APP = "/lib/x86_64-linux-gnu/libc.so.6", "/lib/libffi.so.8", "/srv/app"
SEGV = Signal(number=11, name="SIGSEGV", code=1, code_name="SEGV_MAPERR", address=Address(0), reason="null-pointer", access="read")


def native(name: str | None, module: str | None = None) -> NativeFrame:
    return NativeFrame(function=name, module=module, pc=Address(0x1234))


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ([native("__memcpy_avx512_unaligned_erms", LIBC), native("main", APP)], "memcpy"),
        ([native(None, LIBC), native(None, LIBC), native("ffi_call", FFI)], "code in libc.so.6, called by ffi_call"),
        ([native(None, LIBC), native(None, FFI), native("main", APP)], "code in libc.so.6, called by code in libffi.so.8"),
        ([native(None, LIBC), PythonFrame(function="decode")], "code in libc.so.6, called by decode"),
        ([native(None, LIBC), ElidedFrames(count=9), native("main", APP)], "code in libc.so.6"),
        ([native(None, LIBC)], "code in libc.so.6"),
        ([native(None), native("jitted", APP)], "code at 0x0000000000001234, called by jitted"),
        ([NativeFrame()], "code in an unknown place"),
    ],
)
def test_said(frames: list[NativeFrame], told: str) -> None:
    assert said(frames, 0) == told
    assert where(frames, 0) == (told.removeprefix("code ") if told.startswith("code in ") else f"in {told}")


@pytest.mark.parametrize("file", ["/usr/lib/gcc/x86_64-linux-gnu/14/include/xmmintrin.h", "avx512fintrin.h", "include/arm_neon.h"])
def test_what_uses_an_intrinsic_failed(file: str) -> None:
    frames = [
        NativeFrame(function="_mm_load_ps", module=APP, file=file, trust="inline"),
        NativeFrame(function="_mm_mul_ps", module=APP, file=file, trust="inline"),
        native("dot", APP),
    ]
    index = failing(frames, SEGV)
    assert index is not None and said(frames, index) == "dot"


def test_what_uses_the_headers_of_a_binding_generator_failed() -> None:
    file = "/venv/lib/python3.11/site-packages/pybind11/include/pybind11/cast.h"
    frames = [
        NativeFrame(function="pybind11::detail::unpacking_collector<(pybind11::return_value_policy)1>::call", module=APP),
        NativeFrame(function="operator()", module=APP, file=file),
        native("on_message", APP),
    ]
    index = failing(frames, SEGV)
    assert index is not None and said(frames, index) == "on_message"
    # Where it is all that there is, it failed.
    assert failing([*frames[:2], native("_PyObject_Vectorcall", "/usr/bin/python3.11")], SEGV) == 0


STDCXX = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30"


@pytest.mark.parametrize("thrower", [native(None, STDCXX), native("std::__throw_out_of_range_fmt(char const*, ...)", STDCXX)])
def test_what_made_the_cxx_library_throw_failed(thrower: NativeFrame) -> None:
    ends = [native("abort", LIBC), native(None, STDCXX), native("std::terminate()", STDCXX), native("__cxa_throw", STDCXX)]
    frames = [*ends, thrower, native("load", "/srv/libmodel.so")]
    index = failing(frames, Signal(number=6, name="SIGABRT"))
    assert index is not None and said(frames, index) == "load"
    # A fault of its own is the library's.
    assert failing([thrower, native("load", "/srv/libmodel.so")], SEGV) == 0


@needs_gdb
def test_a_real_exception_of_the_cxx_library_is_that_of_its_caller(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or pytest.skip(NO_COMPILER)
    (tmp_path / "model.cpp").write_text('#include <vector>\nextern "C" int load(int n) { return std::vector<int>(3).at(n); }\n')
    library = tmp_path / "libmodel.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-s", tmp_path / "model.cpp", "-o", library], check=True)
    program = tmp_path / "app.py"
    program.write_text(f"import ctypes\ndef main(number):\n    ctypes.CDLL({str(library)!r}).load(number)\nmain(7)\n")
    folder = tmp_path / "crash"
    folder.mkdir()
    found = analyze(crash([an_interpreter().path, program], folder).core)
    assert found.findings[0].id == "cxx-uncaught-exception"
    assert "in load, or in what called it" in found.findings[0].fix[0]
    summary = "\n".join(text.summary(found, None, color=False, width=100, brief=True))
    assert "main (app.py:3): number = 7; failed in load\n" in summary and "libstdc++" not in summary
    # The message is whole: the line is told above, and left out here.
    assert "(which is 7) >=" in summary and "(which is 3).\n" in summary


def test_what_uses_a_function_that_cython_wrote_failed() -> None:
    """It is in each of its modules, and whoever wrote that knows nothing of it."""
    module = "/venv/_packer.cpython-311-x86_64-linux-gnu.so"
    frames = [
        NativeFrame(function="Py_INCREF", module=module, file="/usr/include/python3.11/object.h", trust="inline"),
        NativeFrame(function="__Pyx_NewRef", module=module, file="_packer.c", trust="inline"),
        native("__pyx_f_7_packer_6Packer_pack", module),
    ]
    for first in range(3):
        index = failing(frames[first:], SEGV)
        assert index is not None and said(frames[first:], index) == "Packer.pack"
    assert failing(frames[:2], SEGV) == 0


def test_no_caller_is_blamed_in_any_form_of_the_report() -> None:
    """Without symbols `__libc_start_main` is the first frame that has a name."""
    frames = (native(None, APP), native(None, APP), native("__libc_start_main", LIBC), native("_start", APP))
    for signal, module in ((SEGV, "app"), (Signal(number=6, name="SIGABRT", reason="abort"), "app")):
        ends = (native("raise", LIBC), native("abort", LIBC)) if signal.number == 6 else ()
        crash_ = Crash(signal=signal, threads=(Thread(tid=1, crashed=True, frames=(*ends, *frames)),), crashed_thread=1)
        told = diagnose(crash_, load_catalog())
        place = f"in {module}, called by libc_start_main"
        assert place in wording.sentence(told)
        assert f"code {place}" in "\n".join(text.summary(told, None, color=False, width=120))
        assert place in html.render(told) and place in markdown.summary(told).replace("\\", "")
        if told.findings:
            assert (told.findings[0].summary or "").startswith(f"Code {place}, ")


def test_a_waiting_thread_is_told_by_the_code_that_it_runs() -> None:
    assert wording.doing(Thread(frames=(native(None, FFI), native("main", APP)))) == "in libffi.so.8, called by main"


RELEASES = """
import ctypes

library = ctypes.CDLL({library!r})
library.reserve.restype = ctypes.c_void_p

def release(memory):
    library.release(ctypes.c_void_p(memory))

release(library.reserve(100))
"""


@pytest.mark.slow
@needs_gdb
def test_the_library_that_called_the_c_library_is_named(tmp_path: Path) -> None:
    """glibc found the error in code of its own; whose code it is to look at comes next."""
    told = analyze(library_crash("twice_freed.c", RELEASES, tmp_path, an_interpreter()).core)
    first_screen = "\n".join(text.summary(told, None, color=False, width=160))
    assert "release (program.py:8)" in first_screen and ", called by release\n" in first_screen
    assert "called by release  twice_freed.c:6 in twice_freed.so" in first_screen
    assert "<dt>Called by</dt>" in html.render(told)


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        ((native("_int_free", LIBC), native("decode", "/srv/fast.so"), PythonFrame(function="f")), "decode"),
        ((native("_PyThreadState_HasStackSpace", "/usr/bin/python3.12"), native("run", "/srv/fast.so")), "run"),
        # It failed itself, or what called it is not its doing: Python code, or how the process starts.
        ((native("decode", "/srv/fast.so"), native("run", "/srv/fast.so")), None),
        ((native(None, "/srv/fast.so"), native("run", "/srv/fast.so")), None),
        ((native("_int_free", LIBC), PythonFrame(function="f"), native("decode", "/srv/fast.so")), None),
        ((native("gc_collect_main", "/opt/libpython3.12.so.1.0"), native("_start", "/srv/program")), None),
        ((native("gc_collect_main", "/opt/libpython3.12.so.1.0"), native("main", "/opt/bin/python3.12")), None),
        ((native("gc_collect_main", "/opt/app"), native("main", "/opt/app")), None),
    ],
)
def test_who_called_what_failed(frames: tuple[Frame, ...], named: str | None) -> None:
    thread = Thread(tid=1, crashed=True, frames=frames)
    caller = wording.called_by(thread, Crash(signal=SEGV, threads=(thread,), python=PythonRuntime(executable="/opt/app")))
    assert (caller and caller.function) == named


SOURCE = """\
static int __attribute__((noinline)) inner(int *p) { return *p + 1; }
static int __attribute__((noinline)) outer(int *p) { return inner(p) * 2; }
int main(int argc, char **argv) { return outer((int *)(long)(argc - 1)); }
"""


@pytest.mark.slow
@needs_gdb
@needs_binutils
@needs_x86_64()
def test_a_program_without_symbols(tmp_path: Path) -> None:
    """A real one: stripped, so that only the C library's frames have names."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip(NO_COMPILER)
    (tmp_path / "bare.c").write_text(SOURCE)
    subprocess.run([compiler, "-O1", "-s", "-o", tmp_path / "bare", tmp_path / "bare.c"], check=True)
    folder = tmp_path / "crash"
    folder.mkdir()
    told = analyze(crash([tmp_path / "bare"], folder).core)
    sentence = wording.sentence(told)
    assert sentence.startswith("Segmentation fault: a null pointer was read in bare"), sentence
    assert told.findings[0].id == "null-deref" and (told.findings[0].summary or "").startswith("Code in bare")
