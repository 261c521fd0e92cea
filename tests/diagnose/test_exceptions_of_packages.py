"""What a package says, mostly by an exception of Python's, of a library, memory or a display that was refused to it, and the like.

In the words of CPython (ctypes, errno, Windows' own), torch, cairocffi, sounddevice, shapely, rtree, python-magic, pyzbar, Arrow, SDL,
Tk, pyglet, python-xlib, GLFW and wxWidgets.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crashkit.model import Crash

FIRST = {
    "library-not-loaded": (
        "OSError: [WinError 126] The specified module could not be found",
        r'OSError: [WinError 193] %1 is not a valid Win32 application. Error loading "C:\py\lib\c10.dll" or one of its dependencies.',
        r'OSError: [WinError 1114] A DLL initialization routine failed. Error loading "C:\py\lib\c10.dll" or one of its dependencies.',
        r'OSError: [WinError 126] 找不到指定的模块。 Error loading "C:\py\torch\lib\fbgemm.dll" or one of its dependencies.',
        r"FileNotFoundError: Could not find module 'C:\py\foo.dll' (or one of its dependencies).",
        'OSError: no library called "cairo-2" was found',
        "OSError: PortAudio library not found",
        "OSError: Could not find library geos_c or load any of its variants ['libgeos_c.so.1', 'libgeos_c.so']",
        "ImportError: Unable to find zbar shared library",
        "ImportError: failed to find libmagic.  Check your installation",
        "Could not locate cudnn_ops64_9.dll. Please make sure it is in your library path!\nInvalid handle. Cannot load symbol cudnnCreate",
        "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9}\nInvalid handle. Cannot load symbol cudnnCreate",
        "httpd: Cannot load /etc/httpd/modules/mod_wsgi.so into server: libpython3.5m.so.1.0: cannot open shared object file: "
        "No such file or directory",
        "Could not load library cudnn_ops_infer64_8.dll. Error code 126. Please make sure it is in your library path!",
        "RuntimeError: Library cublas64_12.dll is not found or cannot be loaded",
        "PyInstallerImportError: Failed to load dynlib/dll 'yolo_cpp_dll_no_gpu.dll'. Most probably this dynlib/dll was not found.",
        "OSError: /tmp/_MEI1/libcuda.so: failed to map segment from shared object: Operation not permitted",
    ),
    "memory-refused": (
        "OSError: [Errno 12] Cannot allocate memory",
        "OSError: [WinError 8] Not enough memory resources are available to process this command",
        r'OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading "C:\py\cublas64_11.dll"',
        "pygame.error: Out of memory",
        "pyarrow.lib.ArrowMemoryError: malloc of size 4294967296 failed",
        "RuntimeError: [enforce fail at a.cpp:73] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes.",
    ),
    "display-failed": (
        "_tkinter.TclError: no display name and no $DISPLAY environment variable",
        '_tkinter.TclError: couldn\'t connect to display ":0"',
        "Unable to access the X Display, is $DISPLAY set properly?",
        'pyglet.canvas.xlib.NoSuchDisplayException: Cannot connect to "None"',
        'Xlib.error.DisplayConnectionError: Can\'t connect to display ":0": No protocol specified',
        "pygame.error: No available video device",
        "glfw.GLFWError: (65544) b'X11: Failed to open display :0'",
        "QXcbConnection: Could not connect to display localhost:14.0\nCould not connect to any X display.\nSegmentation fault",
    ),
    "cxx-bad-alloc": (
        "XGBoostError                              Traceback (most recent call last)\n<ipython-input-5-4d44d6b4756a> in <module>()\n"
        "----> 1 dtrain = xgb.DMatrix('data.txt.train')\nXGBoostError: std::bad_alloc",
    ),
    "xla-compiler-crash": (
        "XlaRuntimeError: INTERNAL: RET_CHECK failure (external/xla/xla/service/cpu/ir_emitter.cc:1144) LayoutUtil::IsMonotonic()",
    ),
    "timeout-liveness-probe": (
        "Warning  Unhealthy  18m (x298 over 8d)  kubelet  Liveness probe failed: HTTP probe failed with statuscode: 503",
    ),
    "killed-by-signal-9-unknown": ("numpy/core/tests/test_multiarray.py::TestIO::test_largish_file[path_obj] Killed",),
}
NOT = {
    "OSError: [WinError 127] is what we catch here: see the documentation of the library": "memory-refused",
    "OSError: [Errno 2] No such file or directory: 'library.txt'": "library-not-loaded",
    "FileNotFoundError: Could not find module specification 'a.yaml'": "library-not-loaded",
    "RuntimeError: the library of this city was not found on the map": "library-not-loaded",
    "RuntimeError: Cannot find the book in the library": "library-not-loaded",
    "FileNotFoundError: Could not find Photos library at /Users/me/Pictures": "library-not-loaded",
    "beets.LibraryError: unable to open library database": "library-not-loaded",
    "    hp, ht, pid, tid = _winapi.CreateProcess(executable, args,\nOSError: [WinError 193] %1 is not a valid Win32 application": (
        "library-not-loaded"
    ),
    " * Stopping worker ... Killed\n * Stopping web server ... done": "killed-by-signal-9-unknown",
    "WARNING plot: TclError: no display name and no $DISPLAY environment variable\n./run.sh: line 3:  4242 Killed   python a.py": (
        "display-failed"
    ),
    "XlaRuntimeError: INTERNAL: RET_CHECK failure (external/xla/xla/pjrt/gpu/gpu_topology.cc:123) num_devices == 8 (4 vs. 8)": (
        "xla-compiler-crash"
    ),
    ">>> signal.Signals(11)\n<Signals.SIGSEGV: 11>": "supervisor-worker-crashed",
    "WARNING: OSError: PortAudio library not found. Sound is disabled": "library-not-loaded",
    "Warning  Unhealthy  kubelet  Readiness probe failed: HTTP probe failed with statuscode: 503": "timeout-liveness-probe",
    "RuntimeError: RET_CHECK failure (mediapipe/framework/a.cc:7) ok": "xla-compiler-crash",
    "we tried test_a.py::test_b, and it was not Killed": "killed-by-signal-9-unknown",
    "OSError: [Errno 122] Disk quota exceeded": "memory-refused",
    "pygame.error: Out of memory\nSegmentation fault": "display-failed",
    "Could not connect to any X display.\nFatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
    '  File "a.py", line 3 in f': "display-failed",
}


@pytest.mark.parametrize(("expected", "text"), [(expected, text) for expected, texts in FIRST.items() for text in texts])
def test_each_is_named(told: Callable[[str], Crash], expected: str, text: str) -> None:
    """Such an exception may be handled: that it ended the process is not said."""
    first = told(text).findings[0]
    assert (first.id, first.confidence) == (expected, "possible")


@pytest.mark.parametrize(("text", "other"), NOT.items())
def test_others_are_not(told_ids: Callable[[str], list[str]], text: str, other: str) -> None:
    assert other not in told_ids(text)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("log10f", "sigfpe-floating-point"),
        ("__ieee754_pow_sse2", "sigfpe-floating-point"),
        ("divide", "sigfpe-integer-divide"),
        ("pow", "sigfpe-integer-divide"),
    ],
)
def test_what_computes_with_floats_divides_no_integers(told: Callable[[str], Crash], function: str, expected: str) -> None:
    found = told(
        "*** SIGFPE (@0x7f2329804bc3) received by PID 30608 (TID 0x7f232a8bc700) from PID 696273859; stack trace: ***\n"
        f"    @     0x7f232a4d2390 (unknown)\n    @     0x7f2329804bc3 {function}\n    @     0x7f231599225a (unknown)"
    ).findings
    assert [(one.id, one.confidence) for one in found] == [(expected, "likely")]


def test_a_function_of_ones_own_may_be_called_as_one_of_libms(told: Callable[[str], Crash]) -> None:
    gdb = "Program received signal SIGFPE, Arithmetic exception.\n(gdb) bt\n#0  0x55555151 in {} at hist.c:5\n#1  0x1 in main () at a.c:1"
    assert [told(gdb.format(call)).findings[0].id for call in ("pow (a=2, m=0)", "expf (a=2)")] == 2 * ["sigfpe-integer-divide"]


def test_memory_that_was_refused_to_the_end(told: Callable[[str], Crash]) -> None:
    raised = 'Traceback (most recent call last):\n  File "load.py", line 4, in <module>\n    read()\n'
    first = told(f"{raised}pyarrow.lib.ArrowMemoryError: malloc of size 4294967296 failed").findings[0]
    assert (first.id, first.confidence) == ("memory-refused", "likely")
    assert first.summary == "4 GiB were asked for and refused. Python raised the exception at load.py:4."


def test_the_library_is_named_without_the_end_of_a_sentence(told: Callable[[str], Crash]) -> None:
    first = told(FIRST["library-not-loaded"][3]).findings[0]
    assert first.summary == (
        r"Python could not load C:\py\torch\lib\fbgemm.dll for an import or a CDLL(), and raised an exception. "
        "The reason that it gave: 找不到指定的模块."
    )
    assert any("VCRedist" in fix for fix in first.fix)
