"""Stacks as other programs print them, of which few functions have names: the allocator's, a module's initialisation, lldb's assertions."""

# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Crash

OPEN_MPI = """\
[node7:811] *** Process received signal ***
[node7:811] Signal: Segmentation fault (11)
[node7:811] Signal code: Address not mapped (1)
[node7:811] Failing at address: {address}
"""
GDB = "Program received signal SIGSEGV, Segmentation fault.\n"
LLDB = "* thread #1, queue = 'com.apple.main-thread', stop reason = hit program assert\n"


def told(text: str, folder: Path) -> Crash:
    (folder / "posted.log").write_text(text)
    return diagnose(crash_of_log(folder / "posted.log", read_log(folder / "posted.log")), load_catalog())


def mpi(address: str, *frames: str) -> str:
    rows = [f"[node7:811] [ {number}] {frame}\n" for number, frame in enumerate(frames)]
    return OPEN_MPI.format(address=address) + "".join(rows)


PTHREAD = "/lib64/libpthread.so.0(+0xf630)[0x2ba0cc10c630]"
LIBC = "/lib64/libc.so.6(+0x{}4c)[0x2ba0cccaa84c]"
SOLVER = "/opt/solver/lib/libsolve.so(solve+0x10)[0x2ba0d0000010]"


def libc(name: str) -> str:
    return f"/lib64/libc.so.6({name}+0x4c)[0x2ba0cccafb1c]"


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        (mpi("0x5748700058c0", PTHREAD, LIBC.format("808"), LIBC.format("824"), libc("__libc_malloc"), SOLVER), "likely"),
        (mpi("0x31", PTHREAD, LIBC.format("808"), libc("__libc_calloc")), "likely"),
        (mpi("0xdeadbeef0", "/lib/x86_64-linux-gnu/libc.so.6(+0x42520)[0x7f1]", LIBC.format("9"), libc("realloc")), "likely"),
        (
            mpi("0x41414149", PTHREAD, "/usr/lib64/libc-2.17.so(+0x8)[0x7f1]", "/usr/lib64/libc-2.17.so(posix_memalign+0x8)[0x7f1]"),
            "likely",
        ),
        (mpi("0x5748700058c0", PTHREAD, LIBC.format("7f"), LIBC.format("81"), libc("cfree"), SOLVER), "possible"),
    ],
)
def test_what_malloc_follows_leads_nowhere(text: str, confidence: str, tmp_path: Path) -> None:
    first = told(text, tmp_path).findings[0]
    assert (first.id, first.confidence) == ("heap-corruption-overflow", confidence)


@pytest.mark.parametrize(
    "text",
    [
        # In free() itself: it was given the pointer. In a function that malloc() did not call. Another library's malloc(). A stack's end.
        mpi("0x5748700058c0", PTHREAD, LIBC.format("81"), libc("cfree")),
        mpi("0x5748700058c0", PTHREAD, LIBC.format("81"), libc("vfprintf"), libc("__libc_malloc")),
        mpi("0x5748700058c0", PTHREAD, LIBC.format("81"), SOLVER, libc("__libc_malloc")),
        mpi("0x5748700058c0", PTHREAD, LIBC.format("81"), "/opt/lib/libtcmalloc.so.4(malloc+0x10)[0x2ba0d0000010]"),
        mpi("0x7ffc5a3aeff8", PTHREAD, LIBC.format("80"), LIBC.format("82"), libc("__libc_malloc")),
        mpi("0x5748700058c0", PTHREAD, *[LIBC.format(number) for number in "12345"], libc("__libc_malloc")),
    ],
)
def test_another_fault_in_the_c_library(text: str, tmp_path: Path) -> None:
    assert "heap-corruption-overflow" not in [finding.id for finding in told(text, tmp_path).findings]


PYTHON = "/lib/x86_64-linux-gnu/libpython3.10.so.1.0({}) [0x77388ade9071]"
NATIVE = "/home/user/.local/lib/python3.10/site-packages/pkg/{}({}) [0x77385d8a7dbe]"


def freecad(*frames: str) -> str:
    return GDB + "".join(f"#{number}  {frame}\n" for number, frame in enumerate(frames))


@pytest.mark.parametrize(
    ("text", "function", "library"),
    [
        (
            freecad("/lib/libc.so.6(+0x42520) [0x773888e42520]", PYTHON.format("PyType_Ready+0x4"), NATIVE.format("libpkg.so.6.8", "+0x19dbe"), NATIVE.format("Pkg.abi3.so", "PyInit_Pkg+0x144"), PYTHON.format("_PyEval_EvalFrameDefault+0x4b16")),
            "PyInit_Pkg",
            "Pkg.abi3.so",
        ),
        (
            GDB + "#0  0x00007ffff7a in __pyx_pymod_exec_fast (m=0x7f) at fast.c:12\n#1  0x00007ffff7b in PyModule_ExecDef () from /usr/lib/libpython3.12.so.1.0\n",
            "__pyx_pymod_exec_fast",
            None,
        ),
        (
            GDB + "#0  0x00007ffff7a in pybind11_init__core(pybind11::module_&) () from /srv/_core.so\n#1  0x00007ffff7b in PyInit__core () from /srv/_core.so\n",
            "pybind11_init__core",
            "_core.so",
        ),
        (mpi("(nil)", PTHREAD, "/srv/_quick.so(PyInit__quick+0x20)[0x2ba0cc10c630]", PYTHON.format("_PyImport_LoadDynamicModuleWithSpec+0x20").replace(" ", "")), "PyInit__quick", "_quick.so"),
    ],
)  # fmt: skip
def test_a_module_crashed_while_it_was_initialised(text: str, function: str, library: str | None, tmp_path: Path) -> None:
    first = told(text, tmp_path).findings[0]
    assert (first.id, first.confidence) == ("library-init-crash", "possible")
    assert function in first.summary and (library or "a library") in first.summary


@pytest.mark.parametrize(
    "text",
    [
        # What it imported failed, in Python code; a call after the import; a program's own function; an instruction that the processor lacks.
        freecad(NATIVE.format("other.so", "compute+0x1"), PYTHON.format("_PyEval_EvalFrameDefault+0x1"), NATIVE.format("Pkg.so", "PyInit_Pkg+0x1")),
        freecad(NATIVE.format("Pkg.so", "PyInitialise_all+0x1"), PYTHON.format("_PyEval_EvalFrameDefault+0x1")),
        freecad(NATIVE.format("Pkg.so", "compute+0x1"), PYTHON.format("_PyEval_EvalFrameDefault+0x1")),
        freecad(NATIVE.format("Pkg.so", "PyInit_Pkg+0x1")).replace("SIGSEGV, Segmentation fault", "SIGILL, Illegal instruction"),
    ],
)  # fmt: skip
def test_no_module_was_initialised(text: str, tmp_path: Path) -> None:
    assert "library-init-crash" not in [finding.id for finding in told(text, tmp_path).findings]


FRAME = "    frame #4: 0x00000001033fede5 {module}`{function} at {file}:12:5\n"


@pytest.mark.parametrize(
    ("text", "signature", "assertion"),
    [
        (
            LLDB + FRAME.format(module="grid.so", function="grid_at", file="grid.c") + "   11   \tint *row = rows[y];\n-> 12  \tassert(x < width(row));\n   13   \treturn row[x];\n",
            "c-assertion-failed",
            "x < width(row)",
        ),
        (LLDB.replace("* thread", "  thread") + FRAME.format(module="grid.so", function="grid_at", file="grid.c"), "c-assertion-failed", None),
        (
            LLDB + FRAME.format(module="_mod.so", function="PyGILState_Ensure", file="pystate.c") + "-> 1357     assert(gilstate->autoInterpreterState);\n",
            "python-not-initialized",
            None,
        ),
        ("app: Python/pystate.c:1357: PyGILState_Ensure: Assertion `gilstate->autoInterpreterState' failed.\nAborted", "python-not-initialized", None),
        ("app: ../Python/pystate.c:2224: PyGILState_Ensure: Assertion `_PyEval_ThreadsInitialized()' failed.\nAborted", "python-not-initialized", None),
        ("Assertion failed: (autoInterpreterState), function PyGILState_Ensure, file Python/pystate.c, line 887.\nAbort trap: 6", "python-not-initialized", None),
    ],
)  # fmt: skip
def test_lldb_stopped_at_an_assertion(text: str, signature: str, assertion: str | None, tmp_path: Path) -> None:
    crash = told(text, tmp_path)
    assert (crash.signal and crash.signal.name, crash.findings[0].id) == ("SIGABRT", signature)
    assert assertion is None or f"`{assertion}`" in crash.findings[0].summary


@pytest.mark.parametrize("reason", ["step over", "breakpoint 1.1", "instruction step into", "signal SIGSTOP"])
def test_lldb_stopped_for_its_user(reason: str, tmp_path: Path) -> None:
    text = LLDB.replace("hit program assert", reason) + FRAME.format(module="grid.so", function="grid_at", file="grid.c")
    assert told(text + "-> 12  \tassert(x < width(row));\n", tmp_path).findings == ()
