"""What languages' runtimes and the libraries below them print before they end the process, from their sources: each says its cause."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Optional

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.evidence.text.log_patterns import Classifier

FORMS: dict[str, Callable[[str], str]] = {
    "alone": lambda text: text,
    "with the shell's line": lambda text: f"{text}\nAborted (core dumped)",
    "in a container's log": lambda text: "\n".join(f"2026-11-27T12:31:07.123456789Z {row}" for row in text.split("\n")),
}
GOROUTINE = "\n\ngoroutine 1 [running]:\nmain.main()\n\t/app/main.go:8 +0x1d"
RUBY = "\nruby 3.1.2p20 (2022-04-12 revision 4491bb740a) [x86_64-linux-gnu]\n\n-- Control frame information ----"
GHC = "\n    (GHC version 9.0.2 for x86_64_unknown_linux)\n    Please report this as a GHC bug:  https://www.haskell.org/ghc/reportabug"
OPEN_MPI = (
    "[n1:12] *** An error occurred in MPI_Recv\n[n1:12] *** reported by process [1,0]\n[n1:12] *** on communicator MPI_COMM_WORLD\n"
    "[n1:12] *** MPI_ERR_RANK: invalid rank\n[n1:12] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,"
)
MESSAGES: dict[str, tuple[str, ...]] = {
    "gil-not-held": (
        "Fatal Python error: drop_gil: drop_gil: GIL is not locked",
        "Fatal Python error: PyEval_ReleaseThread: wrong thread state",
        "Fatal Python error: PyEval_ReleaseThread: NULL thread state",
        "Fatal Python error: PyEval_AcquireLock: current thread state is NULL",
        "Fatal Python error: PyThreadState_DeleteCurrent: no current tstate",
        "Fatal Python error: _Py_HandlePending: orphan tstate",
        "python: src/bindings.cc:100: void Call(PyObject*): Assertion `PyGILState_Check()' failed.",
    ),
    "native-result-and-exception": (
        "Fatal Python error: _Py_CheckSlotResult: Slot __getitem__ of type Store succeeded with an exception set",
        "Fatal Python error: _Py_CheckSlotResult: Slot __getitem__ of type Store failed without setting an exception",
        "Fatal Python error: _Py_CheckFunctionResult: a function returned a result with an exception set",
        "python3.14d: ../Objects/call.c:342: _PyObject_Call: Assertion `!_PyErr_Occurred(tstate)' failed.",
    ),
    "stack-overflow": (
        "Fatal Python error: _PyErr_NormalizeException: Cannot recover from the recursive normalization of an exception.",
        "Stack overflow.\nRepeat 24106 times:\n   at Program.F(Int32)",
    ),
    "refcount-singleton-dealloc": (
        "Fatal Python error: dummy_dealloc: deallocating <dummy key>",
        "Fatal Python error: unicode_dealloc: Immortal interned string died",
    ),
    "fatal-python-error": ("Fatal RPython error: AssertionError",),
    "nanobind-critical": (
        "Critical nanobind error: nanobind: malloc() failed!",
        'Critical nanobind error: refusing to add duplicate key "a" to enumeration "Color"!',
        "Critical nanobind error: encountered an unrecoverable error condition. Recompile using the 'Debug' mode",
    ),
    "heap-corruption-overflow": ("zend_mm_heap corrupted",),
    "rust-panic": (
        "fatal runtime error: the System allocator may not use TLS with destructors, aborting",
        "fatal runtime error: current thread handle already set during thread spawn, aborting",
        "fatal runtime error: out of TLS keys, aborting",
        "fatal runtime error: thread local panicked on drop",
        "fatal runtime error: assertion failed: thread_info.stack_guard.get().is_none() && thread_info.thread.get().is_none()",
    ),
    "go-panic": tuple(
        f"fatal error: {message}{GOROUTINE}"
        for message in ("bad g status", "self-deadlock", "sweep increased allocation count", "s.allocCount != s.nelems", "lfstack.push")
    ),
    "thread-limit": (
        "java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory or process/resource limits reached",
        'Exception in thread "main" java.lang.OutOfMemoryError: unable to create new native thread',
        "OMP: Error #35: System unable to allocate necessary resources for the monitor thread:",
    ),
    "runtime-heap-limit": (
        "FATAL ERROR: CALL_AND_RETRY_LAST Allocation failed - process out of memory",
        "#\n# Fatal JavaScript OOM in Reached heap limit\n#",
        "# Fatal JavaScript out of memory: Ineffective mark-compacts near heap limit",
        'Exception in thread "main" java.lang.OutOfMemoryError: Requested array size exceeds VM limit',
        "java.lang.OutOfMemoryError: Cannot reserve 1073741824 bytes of direct buffer memory (allocated: 4294967296, limit: 4294967296)",
        "Exhausted heap space, trying to allocate 1048592 bytes.",
    ),
    "runtime-out-of-memory": (
        "Fatal Python error: _PyErr_NoMemory: Out of memory and PyExc_MemoryError is not initialized yet",
        "Fatal Python error: _PyRuntimeState_Init: memory allocation failed",
        "Fatal Python error: Py_SetPath() failed: out of memory",
        "Fatal Python error: _PyErr_NormalizeException: Cannot recover from MemoryErrors while normalizing exceptions.",
        "# Fatal process out of memory: Failed to reserve virtual memory for CodeRange",
        "# Fatal process OOM in insufficient memory to create an Isolate",
        "Error occurred during initialization of VM\nCould not reserve enough space for code cache (245760K)",
        'Exception in thread "main" java.lang.OutOfMemoryError: Map failed',
        "GC heap initialization failed with error 0x8007000E",
        "prog: out of memory (requested 1048576 bytes)",
        f"prog: internal error: Unable to commit 1048576 bytes of memory{GHC}",
        "In file 'a.f90', around line 6: Error allocating 72000000000000 bytes: Cannot allocate memory\n\nError termination.",
        "Operating system error: Cannot allocate memory\nMemory allocation failed",
        "[FATAL] failed to allocate memory",
        "libgomp: Out of memory allocating 18446744073709551615 bytes",
        "OMP: Error #111: Memory allocation failed.",
        "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.",
        "(app:12): GLib-ERROR **: 12:00:00.123: ../../../glib/gmem.c:135: failed to allocate 18446744073709551615 bytes",
        "runtime/cgo: out of memory in thread_start\nSIGABRT: abort",
    ),
    "glog-check-failed": (
        "#\n# Fatal error in , line 0\n# Check failed: (location_) != nullptr.\n#",
        "#\n# Fatal error in v8::ToLocalChecked\n# Empty MaybeLocal\n#",
        "[raw_hash_set.h : 123] RAW: Check capacity > 0 failed: a table was moved from",
    ),
    "c-assertion-failed": (
        'Objects/dictobject.c:300: _PyObject_GC_TRACK: Assertion "!gc_is_tracked(op)" failed: object already tracked',
        "***** Internal Program Error - assertion (n > 0) failed in int f(int):\na.cpp(12): n must be positive",
        "* Assertion at mini-amd64.c:123, condition `ins' not met",
        "* Assertion: should not be reached at mini.c:88",
        "[00] file runtime/major_gc.c; line 123 ### Assertion failed: Is_block(v)",
        "E0101 12:00:00.123456789      12 sync.cc:33]          assertion failed: pthread_mutex_lock(mu) == 0",
        "E0000 00:00:1700000000.123456      12 channel.cc:99] ASSERTION FAILED: call != nullptr",
        "  #  node[57]: void node::Start() at ../src/node_platform.cc:68\n  #  Assertion failed: (0) == (uv_thread_create(t.get()))",
    ),
    "glib-error": (
        "(app:12): GLib-GIO-ERROR **: 12:00:00.123: Settings schema 'org.gnome.foo' is not installed\nTrace/breakpoint trap (core dumped)",
        "GLib-GObject-ERROR **: cannot create instance of abstract (non-instantiatable) type 'GtkWidget'",
        "** (app:12): ERROR **: 12:00:00.123: no configuration",
        "Bail out! GLib-GIO-FATAL-ERROR: Settings schema 'org.gnome.foo' is not installed",
        "GLib (gthread-posix.c): Unexpected error from C library during 'pthread_mutex_lock': Invalid argument.  Aborting.",
    ),
    "mpi-fatal-error": (
        OPEN_MPI,
        "Fatal error in PMPI_Recv: Invalid rank, error stack:\nPMPI_Recv(105): Invalid rank has value 5 but must be less than 1",
        "Abort(403275522) on node 0 (rank 0 in comm 0): Fatal error in internal_Send: Invalid rank, error stack:",
        "Fatal error in MPI_Init: Other MPI error, error stack:",
    ),
    "collective-mismatch": ("Fatal error in PMPI_Bcast: Message truncated, error stack:",),
    "runtime-fatal-error": (
        "Fatal error. Internal CLR error. (0x80131506)",
        "Process terminated. Couldn't find a valid ICU package installed on the system.",
        "Unhandled exception. System.NullReferenceException: Object reference not set to an instance of an object.\n   at Program.Main()",
        "[ERROR] FATAL UNHANDLED EXCEPTION: System.Exception: boom\n  at P.Main () [0x00000] in <764e35a1>:0",
        "FATAL ERROR in native method: Using JNIEnv in the wrong thread\n\tat Foo.bar(Native Method)",
        "PANIC: unprotected error in call to Lua API (attempt to call a nil value)",
        "fatal: error thrown and no exception handler available.",
        "main/main.swift:3: Fatal error: Unexpectedly found nil while unwrapping an Optional value",
        "Fatal error: Index out of range: file main.swift, line 3",
        "panic(main thread): unreachable\noh no: Bun has crashed. This indicates a bug in Bun, not your code.",
        "OMP: Error #179: Function Can't open SHM2 failed:\nOMP: System error #2: No such file or directory",
        "Cannot mix incompatible Qt library (5.15.2) with this library (5.15.8)",
        "FATAL ERROR: v8::ToLocalChecked Empty MaybeLocal.\n 1: 0xb7a940 node::Abort() [node]",
        "FATAL ERROR: Error::New napi_get_last_error_info",
        f"-e:1: [BUG] try to mark T_NONE object{RUBY}",
        f"[BUG] rb_gc_mark(): unknown data type 0x0(0x7f) corrupted object{RUBY}",
        f"prog: internal error: evacuate: strange closure type 0{GHC}",
        "fatal error encountered in SBCL pid 8730 tid 8730:\nGC invariant lost",
        "no more index entries in atom_tab (max=1048576)\n\nCrash dump is being written to: erl_crash.dump...done",
    ),
}
SIGNALS = {
    "*** Signal 11 (SIGSEGV) (0x0) received by PID 123 (pthread TID 0x7f1) (linux TID 123), stack trace: ***": "SIGSEGV",
    "Got a SIGSEGV while executing native code. This usually indicates a fatal error in the mono runtime": "SIGSEGV",
    "Type=Segmentation error vmState=0x00040000": "SIGSEGV",
    "si_signo=Segmentation fault(11), si_code=SEGV_MAPERR(1), si_addr=(nil)": "SIGSEGV",
}
ORDINARY = (
    # Compilers, and whoever else begins so.
    "fatal error: Python.h: No such file or directory\ncompilation terminated.",
    "fatal error: unable to open output file 'x.o'",
    # Titles of issues, a list of changes.
    "[BUG] the table is empty after sorting",
    "TODO.md:12: [BUG] the table is empty",
    "ruby 3.1.2p20 (2022-04-12 revision 4491bb740a) [x86_64-linux-gnu]",
    "CVE-2021-3156: heap overflow",
    "server: internal error: no route to host, retrying",
    # Handled.
    "WARNING: Unhandled exception in callback, continuing",
    "Process terminated. Restarting the worker.",
    "ERROR **: the disk is nearly full",
    "** ERROR **: the disk is nearly full",
    "(app:12): GLib-GIO-WARNING **: 12:00:00.123: no such settings",
    "Fatal error: exception Not_found",
    "FATAL ERROR: Foo::connect refused, trying the next server",
    "PHP Fatal error:  Uncaught Error: Call to undefined function foo() in /app/x.php:1",
    "panic: memory wrap at foo.pl line 3.",
    # Documentation.
    "By default, MPI_ERRORS_ARE_FATAL is the error handler of a communicator.",
    "E0101 12:00:00.123456 12 test_shapes.py:12] assertion failed: shapes differ",
    "[cache.cc : 88] RAW: the cache was rebuilt",
    "OMP: Warning #96: Cannot form a team with 24 threads, using 8 instead.",
    "libgomp: Invalid value for environment variable OMP_NUM_THREADS: many",
    "a function returned NULL without setting an exception is what the debug build looks for",
)


def kind_of(text: str) -> Optional[str]:
    known = Classifier().classify(text)
    return known[0] if known is not None else None


def found(text: str, path: Path) -> tuple[Optional[str], list[tuple[str, str]]]:
    path.write_text(text + "\n")
    try:
        read = read_log(path)
    except EvidenceError:
        return None, []
    result = diagnose(crash_of_log(path, read), load_catalog())
    assert not [error for error in result.soft_errors if error.stage == "diagnose"]
    return read.signal.name if read.signal else None, [(one.id, one.confidence) for one in result.findings]


@pytest.mark.parametrize("form", FORMS)
def test_each_message_says_its_cause(form: str, tmp_path: Path) -> None:
    messages = [(identity, text) for identity, texts in MESSAGES.items() for text in texts]
    told = {text: found(FORMS[form](text), tmp_path / "log")[1][:1] for _, text in messages}
    assert {text: told[text] for identity, text in messages if [name for name, _ in told[text]] != [identity]} == {}
    assert [text for identity, text in messages if told[text][0][1] == "possible" and identity != "fatal-python-error"] == []


def test_the_words_of_a_message_name_its_signal(tmp_path: Path) -> None:
    assert {text: found(text, tmp_path / "log")[0] for text in SIGNALS} == SIGNALS
    assert {text: kind_of(text) for text in SIGNALS} == dict.fromkeys(SIGNALS, "process-end")


def test_the_lines_of_open_mpi() -> None:
    rows = [row.partition("] ")[2] for row in OPEN_MPI.split("\n")]
    assert [kind_of(row) for row in rows] == ["mpi-operation", None, None, "mpi-error", "mpi-fatal"]


def test_ordinary_lines_are_nothing(tmp_path: Path) -> None:
    told = {text: [one for one in found(text, tmp_path / "log")[1] if one[1] != "possible"] for text in ORDINARY}
    assert {text: several for text, several in told.items() if several} == {}


def test_a_failed_check_of_protobuf_is_the_cause_of_an_abort_only(tmp_path: Path) -> None:
    line = "[libprotobuf FATAL google/protobuf/repeated_field.h:123] CHECK failed: (index) < (current_size_): "
    assert found(line, tmp_path / "log")[1] == []
    assert found(f"{line}\nAborted (core dumped)", tmp_path / "log")[1][0][0] == "glog-check-failed"


def test_too_small_a_stack_is_no_limit_of_threads(tmp_path: Path) -> None:
    assert ("thread-limit", "certain") not in found("libgomp: Thread creation failed: Invalid argument", tmp_path / "log")[1]


EXACT = re.compile(
    r"[^%]*\bGIL is (?:released|not locked)|called (?:with|without) (?:holding )?the GIL|orphan tstate|tstate mix-up|wrong thread state"
    r"|non-NULL old thread state|must be current when releasing|(?:current|NULL) thread state|deallocating [\w<]|interned string died"
    r"|^Slot %s of|^Cannot recover from|^[Oo]ut of memory(?: and| interning|$)"
)
"""Of CPython's fatal messages, those that say their cause."""
NOT_FATAL = re.compile(
    r"the current thread state$|read thread state|without GIL$|TSS|out of memory in|Out of memory while"
    r"|current tstate has wrong interpreter|no GIL|\$module|Disabling the GIL|^PyThreadState_Clear"
)


def test_each_text_of_this_python(tmp_path: Path) -> None:
    """New versions bring new ones."""
    folder, shared = sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME") or ""
    files = [Path(folder, shared), Path(os.path.realpath("/proc/self/exe"))]
    data = next((file.read_bytes() for file in files if file.is_file() and b"Fatal Python error: " in file.read_bytes()), None)
    if data is None:
        pytest.skip("this Python's own file has no such texts")
    texts = {text.decode() for text in re.findall(rb"\0([ -~]{12,300})\0", data.replace(b"\0", b"\0\0"))}
    exact = sorted(text for text in texts if EXACT.search(text) and not NOT_FATAL.search(text))
    assert len(exact) > 8
    lines = {text: "Fatal Python error: f: " + text.replace("%p", "0x7f12a400").replace("%s", "Store") for text in exact}
    told = {text: found(line, tmp_path / "log")[1][:1] for text, line in lines.items()}
    vague = {text: first for text, first in told.items() if not first or first[0][0] == "fatal-python-error" or first[0][1] != "certain"}
    assert vague == {}
