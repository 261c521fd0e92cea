"""What people say of a cause counts as possible, in a text that they post; what a program says counts for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text import causes
from crashkit.evidence.text.log import MOST_TYPED, crash_of_log, read_log
from crashkit.model import Crash, Finding

CRASHED = "Segmentation fault (core dumped)\n"
SAID = {
    "If libusb_init fails, self.ctx is NULL, and libusb_exit(NULL) segfaults.": "null-deref",
    "It is a null-pointer dereference in the parser.": "null-deref",
    "The return type wasn't defined, so ctypes assumed that the handle is a 32-bit int.": "ctypes-pointer-truncated",
    "The pointer gets truncated to 32 bits.": "ctypes-pointer-truncated",
    "The CFUNCTYPE callback object was prematurely\ngarbage collected by Python.": "ctypes-callback-freed",
    "PyList_Append is called here without holding the GIL.": "gil-not-held",
    "A use-after-free in the iterator.": "use-after-free",
    "Infinite recursion makes the interpreter crash.": "stack-overflow",
    "The wheel bundles its own libssl, which is incompatible with the ssl module.": "duplicate-openssl",
    "The child segfaults in objc_initializeAfterForkError.": "macos-objc-fork",
    "The worker hangs because the lock was held by another thread when it forked.": "deadlock-fork",
    "It crashes at interpreter shutdown.": "finalization-static-dtor",
    "import torch before pyarrow works": "import-order-libstdcxx",
    "A race on the free-threaded build crashes it.": "free-threaded-race",
    "The file was truncated while memory-mapped: bus error.": "mmap-file-truncated-sigbus",
    "pytest segfaults during garbage collection": "gc-corrupted-object",
    "The trace function becomes null in the thread state, and it is called.": "null-function-call",
    "Tkinter was called in a thread.": "gui-wrong-thread",
    "gloo's barrier timed out on one rank.": "gloo-timeout",
    "Thread A waits for the construction of a static while thread B wants the GIL.": "deadlock-gil-static-init",
    "We must make sure that we don't call any tkinter stuff during the thread.": "gui-wrong-thread",
    "tkinter runs on the main thread, I was calling it from the listener thread. That is why it was crashing.": "gui-wrong-thread",
    "With PyQt5, every time an error occurs it closes.": "pyqt-unhandled-exception",
    "The garbage collector deletes objects that are still referenced by the C++ code.": "use-after-free",
    "The macro Py_RETURN_NONE is the right way to do it.": "refcount-none-dealloc",
    "A bus error at the end of the Python process.": "finalization-static-dtor",
    # In any order.
    "An NFS file was replaced while it was mapped: SIGBUS.": "mmap-file-truncated-sigbus",
    "In the container pthread_create failed since pids.max is 100.": "thread-limit",
    "A cycle makes repr() recurse endlessly.": "stack-overflow",
    "It is the destruction order of statics.": "finalization-static-dtor",
    "The driver returns NULL if no camera is plugged in, and the wrapper dereferences it.": "null-deref",
    "Gtk calls must be done in the main loop.": "gui-wrong-thread",
    "The client was created before the fork, and grpc is not fork safe.": "fork-grpc",
    "calling a method after close() crashes since the native handle has been freed": "use-after-free",
    "The array is a view on memory owned by the C++ object; once the object is destroyed, python crashes.": "use-after-free",
    "It crashes because the iterator outlives its container.": "use-after-free",
    "One Py_DECREF too many in the cleanup path crashes the interpreter.": "use-after-free",
    "The crash happens because Qt deletes the C++ object but Python still has the wrapper.": "qt-object-lifetime",
    "matplotlib crashes the app if I plot from the background thread.": "gui-wrong-thread",
    "The destructor is recursive, so a long list crashes.": "stack-overflow",
    "musl gives threads 128k of stack, therefore the interpreter segfaults.": "stack-overflow",
    "libusb_open fails, the handle stays 0, and the next call segfaults.": "null-deref",
    "We return Py_None without increasing its reference count: fatal error.": "refcount-none-dealloc",
    "The global C++ objects are destroyed when the interpreter exits: crash.": "finalization-static-dtor",
    "The buffer is one byte too small, strcpy writes past its end and glibc aborts.": "heap-corruption-overflow",
    "Both python and the library free the same buffer.": "heap-corruption-double-free",
    "torch and sklearn bring their own OpenMP: segfault.": "duplicate-openmp-runtime",
    "Swapping the imports fixes it.": "import-order-libstdcxx",
    "Compiled for a different version of python: undefined symbol.": "abi-undefined-symbol",
    "Downgrading protobuf fixes the crash.": "protobuf-version",
    "The C++ exception goes across the C API boundary and terminates the interpreter.": "cxx-uncaught-exception",
    "The wheel needs glibc, but alpine uses musl.": "glibc-library-on-musl",
    "jemalloc compiled for 4k pages does not run on 16k pages.": "jemalloc-page-size",
    "Two threads take the locks in opposite order and hang.": "deadlock-locks",
}


def _findings(text: str, tmp_path: Path) -> tuple[Finding, ...]:
    return diagnose(_crash(text, tmp_path), load_catalog()).findings


def _crash(text: str, tmp_path: Path) -> Crash:
    path = tmp_path / "posted.txt"
    path.write_text(text)
    return crash_of_log(path, read_log(path))


@pytest.mark.parametrize("text", SAID)
def test_a_cause_that_is_said(text: str, tmp_path: Path) -> None:
    found = _findings(f"{CRASHED}{text}\n", tmp_path)
    assert [(one.id, one.confidence) for one in found if one.id == SAID[text]] == [(SAID[text], "possible")]


@pytest.mark.parametrize("text", SAID)
def test_only_in_a_short_text(text: str, tmp_path: Path) -> None:
    """A log is not searched for sentences."""
    log = CRASHED + "an ordinary line of some log\n" * (MOST_TYPED // 28) + text + "\n"
    assert [line.kind for line in _crash(log, tmp_path).log if (line.kind or "").startswith(causes.PREFIX)] == []


def test_a_cause_alone_is_no_crash(tmp_path: Path) -> None:
    crash = _crash("ctypes takes it for an int, so the pointer is truncated to 32 bits\n", tmp_path)
    assert crash.signal is None
    assert "but of no crash" in crash.soft_errors[0].message
    assert [(one.id, one.confidence) for one in diagnose(crash, load_catalog()).findings] == [("ctypes-pointer-truncated", "possible")]


def test_a_change_of_what_caused_crashes_is_none(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError):
        _crash("Avoid that a GPU fell off the bus\n", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "It is not a null pointer dereference.",
        "The value may be null in JSON, which is fine.",
        "We use ctypes to call it.",
        "openssl 3.0.2 is installed, numpy 1.26, glibc 2.35.",
        "processor : 0, vendor_id : GenuineIntel, model name : Intel(R) Xeon(R)",
        "import numpy, then import torch",
        "I run it on macOS with Python 3.12.",
        "The garbage collector is enabled.",
        "The process forked two children.",
        "    Py_RETURN_NONE;",
        "The widget is updated from the main thread.",
        "The UI is called by the GUI thread.",
        "PyQt5 5.15 is installed; every test passes.",
        "The GUI is drawn from the main thread, and the worker thread computes.",
        "The full memory map follows.",
        "This static library is linked, and it takes the GIL.",
        "A C++ static variable is initialised at start.",
        "gloo is used on CPU, timeout=1800.",
        "The objects are still referenced, so nothing is collected.",
        "It runs to the end of the program.",
        "The file is mapped into memory.",
        "pids.max is 100.",
        "The Qt plugins are installed.",
        "grpc 1.60 is used, and the workers are forked.",
        "The old files are deleted after a week.",
        "jemalloc 5.3 is preloaded.",
        "The image is based on alpine.",
        "protobuf 3.20.1, openmp 5, glibc 2.35 are installed.",
        "The git clone is recursive.",
        "The objects are written to disk when the program exits.",
        "The threads start in another order.",
        "The arrays are copied to the buffers.",
    ],
)
def test_words_that_tell_no_cause(text: str, tmp_path: Path) -> None:
    assert _findings(f"{CRASHED}{text}\n", tmp_path) == ()


def test_what_a_program_printed_is_not_what_somebody_says(tmp_path: Path) -> None:
    text = f"{CRASHED}kernel: CUDA Exception: Device Illegal Address\npython: symbol lookup error: /usr/lib/x.so: undefined symbol: price\n"
    assert [line.kind for line in _crash(text, tmp_path).log if (line.kind or "").startswith(causes.PREFIX)] == []


def test_every_cause_has_its_signature() -> None:
    """The kind is named after it, and its rule is no more than possible."""
    known = {signature.id: signature for signature in load_catalog().signatures}
    rules = {
        kind: [rule for rule in known[kind.removeprefix(causes.PREFIX)].rule if any(one.log == kind for one in rule.all)]
        for kind in causes.kinds()
    }
    assert [kind for kind, several in rules.items() if [rule.confidence for rule in several] != ["possible"]] == []


BARE = ("Illegal instruction (core dumped)", "zsh: illegal hardware instruction  python", "app exited with code 132")


@pytest.mark.parametrize("text", BARE)
def test_an_illegal_instruction_by_itself(text: str, tmp_path: Path) -> None:
    """What it shows; that the processor lacks it is said only where something tells of the processor."""
    assert [one.id for one in _findings(text + "\n", tmp_path)] == ["illegal-instruction"]
    told = _findings(f"{text}\nI assume that this old CPU has no AVX.\n", tmp_path)
    assert [one.id for one in told] == ["sigill-unsupported-cpu", "illegal-instruction"]


def test_a_library_warned_before_the_instruction(tmp_path: Path) -> None:
    (first, *_) = _findings("RuntimeWarning: Missing required CPU features.\nIllegal instruction (core dumped)\n", tmp_path)
    assert (first.id, first.confidence) == ("sigill-unsupported-cpu", "likely")


TERMINATE = """\
Program received signal SIGABRT, Aborted.
#0  0x00007f1 in raise () from /lib/libc.so.6
#1  0x00007f2 in abort () from /lib/libc.so.6
#2  0x00007f3 in __cxxabiv1::__terminate (handler=<optimized out>) at eh_terminate.cc:48
#3  0x00007f4 in __cxxabiv1::__gxx_personality_v0 (version=<optimized out>, actions={actions}, exception_class=0) at eh_personality.cc:677
"""


@pytest.mark.parametrize(("actions", "forced"), [(10, True), (26, True), (2, False), (6, False)])
def test_unwound_by_force(actions: int, forced: bool, tmp_path: Path) -> None:
    """What gdb shows of the unwinder's call: no exception was thrown."""
    found = {one.id for one in _findings(TERMINATE.format(actions=actions), tmp_path)}
    assert ("cxx-forced-unwind" in found) is forced


GUESSED = [
    "ProcessGroupNCCL's watchdog got stuck for 600 seconds. This typically indicates a NCCL/CUDA API hang blocking the "
    "watchdog, and could be triggered by another thread holding the GIL inside a CUDA api, or other deadlock-prone behaviors.",
    "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks, the order of "
    "collectives is not same for all ranks or the scheduled collective, for some reason, didn't run. Additionally, this can "
    "be caused by GIL deadlock or other reasons such as network errors or bugs in the communications library (e.g. NCCL), "
    "etc.",
    "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
    "DataLoader worker (pid 37) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared "
    "memory. Please try to raise your shared memory limit.",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    "Allocator (GPU_0_bfc) ran out of memory trying to allocate 6.90GiB with freed_by_count=0. The caller indicates that this "
    "is not a failure, but this may mean that there could be performance gains if more memory were available.",
    "The TensorFlow library wasn't compiled to use AVX instructions, but these are available on your machine and could speed "
    "up CPU computations.",
    "This could be caused by a segmentation fault while calling the function or by an excessive memory usage causing the "
    "Operating System to kill the worker.",
    "There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) "
    "ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors.",
    "Perhaps some other process is leaking memory?",
    "It is likely caused by a refcount error in a C extension.",
]
"""What programs print of every such failure."""


@pytest.mark.parametrize("text", GUESSED)
def test_a_program_s_own_guess_tells_no_cause(text: str) -> None:
    told = {one.kind for one in causes.told([*CRASHED.splitlines(), *text.split(". ")], only_words=True)}
    assert not told - {"tells-nccl-hang", "tells-nccl-watchdog-timeout", "tells-dataloader-worker-sigbus"}


def test_what_somebody_says_beside_a_guess_counts() -> None:
    told = causes.told([GUESSED[1], "I found it: a GIL deadlock, one thread waits for a mutex while it holds the GIL."], only_words=True)
    assert [(one.line, one.kind) for one in told if "gil" in one.kind] == [(2, "tells-deadlock-gil-native-lock")]


@pytest.mark.parametrize(
    "frame", ['  File "/srv/app.py", line 5, in load', '  File "/srv/app.py", line 5', '  |   File "/srv/app.py", line 5, in load']
)
def test_the_names_in_a_tracebacks_source_line_are_nobodys_words(frame: str, tmp_path: Path) -> None:
    said = "    data, has_pending_tasks = await get_output_data()"
    for text, found in ((f"{CRASHED}{said}\n", True), (f"{CRASHED}{frame}\n{said}\n", False)):
        kinds = {line.kind for line in _crash(text, tmp_path).log}
        assert ("tells-deadlock-task-never-woken" in kinds) is found, text
