"""Each signature that came from public reports: by the stack of one, and what only looks like it."""

# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Address, Crash, NativeFrame, Thread

from .synthetic import crash, lines

APP = "py /srv/app.py:6 main"


class Stack(NamedTuple):
    report: str
    expect: str
    crash: dict[str, Any]
    log: str = ""


STACKS = {
    "unwinder": Stack(
        "https://github.com/jax-ml/jax/issues/29373",
        "unwinder-crash",
        {
            "signal": "SIGSEGV",
            "frames": "?? [libgcc_s.so.1] > _Unwind_Backtrace [libgcc_s.so.1] > __GI___backtrace > tsl::CurrentStackTrace > main",
        },
    ),
    "unwinder of registered tables": Stack(
        "https://github.com/libproxy/libproxy/issues/45",
        "unwinder-crash",
        {
            "signal": "SIGSEGV",
            "frames": "read_encoded_value_with_base > search_object > _Unwind_Find_registered_FDE > _Unwind_Find_FDE > main",
        },
    ),
    "MPI of another implementation": Stack(
        "https://github.com/NVIDIA/TensorRT-LLM/issues/752",
        "mpi-abi-mismatch",
        {"signal": "SIGSEGV", "frames": "PMPI_Comm_set_errhandler [libmpi.so.40] > opal_obj_update > init > " + APP},
    ),
    "two copies of OpenSSL": Stack(
        "https://github.com/ckan/ckan/issues/4837",
        "duplicate-openssl",
        {
            "signal": "SIGSEGV",
            "frames": "ssl3_cleanup_key_block [psycopg2/.libs/./libssl-fad88670.so.1.0.2l] > tls1_clear [psycopg2/.libs/./libssl-fad88670.so.1.0.2l] > SSL_new [libssl.so.1.1] > PQconnectPoll [libpq.so.5]",
        },
    ),
    "bundled OpenSSL alone": Stack(
        "https://github.com/psycopg/psycopg2/issues/723",
        "duplicate-openssl",
        {"signal": "SIGSEGV", "frames": "?? [psycopg2/.libs/./libcrypto-1e9dee74.so.1.0.2n]"},
    ),
    "XLA's compiler": Stack(
        "https://github.com/jax-ml/jax/issues/29139",
        "xla-compiler-crash",
        {
            "signal": "SIGSEGV",
            "frames": "?? [xla_extension.so] > py /v/lib/python3.11/site-packages/jax/_src/compiler.py:238 backend_compile > " + APP,
        },
    ),
    "LMDB on a full disk": Stack(
        "https://github.com/greatlog/UnpairedSR/issues/17",
        "mmap-file-truncated-sigbus",
        {"signal": "SIGBUS", "code": "BUS_ADRERR", "frames": "mdb_page_touch > mdb_cursor_put > mdb_put > " + APP},
    ),
    "PyQt": Stack(
        "https://github.com/subdownloader/subdownloader/issues/8",
        "pyqt-unhandled-exception",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > QMessageLogger::fatal > pyqt5_err_print > PyQtSlot::invoke > QMetaObject::activate > main",
        },
    ),
    "QThread": Stack(
        "https://github.com/pyqtconsole/pyqtconsole/pull/43",
        "qt-object-lifetime",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > QMessageLogger::fatal > QThread::~QThread > sipQThread::~sipQThread > subtype_dealloc",
        },
    ),
    "Qt without a display": Stack(
        "https://github.com/opencv/opencv/issues/19361",
        "qt-platform-plugin",
        {"signal": "SIGABRT", "frames": "raise > abort > QMessageLogger::fatal > QGuiApplicationPrivate::createPlatformIntegration > main"},
    ),
    "Tcl": Stack(
        "https://github.com/matplotlib/matplotlib/issues/27713",
        "tk-wrong-thread",
        {"signal": "SIGABRT", "frames": "raise > abort > Tcl_PanicVA > Tcl_Panic > Tcl_AsyncDelete > Tcl_DeleteInterp > Tkapp_Dealloc"},
    ),
    "bad_alloc": Stack(
        "https://github.com/weiliu89/caffe/issues/689",
        "cxx-bad-alloc",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > __gnu_cxx::__verbose_terminate_handler() > std::terminate() > __cxa_throw > operator new(unsigned long) > main",
        },
    ),
    "assert": Stack(
        "https://github.com/numpy/numpy/issues/11088",
        "c-assertion-failed",
        {"signal": "SIGABRT", "frames": "raise > abort > __assert_fail_base > __assert_fail > DOUBLE_setitem [numpy.so] > " + APP},
    ),
    "CHECK": Stack(
        "https://github.com/rwth-i6/returnn/issues/299",
        "glog-check-failed",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > tensorflow::internal::LogMessageFatal::~LogMessageFatal() > tensorflow::BFCAllocator::f > " + APP,
        },
    ),
    "Rust": Stack(
        "https://github.com/pola-rs/polars/issues/12279",
        "rust-panic",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > std::sys::pal::unix::abort_internal > std::panicking::rust_panic_with_hook > core::panicking::panic_fmt > polars_core::f",
        },
    ),
    "bool_dealloc": Stack(
        "https://github.com/python/cpython/issues/93762",
        "refcount-singleton-dealloc",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > fatal_error_exit > fatal_error > _Py_FatalErrorFunc > _Py_FatalRefcountErrorFunc > bool_dealloc > f",
        },
    ),
    "negative": Stack(
        "https://github.com/python/cpython/issues/83197",
        "refcount-negative",
        {"signal": "SIGABRT", "frames": "raise > abort > fatal_error > _PyObject_AssertFailed > _Py_NegativeRefcount > subtype_dealloc"},
    ),
    "standard stream": Stack(
        "https://github.com/python/cpython/issues/129536",
        "daemon-thread-stdio-lock",
        {
            "signal": "SIGABRT",
            "frames": "raise > abort > fatal_error_exit > fatal_error > _Py_FatalErrorFormat > _enter_buffered_busy > buffered_close > Py_FinalizeEx",
        },
    ),
    "os.abort": Stack(
        "https://docs.python.org/3/library/os.html#os.abort",
        "self-abort",
        {"signal": "SIGABRT", "frames": "pthread_kill > raise > abort > os_abort_impl > os_abort > cfunction_vectorcall_NOARGS > " + APP},
    ),
    "os.kill": Stack(
        "https://docs.python.org/3/library/os.html#os.kill",
        "self-signal",
        {"signal": "SIGSEGV", "reason": "raised", "frames": "kill > os_kill_impl > os_kill > cfunction_vectorcall_FASTCALL > " + APP},
    ),
}


@pytest.mark.parametrize("name", STACKS)
def test_by_its_stack(name: str, tmp_path: Path) -> None:
    case = STACKS[name]
    subject = crash(**case.crash, log=lines(case.log, tmp_path) if case.log else ())
    found = diagnose(subject, load_catalog())
    assert not found.soft_errors
    assert [finding.id for finding in found.findings][:1] == [case.expect]


LOGS = {
    "two-rank launcher": ("launcher-child-failed", "E failed (exitcode: 1) local_rank: 1 (pid: 6833) of binary: /usr/bin/python\n"),
    "deepspeed": (
        "launcher-child-failed",
        "[2024-01-01 00:00:00,000] [ERROR] [launch.py:321:sigkill_handler] ['python', '-u', 'train.py'] exits with return code = 1\n",
    ),
    "remote rank": ("nccl-remote-error", "RuntimeError: NCCL Error 6: remote process exited or there was a network error\n"),
    "negative reference count": (
        "refcount-negative",
        "Objects/dictobject.c:2041: _Py_NegativeRefcount: Assertion failed: object has negative ref count\n",
    ),
    "too small for the collector": (
        "gc-refcount-too-small",
        'Modules/gcmodule.c:379: visit_decref: Assertion "gc_get_refs(g) > 0" failed: refcount is too small\n'
        "object type name: Packet\nobject repr     : <net.Packet object at 0x7f12>\n\nFatal Python error: _PyObject_AssertFailed\n",
    ),
    "old deallocation of True": ("refcount-singleton-dealloc", "Fatal Python error: deallocating True or False\n"),
    "Python's recursion guard": ("stack-overflow", "Fatal Python error: Cannot recover from stack overflow.\n"),
    "Xid 79": ("gpu-lost", "NVRM: Xid (PCI:0000:44:00): 79, pid=77, GPU has fallen off the bus.\n"),
    "Xid 31": (
        "cuda-illegal-access",
        "NVRM: Xid (PCI:0000:44:00): 31, pid=77, name=python3, channel 0x2, MMU Fault: ENGINE GRAPHICS faulted @ 0x18\n",
    ),
    "Xid 48": ("gpu-ecc-error", "NVRM: Xid (PCI:0000:44:00): 48, pid=77, Double Bit ECC Error\n"),
    "no handle": ("gpu-lost", "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error\n"),
    "LLVM": ("llvm-abort", "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.shfl\nAborted (core dumped)\n"),
    "BSD assertion": ("c-assertion-failed", "Assertion failed: (n > 0), function push, file queue.c, line 31.\nAbort trap: 6\n"),
    "glibc's own assertion": (
        "c-assertion-failed",
        "Fatal glibc error: pthread_mutex_lock.c:93 (___pthread_mutex_lock): assertion failed: mutex->__data.__owner == 0\n",
    ),
    "malloc's assertion": (
        "heap-corruption-overflow",
        "Fatal glibc error: malloc.c:2599 (sysmalloc): assertion failed: (old_top == initial_top (av) && old_size == 0)\n",
    ),
    "Metal": (
        "mps-assertion",
        "-[_MTLCommandBuffer addCompletedHandler:]:867: failed assertion `Completed handler provided after commit call'\n",
    ),
    "threads of C++": (
        "thread-limit",
        "terminate called after throwing an instance of 'std::system_error'\n  what():  Resource temporarily unavailable\n",
    ),
    "seccomp": ("thread-limit", "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 8: Operation not permitted\n"),
    "a kernel log with the invocation only": (
        "host-oom-cgroup",
        "python3 invoked oom-killer: gfp_mask=0x6200ca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0\n",
    ),
    "slurm": (
        "host-oom-cgroup",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step tasks have been OOM Killed.\n",
    ),
    "old cuBLAS": (
        "cuda-cublas-status",
        "RuntimeError: cublas runtime error : the GPU program failed to execute at /pytorch/aten/src/THC/THCBlas.cu:259\n",
    ),
    "Windows": ("windows-access-violation", "Process finished with exit code -1073741819 (0xC0000005)\n"),
    "any other fatal error": (
        "fatal-python-error",
        "Fatal Python error: init_fs_encoding: failed to get the Python codec of the filesystem encoding\n",
    ),
    "PyQt's words": ("pyqt-unhandled-exception", "Unhandled Python exception\nAborted (core dumped)\n"),
    "Qt without an application": ("qt-no-application", "QWidget: Must construct a QApplication before a QWidget\nAborted (core dumped)\n"),
    "valgrind": ("valgrind-report", "==8695== Invalid read of size 8\n==8695==    at 0x4ED1DF: collect (gcmodule.c:953)\n==8695== \n"),
}


@pytest.mark.parametrize("name", LOGS)
def test_by_its_log(name: str, tmp_path: Path) -> None:
    expected, text = LOGS[name]
    (tmp_path / "stderr.log").write_text(text)
    found = diagnose(crash_of_log(tmp_path / "stderr.log", read_log(tmp_path / "stderr.log")), load_catalog())
    assert [finding.id for finding in found.findings][:1] == [expected]


SEGV = "Segmentation fault (core dumped)\n"
LOOK_ALIKES = {
    "a C library that is too old": (
        "ImportError: /lib/libc.so.6: version `GLIBC_2.34' not found (required by /x.so)\n" + SEGV,
        "libstdcxx-too-old",
    ),
    "Qt falls back from wayland": ('qt.qpa.plugin: Could not find the Qt platform plugin "wayland" in ""\n' + SEGV, "qt-platform-plugin"),
    "an exception that Tk ignores": ("RuntimeError: main thread is not in main loop\n" + SEGV, "tk-wrong-thread"),
    "a check of XGBoost raises": (
        "[10:10:10] src/learner.cc:553: Check failed: mparam_.num_feature != 0 (0 vs. 0)\n" + SEGV,
        "glog-check-failed",
    ),
    "an assertion of a kernel": (
        "/k.cu:70: operator(): block: [0,0,0], thread: [1,0,0] Assertion `idx < n` failed.\nRuntimeError: CUDA error: device-side assert triggered\n",
        "c-assertion-failed",
    ),
    "Python's own assertion": ("AssertionError: Assertion `x` failed in test\n" + SEGV, "c-assertion-failed"),
    "MemoryError of a caught bad_alloc": ("MemoryError: std::bad_alloc\n" + SEGV, "cxx-bad-alloc"),
    "Ray's line with a count of 0": (
        "(raylet) 0 Workers (tasks / actors) killed due to memory pressure (OOM), 3 Workers crashed due to other reasons\n" + SEGV,
        "ray-memory-monitor",
    ),
    "an application's Xid": ("NVRM: Xid (PCI:0000:44:00): 31, pid=77, MMU Fault\n" + SEGV, "gpu-*"),
    "a worker that was told to end": (
        "billiard.exceptions.WorkerLostError: Worker exited prematurely: signal 15 (SIGTERM) Job: 1.\n",
        "supervisor-worker-crashed",
    ),
    "a worker that was killed": (
        "DAMN ! worker 1 (pid: 108) died, killed by signal 9 :( trying respawn ...\n",
        "supervisor-worker-crashed",
    ),
    "a rank that died of a signal": (
        "failed (exitcode: -11) local_rank: 0 (pid: 77) of binary: /usr/bin/python\n",
        "launcher-child-failed",
    ),
    "SIGTERM to the other ranks": (
        "Sending process 899505 closing signal SIGTERM\nfailed (exitcode: 1) local_rank: 4 (pid: 77) of binary: /usr/bin/python\n",
        "killed-by-sigterm",
    ),
    "None is another signature": (
        "Fatal Python error: none_dealloc: deallocating None: bug likely caused by a refcount error in a C extension\n",
        "refcount-singleton-dealloc",
    ),
    "finalizing is not yet a destructor": (
        "Fatal Python error: notimplemented_dealloc: deallocating NotImplemented\nPython runtime state: finalizing (tstate=0x1)\n",
        "finalization-*",
    ),
    "nor for the lock of a stream": (
        "Fatal Python error: _enter_buffered_busy: could not acquire lock for <_io.BufferedWriter name='<stdout>'> at interpreter shutdown\nPython runtime state: finalizing (tstate=0x1)\n",
        "finalization-*",
    ),
    "nor for interned strings": (
        "Fatal Python error: Inconsistent interned string state.\nPython runtime state: finalizing (tstate=0x1)\n",
        "finalization-*",
    ),
    "a signal's name is no fatal error of its own": ("Fatal Python error: Segmentation fault\n", "fatal-python-error"),
    "a false report of valgrind": (
        "==1== Conditional jump or move depends on uninitialised value(s)\n==1==    at 0x4E: address_in_range (obmalloc.c:9)\n==1== \n",
        "valgrind-report certain",
    ),
    "a panic that was handled": (
        "thread 'main' panicked at src/lib.rs:1:2:\nno\nnote: run with `RUST_BACKTRACE=1`\n" + SEGV,
        "rust-panic certain",
    ),
    "an object of Qt that was deleted": (
        "RuntimeError: wrapped C/C++ object of type QLabel has been deleted\n" + SEGV,
        "qt-object-lifetime",
    ),
    "an exit code of an application": (
        "the request failed with error code 404\njob 137 failed with error code 12\n" + SEGV,
        "killed-by-signal-9-unknown",
    ),
    "macOS, torch's own exception": (
        "libc++abi: terminating due to uncaught exception of type c10::Error: CPU tensor expected\nAbort trap: 6\n",
        "cxx-uncaught-exception",
    ),
    "macOS, an exception of Objective-C": (
        "*** Terminating app due to uncaught exception 'NSInvalidArgumentException', reason: 'NULL cString'\nAbort trap: 6\n",
        "cxx-uncaught-exception",
    ),
    "a data set's symbol": ("ValueError: undefined symbol: price in the formula\n" + SEGV, "abi-undefined-symbol"),
    "a thread that could not be had is tried again": (
        "retrying: Resource temporarily unavailable\n" + SEGV,
        "thread-limit",
    ),
    "a caught check, told by a logger": (
        "[2022-06-21 19:14:10,710 E 31945 31971] pb_util.h:202: not ready\n" + SEGV,
        "glog-check-failed",
    ),
    "another error of OpenMP": (
        "OMP: Error #100: Fatal system error detected.\nOMP: System error #22: Invalid argument\n" + SEGV,
        "duplicate-openmp-runtime",
    ),
    "Windows, another end": ("Process finished with exit code -1073740791 (0xC0000409)\n", "windows-access-violation"),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_what_looks_alike(name: str, tmp_path: Path) -> None:
    text, forbidden = LOOK_ALIKES[name]
    identity, _, confidence = forbidden.partition(" ")
    (tmp_path / "stderr.log").write_text(text)
    found = diagnose(crash_of_log(tmp_path / "stderr.log", read_log(tmp_path / "stderr.log")), load_catalog()).findings
    named = [finding for finding in found if finding.id == identity or (identity.endswith("*") and finding.id.startswith(identity[:-1]))]
    assert not [finding for finding in named if not confidence or finding.confidence == confidence]


STACK_LOOK_ALIKES = {
    "an exception that nobody caught is not the unwinder's": (
        {"signal": "SIGABRT", "frames": "raise > abort > __gxx_personality_v0 > _Unwind_RaiseException > __cxa_throw > f"},
        "unwinder-crash",
    ),
    "a later call of MPI": ({"signal": "SIGSEGV", "frames": "memcpy > opal_progress > PMPI_Wait > main"}, "mpi-abi-mismatch"),
    "two copies of OpenSSL, and a crash elsewhere": (
        {"signal": "SIGSEGV", "frames": "f [own.so] > main", "modules": ["/a/libcrypto.so.3", "/b.libs/libcrypto-1.so.1.1"]},
        "duplicate-openssl",
    ),
    "stopped while XLA compiled": (
        {"signal": "SIGTERM", "frames": "py /v/jax/_src/compiler.py:238 backend_compile > " + APP},
        "xla-compiler-crash",
    ),
    "abort sent from outside": ({"signal": "SIGABRT", "code": "SI_USER", "frames": "poll > main"}, "self-abort"),
    "abort by the C library": (
        {"signal": "SIGABRT", "frames": "raise > abort > __libc_message > malloc_printerr > _int_free > free > main"},
        "self-abort",
    ),
}


@pytest.mark.parametrize("name", STACK_LOOK_ALIKES)
def test_what_looks_alike_by_its_stack(name: str) -> None:
    facts, forbidden = STACK_LOOK_ALIKES[name]
    assert forbidden not in [finding.id for finding in diagnose(crash(**facts), load_catalog()).findings]


def of_frames(*frames: NativeFrame, signal: str = "SIGSEGV") -> Crash:
    subject = crash(signal=signal)
    return msgspec.structs.replace(subject, threads=(Thread(tid=100, crashed=True, frames=frames),))


def test_a_jump_through_null_in_gdbs_words() -> None:
    found = diagnose(of_frames(NativeFrame(pc=Address(0)), NativeFrame(function="call_it", pc=Address(0x7F12))), load_catalog())
    assert [finding.id for finding in found.findings] == ["null-function-call"]
    assert not diagnose(of_frames(NativeFrame(pc=Address(0x7F10)), NativeFrame(function="call_it")), load_catalog()).findings


def test_a_missing_thread_state_in_gdbs_words() -> None:
    frame = NativeFrame(function="_PyErr_SetObject", args={"tstate": "0x0"})
    assert diagnose(of_frames(frame, NativeFrame(function="f")), load_catalog()).findings[0].id == "gil-not-held"
    held = NativeFrame(function="_PyErr_SetObject", args={"tstate": "0x7f12"})
    assert not diagnose(of_frames(held, NativeFrame(function="f")), load_catalog()).findings


def test_the_words_of_a_fatal_error_on_the_stack() -> None:
    frames = (
        NativeFrame(function="abort"),
        NativeFrame(function="fatal_error_exit"),
        NativeFrame(function="_Py_FatalErrorFunc", args={"func": '0x7f "f"', "msg": '0x7f "the sky fell"'}),
    )
    (finding,) = diagnose(of_frames(*frames, signal="SIGABRT"), load_catalog()).findings
    assert (finding.id, finding.confidence) == ("fatal-python-error", "certain")
    assert "the sky fell" in (finding.summary or "")
