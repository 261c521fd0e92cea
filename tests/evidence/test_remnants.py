"""What is left of a report whose decisive lines were cut off, and what only looks like it."""

# ruff: noqa: E501

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.evidence.text import remnants
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Crash, ElidedFrames
from crashkit.pipeline import analyze

from .samples import forms
from .test_native_texts import POSTED

LEGEND = "  Stack use after scope:   f8\n  Shadow gap:              cc\n==411==ABORTING\n"
DUMP = """\
Current thread 0x00007f1d88ef5740 (most recent call first):
  File "/venv/lib/python3.11/site-packages/lib/core.py", line 386 in encode
  File "/srv/app.py", line 3 in <module>

Extension modules: numpy._core._multiarray_umath, yaml._yaml, pyarrow.lib (total: 3)
"""
GO = "panic({0x4a1e20, 0x4f2a30})\n\t/usr/lib/go/src/runtime/panic.go:884 +0x212\nmain.load(0xc000012345)\n\t/srv/main.go:12 +0x5c\n"
FRAMES = """\
  * frame #0: 0x00007fff2030c8e2 libsystem_kernel.dylib`__workq_kernreturn + 10
    frame #1: 0x0000000103a1b2c3 core.so`encode(int) at core.cpp:35:7 [opt]
"""

LEFT: dict[str, tuple[str, Optional[str], str]] = {
    "AddressSanitizer's legend": ("asan-report", None, f"The server with asan, at the second client:\n```\n{LEGEND}```\n"),
    "its shadow bytes": (
        "asan-report",
        None,
        "  0x0c047fff8000: fa fa fd fd\n=>0x0c047fff8010: fa fa[fd]fd fa fa fa fa fa fa fa fa fa fa fa fa\n",
    ),
    "ThreadSanitizer's frames": (
        "tsan-report",
        None,
        "    #12 run /w/queue.h:216 (ext.so+0x11f24)\n    #14 PyObject_Vectorcall <null> (python3.13t+0x487e8c)\n",
    ),
    "Valgrind's block": ("valgrind-report", None, "==12==  Address 0x4a2 is not stack'd, malloc'd or (recently) free'd\n==12==\n"),
    "glog's head without the check": (
        "glog-check-failed",
        "SIGABRT",
        "It stops like this:\n\nI0301 10:00:12.000001  4711 solver.cpp:218] Iteration 200\n*** Check failure stack trace: ***\n++ date\n",
    ),
    "glog's frames": ("cut-report", None, "    @     0x7f31cadd54b0  (unknown)\n    @     0x7f31cadd5428  store::Reader::next()\n"),
    "faulthandler's dump": ("fatal-python-error", None, DUMP),
    "its last line": ("fatal-python-error", None, "my test ends with\n" + DUMP.splitlines()[-1]),
    "Go's goroutines": ("go-panic", None, GO),
    "the middle of the JVM's report": ("jvm-crash", None, "# C  [libjpype.so+0x1f2]  start+0x12\n#\n# Core dump will be written.\n"),
    "the end of Open MPI's stack": (
        "cut-report",
        None,
        "[n7:16] [ 2] /usr/lib/core.so(+0x7d17b)[0x1521fb33f17b]\n[n7:16] *** End of error message ***\n",
    ),
    "why Open MPI's handler was called": ("null-deref", "SIGSEGV", "Signal code: Address not mapped (1)\nFailing at address: 0x12\n"),
    "the notice of MPI_ABORT": (
        "job-rank-failed",
        None,
        "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\nYou may or may not see output from other processes, depending on\n"
        "exactly when Open MPI kills them.\n",
    ),
    "Hydra's table": ("launcher-child-failed", None, "=   PID 4711 RUNNING AT cn12\n=   CLEANING UP REMAINING PROCESSES\n"),
    "lldb's frames": ("cut-report", None, FRAMES),
    "macOS's end": ("cut-report", None, "External Modification Summary:\n  Calls made by other processes targeting this process:\n"),
    "glibc's map": ("self-abort", "SIGABRT", "======= Memory map: ========\n00400000-00633000 r-xp 00000000 08:06 1901460   /usr/bin/a\n"),
    "uWSGI's frames": (
        "",
        "SIGSEGV",
        "uwsgi(uwsgi_segfault+0x21) [0x455a51]\n/lib/libpython3.3m.so.1.0(PyErr_Display+0x41) [0x7f67d9947701]\n",
    ),
    "V8's last collections": ("runtime-heap-limit", None, "<--- Last few GCs --->\n\n[12:0x1b51]      178 ms: Scavenge 48.4\n"),
    "gunicorn's frame": (
        "timeout-server-worker",
        None,
        '  File "/srv/app.py", line 15, in load\n    time.sleep(600)\n'
        '  File "/venv/lib/python3.11/site-packages/gunicorn/workers/base.py", line 200, in handle_abort\n    sys.exit(1)\nSystemExit: 1\n',
    ),
    "the runtime's state": ("fatal-python-error", None, "Python runtime state: core initialized\n"),
    "the last words of a thread at exit": (
        "daemon-thread-stdio-lock",
        None,
        "<_io.BufferedWriter name='<stderr>'> at interpreter shutdown,\npossibly due to daemon threads\n",
    ),
    "Py_FatalError in a backtrace": (
        "fatal-python-error",
        None,
        "/lib/libpython3.4m.so(Py_FatalError+0x50) [0x7fbe495b0bf0]\n/lib/libpython3.4m.so(PyFrame_New+0x12c) [0x7fbe4965935c]\n",
    ),
    "Valgrind's callers": (
        "valgrind-report",
        None,
        "".join(f"==12==    by 0x9E6A49{number}: run{number} (core.c:{number})\n" for number in range(3)),
    ),
    "Valgrind's guess": (
        "null-deref",
        "SIGSEGV",
        "==12==  Access not within mapped region at address 0x51\n==12==    by 0x9E6A49: run (core.c:3)\n",
    ),
    "Rust's frames": ("rust-panic", None, "   0:     0x7ff7d7e8e962 - <unknown>\n   1:     0x7ff7d7eb384b - core::run\n"),
    "what() alone": ("cxx-uncaught-exception", "SIGABRT", "It stops with\n\n  what():  basic_string::substr: __pos > this->size()\n"),
    "HDF5's versions": (
        "hdf5-mismatch",
        "SIGABRT",
        "Data corruption or segmentation faults may occur if the application continues.\nHeaders are 1.8.17, library is 1.8.18\n",
    ),
    "Qt's list of plugins": ("qt-platform-plugin", None, "\nAvailable platform plugins are: eglfs, minimal, offscreen, xcb.\n"),
    "TensorFlow's allocator": (
        "cuda-oom",
        None,
        "2020-06-06 15:41:05.390226: I tensorflow/core/common_runtime/bfc_allocator.cc:921] Sum Total of in-use chunks: 10.15GiB\n",
    ),
    "XLA's buffers": (
        "cuda-oom",
        None,
        "BufferAssignment stats:\n             parameter allocation:  372.76MiB\n              constant allocation:    48.5KiB\n"
        "                 total allocation:   14.44GiB\n",
    ),
    "Blender's parameters": (
        "windows-access-violation",
        None,
        "Exception Flags       : 0x00000000\n\tParameters[0] (action)  : 0x0000000000000000 (read)\n\tParameters[1] (address) : 0x00000000000000A8\n",
    ),
    "the end of torchrun's table": ("launcher-child-failed", None, "Failures:\n  <NO_OTHER_FAILURES>\n-----------------------\n"),
    "Ruby's sections": (
        "cut-report",
        None,
        "-- Control frame information -----------------------------------------------\nc:0003 p:----\n",
    ),
    "the kernel's list of tasks": (
        "host-oom-cgroup",
        "SIGKILL",
        "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name\n[    412]     0   412     8123 python\n",
    ),
}


def read(text: str, folder: Path) -> Crash:
    path = folder / "posted.txt"
    path.write_text(text)
    return diagnose(crash_of_log(path, read_log(path)), load_catalog())


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_tells_what_kind_of_report_it_was(name: str, tmp_path: Path) -> None:
    expected, signal, text = LEFT[name]
    crash = read(text, tmp_path)
    assert (crash.findings[0].id if crash.findings else "") == expected
    assert (crash.signal.name if crash.signal else None) == signal


@pytest.mark.parametrize("name", sorted(set(LEFT) - {"uWSGI's frames", "why Open MPI's handler was called", "Valgrind's guess"}))
def test_nothing_is_likely_of_a_part(name: str, tmp_path: Path) -> None:
    """But where it is the very line that tells the address of the access."""
    assert {finding.confidence for finding in read(LEFT[name][2], tmp_path).findings} == {"possible"}


LOOK_ALIKES = {
    "a page": f"## Reading a report\n\nA report ends with its legend, which looks like this:\n\n{LEGEND}",
    "a question": f"How can I turn this off? For example:\n{LEGEND}",
    "help": "The dump will look like this:\n\n" + DUMP,
    "a patch": "docs/debugging.md\n+A dump prints the threads:\n+\n" + "".join(f"+{row}\n" for row in DUMP.splitlines()),
    "a frame of a sanitizer": "    #0 0x55d in main program.cpp:2\n",
    "no errors": "==12== All heap blocks were freed -- no leaks are possible\n==12== ERROR SUMMARY: 0 errors from 0 contexts\n",
    "a legend of a plot": "Shadow gap: 3 pixels\nGlobal redzone: none\nnode died\n",
    "a leak of Valgrind": "==12== HEAP SUMMARY:\n==12== 8 bytes in 1 blocks are still reachable\n"
    + "".join(f"==12==    by 0x9E6A49{number}: run{number} (core.c:{number})\n" for number in range(3)),
    "a caught exception": "[warn] caught: what(): no such file, trying again\nnode died\n",
    "a doc of HDF5": "The check prints the versions, for example:\n\nHeaders are 1.8.17, library is 1.8.18\n",
    "an error with frames": "   0: core::run\n   1: main\nnode died\n",
    "a mail": "@ 0x7f31cadd54b0 I don't know\nnode died\n",
    "modules": "Extension modules: see the table below\nnode died\n",
    "goroutines that a program printed": "goroutine 7 [running]:\nmain.load(0xc0000123)\n\t/srv/main.go:12 +0x5c\n\t/srv/main.go:13 +0x5c\n",
    "a crash in C code below Go": "PC=0x7efe2ad3feec m=0 sigcode=1\nruntime.sigpanic()\nnode died\n",
    "leaks": "Indirect leak of 1 byte(s) in 1 object(s) allocated from:\n"
    "    #0 0x7f08 in strdup /src/libsanitizer/asan/asan_interceptors.cpp:454\n    #1 0x7f09 in guard /srv/core.cpp:3:1\n",
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_what_only_looks_like_it_is_none(name: str) -> None:
    assert list(remnants.remnants(LOOK_ALIKES[name].splitlines())) == []


def test_each_line_is_tried() -> None:
    """Each pattern of the table, in a text of its own."""
    silent = []
    for rule, patterns, _ in remnants.rules():
        for pattern in patterns:
            for text in map(str.strip, forms(pattern.pattern)):
                left = [one.kind for one in remnants.remnants([text] * rule.least)]
                if pattern.match(text) and rule.kind not in left:
                    silent.append((rule.of, text))
    assert silent == []


def test_a_log_that_shows_a_cause_is_not_searched_for_the_rest_of_others(tmp_path: Path) -> None:
    raised = "RuntimeError: CUDA error: device-side assert triggered\n"
    (finding,) = read(raised + LEGEND, tmp_path).findings
    assert finding.id == "cuda-device-assert"


def test_a_part_does_not_say_that_a_known_signal_is_unknown(tmp_path: Path) -> None:
    crash = read("Illegal instruction (core dumped)\n" + FRAMES, tmp_path)
    assert crash.signal is not None and crash.signal.name == "SIGILL"
    assert "cut-report" not in {finding.id for finding in crash.findings}


def test_what_is_folded_into_json_is_found(tmp_path: Path) -> None:
    text = json.dumps({"level": "error", "message": f"stderr:\n{LEGEND}"}) + "\n"
    assert [finding.id for finding in read(text, tmp_path).findings] == ["asan-report"]


def test_the_report_says_that_it_is_a_part(tmp_path: Path) -> None:
    path = tmp_path / "posted.txt"
    path.write_text(LEFT["Ruby's sections"][2])
    (finding,) = analyze([path]).findings
    assert finding.id == "cut-report" and "Ruby prints such lines" in finding.summary


STACK = """\
{signal}
[Switching to Thread 0x7fffa17fa640 (LWP 90210)]
__GI___libc_free (mem=0x2a0003) at malloc.c:3102
3102\tmalloc.c: No such file or directory.
"""
IMPORT = """\
import shop.store gives Segmentation fault (core dumped)

#71 0x00007f8ef6371292 in PyImport_ExecCodeModuleEx (name=0x1860290 "shop.store", co=0x7f8ef4cbcc30) at Python/import.c:731
#72 0x00007f8ef63739de in load_source_module (name=0x1860290 "shop.store", pathname=0x1896cd0 "/srv/shop/store.pyc") at Python/import.c:1121
"""
LIBTORRENT = """\
Sep 02 11:12:13 box bot[99]: assertion failed. Please file a bugreport at https://github.com/arvidn/libtorrent/issues
Sep 02 11:12:13 box bot[99]: Please include the following information:
Sep 02 11:12:13 box bot[99]: file: 'session_impl.cpp'
Sep 02 11:12:13 box bot[99]: expression: m_posted
"""
QAPP = """\
tests/test_a.py Fatal Python error: Aborted

Current thread 0x00007fa369115740 (most recent call first):
  File "/v/lib/python3.10/site-packages/pytestqt/plugin.py", line 76 in qapp
"""
COMPILES = """\
Segmentation fault

  File "/v/lib/python3.8/site-packages/jax/interpreters/xla.py", line 386 in backend_compile
  File "/v/lib/python3.8/site-packages/jax/interpreters/xla.py", line 323 in xla_primitive_callable
"""
CLASSES: dict[str, tuple[str, Optional[str], str]] = {
    "gdb's frame without a number": (
        "heap-corruption-invalid-free",
        "SIGSEGV",
        STACK.format(signal='Thread 5 "decoder" received signal SIGSEGV, Segmentation fault.'),
    ),
    "the outer frames of an import": ("library-init-crash", "SIGSEGV", IMPORT),
    "those of macOS": ("library-init-crash", None, POSTED["macOS without a head and its innermost frames"].text),
    "faulthandler's frames": ("xla-compiler-crash", "SIGSEGV", COMPILES),
    "libtorrent's assertion": ("c-assertion-failed", "SIGABRT", LIBTORRENT),
    "OpenCASCADE's handler": (
        "null-deref",
        "SIGSEGV",
        "Err: *** Abort *** an exception was raised, but no catch was found.\n"
        "Err: \t... The exception is:SIGSEGV 'segmentation violation' detected. Address 0\n",
    ),
    "status 159": ("seccomp-denied", "SIGSYS", "09:10:11 ERROR: Renderer process crashed (status 159)\n"),
    "status 159 of a worker": ("seccomp-denied", "SIGSYS", "worker 3 exited with status 159\n"),
    "status 159 of a node of ROS": (
        "seccomp-denied",
        "SIGSYS",
        "[ERROR] [talker-1]: process has died [pid 4711, exit code 159, cmd '/opt/talker'].\n",
    ),
    "status 139": ("", "SIGSEGV", "09:10:11 ERROR: Renderer process crashed (status 139)\n"),
    "pytest-qt": ("qt-platform-plugin", "SIGABRT", QAPP),
    "the kernel": (
        "host-oom-cgroup",
        "SIGKILL",
        "my job is killed by the kernel after an hour, with small data it works.\n\nReading corpus.txt.\n",
    ),
    "a step of SLURM": (
        "job-rank-failed",
        None,
        "error: *** STEP 9.0 ON n1 CANCELLED AT 2026-01-29T23:36:37 DUE TO TASK FAILURE ***\nsrun: Force Terminated StepId=9.0\n",
    ),
}


@pytest.mark.parametrize("name", CLASSES)
def test_classes(name: str, tmp_path: Path) -> None:
    expected, signal, text = CLASSES[name]
    crash = read(text, tmp_path)
    assert (crash.findings[0].id if crash.findings else "") == expected
    assert (crash.signal.name if crash.signal else None) == signal


@pytest.mark.parametrize("text", [COMPILES, COMPILES.replace("\n\n", "\n\nThread 0x00007f1d88ef5740 (most recent call first):\n")])
def test_the_only_thread_of_a_dump_without_its_head_is_the_one_that_crashed(text: str, tmp_path: Path) -> None:
    (thread,) = read(text, tmp_path).threads
    assert thread.crashed and [frame.function for frame in thread.pythons()] == ["backend_compile", "xla_primitive_callable"]


@pytest.mark.parametrize(
    "text",
    [
        "the web page process crashed (status 12)\n",
        "a SIGSEGV 'handler' detected.\n",
        "The daemon is killed by the kernel's own helper on shutdown, that is normal.\n",
        "assertion failed. Please read the manual.\n",
    ],
)
def test_no_such_class(text: str, tmp_path: Path) -> None:
    path = tmp_path / "posted.txt"
    path.write_text("Aborted\n" + text)
    assert {finding.id for finding in read("Aborted\n" + text, tmp_path).findings} <= {"self-abort"}


EXITS = """\
#{first}  0x00007ffff43fa613 in PyGILState_Ensure () at ../Python/pystate.c:1323
#{second}  0x00007fff5ea79227 in core_close () at /srv/core.c:64
#{third}  0x00007ffff5574b0c in __run_exit_handlers () from /lib64/libc.so.6
"""


def test_a_stack_without_its_innermost_frames_shows_no_deadlock(tmp_path: Path) -> None:
    """An assertion that failed above them is not seen."""
    whole = read(EXITS.format(first=0, second=1, third=2), tmp_path)
    assert [finding.id for finding in whole.findings] == ["deadlock-finalization"]
    assert not read(EXITS.format(first=4, second=5, third=6), tmp_path).findings


def test_frames_of_glog_are_read_without_their_head(tmp_path: Path) -> None:
    (thread,) = read(LEFT["glog's frames"][2], tmp_path).threads
    assert [frame.function for frame in thread.natives()] == [None, "store::Reader::next()"]


def test_frames_that_were_cut_off_are_counted(tmp_path: Path) -> None:
    cut = "    frame #39: 0x0000000100e6a89c Python`_imp_create_dynamic + 168\n    frame #40: 0x0000000100d34120 Python`run + 96\n"
    (thread,) = read(cut, tmp_path).threads
    assert thread.frames[0] == ElidedFrames(count=39)
