"""What somebody says of a cause, in a sentence and with nothing else: a title, a comment, the description of a change."""

# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnose.synthetic import of_posted

TOLD = [
    ("qt-object-lifetime", "The crash happens because the QThread object is garbage collected while its thread is still running."),
    ("qt-object-lifetime", "Segfault: the underlying C++ object of the widget has been deleted, but Python still holds a reference to it."),
    (
        "qt-object-lifetime",
        "PySide6 segfaults since the QObject gets destroyed before its parent; keeping a reference to the widget fixes it.",
    ),
    ("tk-wrong-thread", "Tkinter crashes the interpreter when the PhotoImage is deleted in a thread that is not the main thread."),
    (
        "cxx-forced-unwind",
        'At exit, daemon threads call pthread_exit while inside C++ code and the process aborts with "FATAL: exception not rethrown".',
    ),
    (
        "cxx-forced-unwind",
        "Python terminates the thread with pthread_exit when it tries to take the GIL during finalization, which unwinds through a noexcept C++ function and calls std::terminate.",
    ),
    ("deadlock-finalization", "The process hangs at exit because the destructor joins a thread that needs the GIL."),
    ("deadlock-finalization", "Python hangs on shutdown: the atexit handler waits for the worker thread forever."),
    ("sigfpe-integer-divide", "It crashes with a floating point exception because of an integer division by zero in the C code."),
    ("sigfpe-integer-divide", "Passing 0 as the block size leads to SIGFPE (division by zero)."),
    ("heap-corruption-double-free", "The destructor frees the buffer a second time, which is a double free and crashes the interpreter."),
    ("heap-corruption-invalid-free", "free() is called on a pointer that was not allocated by malloc, and the program aborts."),
    ("cxx-pure-virtual", "It calls a pure virtual function from the destructor and the process terminates."),
    ("cxx-terminate-no-exception", "std::terminate is called since a joinable std::thread is destroyed."),
    ("cxx-throw-in-destructor", "The destructor throws an exception and std::terminate is called."),
    ("cxx-bad-alloc", "The std::bad_alloc is not caught and kills the Python process."),
    ("refcount-singleton-dealloc", "Missing Py_INCREF on Py_True leads to a fatal error deallocating True."),
    ("refcount-none-dealloc", "Returning Py_None without incref'ing it eventually crashes the interpreter."),
    ("gc-corrupted-object", "tp_traverse visits an uninitialized member, so the garbage collector segfaults."),
    (
        "daemon-thread-stdio-lock",
        "A daemon thread holds the lock of stdout when the interpreter shuts down: Fatal Python error could not acquire lock for BufferedWriter.",
    ),
    (
        "foreign-pointer-dangling",
        "The numpy array's data pointer is passed to C via ctypes, but the array is garbage collected before the call.",
    ),
    ("foreign-pointer-dangling", "The ctypes buffer is freed while C still holds the pointer, and reading it segfaults."),
    ("use-after-free", "The iterator keeps a raw pointer to the list that has been freed."),
    ("library-init-crash", "Segfault on import: a static initializer of the shared library dereferences something not initialised."),
    ("unwinder-crash", "It crashes in _Unwind_RaiseException because two libgcc_s are loaded."),
    ("llvm-abort", "LLVM aborts the process while compiling the kernel in numba."),
    ("jvm-crash", "The JVM crashes with SIGSEGV inside libjvm.so when started from Python."),
    ("valgrind-report", "Valgrind reports an invalid read of size 8 in tupledealloc."),
    ("asan-report", "ASAN reports a heap-use-after-free in the extension."),
    ("tsan-report", "TSan reports a data race in the dict implementation."),
    ("ubsan-report", "UBSan complains about signed integer overflow in hash.c."),
    ("killed-by-sigterm", "The pod is preempted and the training receives SIGTERM and dies."),
    (
        "deadlock-gil-native-lock",
        "The callback takes the mutex while holding the GIL, and another thread holds the mutex and waits for the GIL: deadlock.",
    ),
    ("gil-not-held", "We call PyObject_Call from a C++ thread without PyGILState_Ensure and get a segfault."),
    ("gil-not-held", "Py_DECREF is called after the GIL was released, and it crashes randomly."),
    ("stack-overflow", "The parser recurses for each nested bracket and blows the C stack."),
    ("stack-overflow", "Deeply nested JSON causes a segfault."),
    ("null-deref", "malloc returns NULL and the result isn't checked, so it segfaults."),
    ("null-deref", "self->ctx is NULL when close() is called twice, leading to a segfault."),
    ("ctypes-pointer-truncated", "On 64-bit the handle is passed as int, so ctypes truncates it and the call crashes."),
    ("ctypes-pointer-truncated", "Setting restype to c_void_p fixed the segfault."),
    ("mmap-file-truncated-sigbus", "Truncating the file while it's mmapped gives a bus error."),
    ("shared-memory-sigbus", "/dev/shm is full, so writing the SharedMemory block raises SIGBUS."),
    ("macos-code-signature", "macOS kills the Python binary since its code signature became invalid after install_name_tool."),
    ("executable-stack", "The library requires an executable stack, and the loader refuses it."),
    ("duplicate-openssl", "psycopg2-binary ships its own libssl, which clashes with the system's, and we see segfaults."),
    ("allocator-mix", "The memory was allocated by jemalloc but freed with glibc free."),
    ("abi-numpy", "The wheel was built against numpy 1.x and segfaults with numpy 2."),
    ("mpi-abi-mismatch", "mpi4py was built with MPICH but run under OpenMPI's mpirun and crashes."),
    ("import-order-libstdcxx", "Importing torch before pyarrow segfaults; the other order works."),
    ("emulated-processor", "It segfaults under QEMU user mode when building the arm64 image."),
    ("fork-grpc", "grpc hangs after fork."),
    ("cuda-after-fork", "CUDA cannot be re-initialized in the forked worker."),
    ("thread-limit", "OpenBLAS can't create threads because of ulimit -u."),
    ("hang-io", "requests.get hangs forever since no timeout is given."),
    ("deadlock-child-pipe", "subprocess.wait() hangs because the pipe buffer is full."),
    ("deadlock-fork", "The child inherits a locked mutex from the parent at fork and deadlocks."),
    ("timeout-server-worker", "gunicorn kills the worker after 30 seconds since the request takes too long."),
    ("glog-check-failed", "TensorFlow aborts with a failed CHECK in tensor.cc."),
    ("windows-access-violation", "Python crashes with an access violation on Windows when the camera is closed."),
    ("rust-panic", "The Rust extension panics on an unwrap of None."),
    ("objc-uncaught-exception", "An NSException is thrown and the app terminates."),
    ("gui-wrong-thread", "Qt widgets are updated from a worker thread and it segfaults randomly."),
    ("pyqt-unhandled-exception", "PyQt5 calls qFatal() on unhandled exceptions in slots, so the app aborts."),
    ("openblas-memory-regions", "OpenBLAS says too many memory regions and terminates."),
    ("hdf5-mismatch", "HDF5 headers and library versions differ and h5py aborts on import."),
    ("protobuf-duplicate-registration", "Two copies of protobuf register the same file and the process aborts."),
    ("jemalloc-page-size", "jemalloc fails with unsupported system page size on the Raspberry Pi 5."),
    ("finalization-static-dtor", "Python segfaults on leaving the interpreter once the module is loaded."),
    ("finalization-static-dtor", "When the script that uses the scanner ends, it segfaults."),
    ("finalization-static-dtor", "As soon as I call py::finalize_interpreter() the host crashes."),
    ("abi-undefined-symbol", "It fails with `undefined symbol: c10::MessageLogger...`"),
    ("abi-undefined-symbol", "Import error with _ZN3c105ErrorC1ENS_14SourceLocationERKSs"),
    ("host-oom-cgroup", "The notebook consumed all of the available RAM, and the session crashed."),
    ("host-oom-cgroup", "My kernel keeps dying, it crashed after it had utilized all the memory"),
    ("duplicate-openmp-runtime", "libiomp5md.dll \u5df2\u7ecf\u521d\u59cb\u5316, \u5185\u6838\u6302\u6389"),
    ("null-deref", "I see segfaults and think that they come from a decref of a temporary that is NULL there."),
    ("import-order-libstdcxx", "The program crashes. When you swap the order, it works."),
    ("import-order-libstdcxx", "There is a segfault on start. It will only happen when cvcuda is imported prior to torch."),
    ("import-order-libstdcxx", "Importing the reader after importing torch segfaults."),
    ("stack-overflow", "Deep recursion terminates the script with no error on Windows."),
    ("use-after-free", "This leaves a dangling view of memory that nobody owns, and it crashes later."),
    ("collective-missing-rank", "It hangs if there is an uneven number of batches on the GPUs."),
    ("collective-missing-rank", "One of the ranks never gets there, and so the others are stuck in it."),
    ("null-deref", "The call references the None value, and causes a segmentation fault."),
    (
        "windows-access-violation",
        "The console exits without producing an image: could not convert to integer: 3221225477. Path 'exitCode'.",
    ),
    ("null-deref", "The lookup returns a null pointer which is then dereferenced."),
    ("hang-collective", "DDP training gets stuck at the end of the first epoch."),
    ("host-oom-cgroup", "It crashes with SIGKILL: the process is terminated due to insufficient memory."),
    ("static-tls-exhausted", "libgomp cannot allocate memory in the static TLS block."),
]
HEALTHY = [
    "The destructor is noexcept.",
    "valgrind 3.22 is installed",
    "The sanitizers are built with the compiler.",
    "LLVM 17 is required.",
    "The JVM starts in 2 seconds.",
    "The widget keeps its size.",
    "The buffer is released after the call.",
    "All threads are joined before exit.",
    "HDF5 1.14.3, header version 1.14.3",
    "sent SIGTERM to the worker; it ended cleanly",
    "Every allocation is checked, and freed when it is no longer needed.",
    "Static objects are constructed in order.",
    "When the program ends it prints a summary.",
    "Imports are sorted; isort changed the order.",
    "Infinite recursion is detected by the parser.",
    "DDP training scales to 64 GPUs.",
    "The batches may be of uneven length: they are padded.",
    "The cache uses all available memory by design.",
    "Undefined symbols for architecture arm64 are errors of the linker.",
    "strlen of a null terminated string",
    "wrote 3221225477 bytes with exit code 0",
    "None of the workers crashed.",
    "We use none of these, and it never crashes.",
    "The handle is passed as a pointer.",
]


@pytest.mark.parametrize(("expected", "sentence"), TOLD)
def test_named_first(expected: str, sentence: str, tmp_path: Path) -> None:
    found = of_posted(sentence, tmp_path)
    assert [finding.id for finding in found][:1] == [expected]


@pytest.mark.parametrize("sentence", HEALTHY)
def test_nothing_is_told(sentence: str, tmp_path: Path) -> None:
    assert of_posted(sentence, tmp_path) == ()


@pytest.mark.parametrize(("expected", "sentence"), TOLD)
def test_no_more_than_possible(expected: str, sentence: str, tmp_path: Path) -> None:
    printed = ("exception not rethrown", "static TLS block")
    if not any(text in sentence for text in printed):
        assert {finding.confidence for finding in of_posted(sentence, tmp_path) if finding.id == expected} == {"possible"}
