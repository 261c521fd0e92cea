"""One failure in the forms in which people paste it: another tool's, another version's, another language's, or a sentence; and look-alikes."""

# ruff: noqa: E501

from __future__ import annotations

import pytest

from .test_public_reports import Report, judged

FORMS = [
    ("self-abort", "db = rocksdb.DB(path)\nL0 files seqno 5173423 vs. 0\nAborted (core dumped)"),
    (
        "self-abort",
        'Fatal Python error: Aborted\n\nCurrent thread 0x00007f12 (most recent call first):\n  File "train.py", line 3 in <module>',
    ),
    (
        "self-abort",
        "Faulting application name: tool.exe, version: 1.0.0.0\nFaulting module name: ucrtbase.dll, version: 10.0.22621.608\nException code: 0xc0000409",
    ),
    ("self-abort", "The library calls abort() instead of raising an exception"),
    ("heap-corruption-overflow", "sysmalloc: Assertion `(old_top == initial_top (av) && old_size == 0)' failed."),
    ("heap-corruption-overflow", "buffer overrun in my cython code -> malloc error later, then it crashes"),
    ("cxx-uncaught-exception", "The C++ exception is not caught and kills the whole Python process"),
    ("cxx-uncaught-exception", "Uncaught C++ exception crashes the interpreter instead of raising a Python exception"),
    ("cxx-terminate-no-exception", "libc++abi: terminating"),
    (
        "c-assertion-failed",
        'TRAP: FailedAssertion("((PageHeader) (page))->pd_special >= SizeOfPageHeaderData", File: "/usr/include/server/bufpage.h", Line: 317, PID: 54277)',
    ),
    ("c-assertion-failed", "Assertion failed in file ../../src/netmod/tcp/socksm.c at line 2988: (it_plfd->revents & POLLERR) == 0"),
    ("c-assertion-failed", "The fuzzer crashed it: string_parser.c, Assertion `*str < end` failed."),
    ("collective-mismatch", "*** An error occurred in MPI_Allgatherv\n*** MPI_ERR_TRUNCATE: message truncated\n*** MPI_ERRORS_ARE_FATAL"),
    ("rendezvous-failed", "Timed out initializing process group in store based barrier on rank: 2"),
    ("cuda-illegal-access", "torch.AcceleratorError: CUDA error: operation not supported on global/shared address space"),
    ("cuda-kernel-illegal-instruction", "cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_INVALID_PC: invalid program counter"),
    ("cuda-kernel-illegal-instruction", "CUDADriverError: CUDA_ERROR_ILLEGAL_INSTRUCTION: an illegal instruction was encountered"),
    ("cuda-kernel-stack-overflow", "RuntimeError: CUDA error: hardware stack error"),
    ("cuda-launch-resources", "CUDA error (transport particle table): too many resources requested for launch"),
    ("cuda-launch-resources", "ERROR: CUDA error: too many resources requested for launch (code #701, ERROR_LAUNCH_OUT_OF_RESOURCES)"),
    ("cuda-graph-capture", "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"),
    ("cuda-graph-capture", "torch.AcceleratorError: CUDA error: operation failed due to a previous error during capture"),
    ("cuda-graph-capture", "Capture cuda graph failed: CUDA error: capturing stream has unjoined work"),
    ("cuda-no-kernel-image", "RuntimeError: nvrtc: error: invalid value for --gpu-architecture (-arch)"),
    ("cuda-no-kernel-image", "CUDA operation failed: device kernel image is invalid when running with gpu"),
    ("abi-numpy-size", '  File "a.py", line 3, in <module>\n    import cv2\nImportError: numpy.core.multiarray failed to import'),
    ("native-result-and-exception", "Error: ibm_db_dbi::Error: SystemError('error return without exception set',)"),
    ("native-result-and-exception", "SystemError: NULL result without error in PyObject_Call"),
    ("killed-by-signal-9-unknown", '"Killed signal terminated program"? The build is eventually killed.'),
    (
        "killed-by-sigterm",
        "WARN received SIGQUIT indicating exit request\nINFO waiting for web, nginx to die\nINFO stopped: nginx (exit status 0)",
    ),
    ("supervisor-worker-crashed", "Parent: child process exited with status 255 -- Restarting."),
    ("windows-access-violation", "AH00428: Parent: child process 5678 exited with status 3221225477 -- Restarting."),
    ("fortran-runtime-error", "Fortran runtime error: Index '11' of dimension 1 of array 'a' above upper bound of 10"),
    (
        "fortran-runtime-error",
        "forrtl: severe (408): fort: (2): Subscript #1 of the array A has value 11 which is greater than the upper bound of 10",
    ),
    ("fortran-runtime-error", "solving\nERROR STOP no convergence"),
    (
        "nanobind-critical",
        'Thread 1 "python" received signal SIGABRT, Aborted.\n#1  0x00007ffff7652e86 in raise () from /lib/libc.so.6\n#2  0x00007ffff763b935 in abort () from /lib/libc.so.6\n'
        "#3  0x00007ffff63aa137 in nanobind::detail::internals_cleanup () at nb_internals.cpp:312",
    ),
    (
        "gil-not-held",
        "It crashes on macOS only:\n\nThread 3 Crashed:\n0   Python                         0x100cd2b30 PyEval_SaveThread + 36\n1   _solver.so  0x103e8ac30 Solver::run + 12",
    ),
    (
        "null-deref",
        "it crashes when a file is opened\n#0  wl_proxy_get_version (proxy=0x0) at client.c:2248\n#1  0x00007f93ebfe1b0d in get_version (shell=<optimized out>)\n    at ./shell.h:133",
    ),
    ("llvm-abort", ": CommandLine Error: Option 'x86-asm-syntax' registered more than once!"),
    ("heap-check-of-musl", "python in an alpine container segfaults inside free() of musl"),
    ("sigfpe-integer-divide", "fold with stride=0 crashes: Floating point exception, division by zero"),
    ("use-after-free", "calling a method on a closed handle segfaults"),
    ("use-after-free", "closing the database while a cursor is open crashes python with a segfault"),
    ("use-after-free", "missing Py_INCREF leads to a segfault later"),
    ("use-after-free", "we forgot to incref the returned object, so the interpreter crashed"),
    ("stack-overflow", "Segmentation fault: 11 when the recursion limit is raised above 20000"),
    ("stack-overflow", "Thread 0 Crashed: KERN_PROTECTION_FAILURE at 0x00007ffee\nCould not determine thread index for stack guard region"),
    ("stack-smashing", "I get a stack smashing error when calling into my library with ctypes"),
    ("gil-not-held", "Fatal Python error: Python memory allocator called without holding the GIL"),
    ("gil-not-held", "Fatal Python error: PyEval_AcquireThread: non-NULL old thread state"),
    ("gil-not-held", "pybind11::handle::dec_ref() is being called while the GIL is either not held or invalid."),
    ("gil-not-held", "nogil block in cython calls a python function, segfault"),
    ("gil-not-held", "Py_DECREF is called in a Py_BEGIN_ALLOW_THREADS block, random segfaults"),
    (
        "gc-corrupted-object",
        '  Fatal Python error: Segmentation fault\n\n  Current thread 0x00007f1f83bfeb80 [coverage] (most recent call first):\n    Garbage-collecting\n    File "a.py", line 59 in gc_collect_harder',
    ),
    ("gc-refcount-too-small", "Assertion failed: (gc->gc.gc_refs != 0), function visit_decref, file Modules/gcmodule.c, line 360."),
    ("foreign-pointer-dangling", "segfault because the ctypes pointer refers to a bytes object that was already collected"),
    ("ctypes-pointer-truncated", "on x64 ctypes returns int by default, the handle gets truncated, access violation"),
    ("finalization-static-dtor", 'the script completes OK but then "Segmentation fault (core dumped)" is printed at the end'),
    ("finalization-static-dtor", "pytest: all 120 passed, then Segmentation fault (core dumped)"),
    ("finalization-static-dtor", "exit code 139 after the tests finished successfully"),
    ("daemon-thread-stdio-lock", "a daemon thread prints at exit and python aborts"),
    ("qt-platform-plugin", "From 6.5.0, xcb-cursor0 or libxcb-cursor0 is needed to load the Qt xcb platform plugin."),
    ("qt-no-application", "crash because a QWidget gets created before QApplication"),
    ("tk-wrong-thread", "crash with matplotlib TkAgg in a thread: Tcl_AsyncDelete"),
    ("gui-wrong-thread", "NSWindow should only be instantiated on the main thread!"),
    ("rust-panic", "panicked at 'attempt to subtract with overflow'"),
    ("unwinder-crash", "segfault in _Unwind_Find_FDE during exception handling"),
    ("array-view-out-of-bounds", "segfault when the index is out of bounds with boundscheck(False) in cython"),
    ("array-memory-gone", "np.ndarray over shared memory used after shm.close(), Segmentation fault"),
    ("write-to-readonly", "segfault when writing into a read-only numpy buffer"),
    ("jump-into-data", "kernel: [ 12.3] python3[123]: segfault at 7f1234567000 ip 00007f1234567000 sp 00007ffc12345678 error 15"),
    ("timeout-server-worker", "The worker gets killed because of gunicorn's default timeout of 30 s"),
    ("timeout-task", "The celery task gets killed by the hard time limit after 300 seconds"),
    ("timeout-slurm-job", "My job always dies with DUE TO TIME LIMIT although I asked for 24 hours"),
    ("host-oom-cgroup", "训练到一半内存爆了, 进程被kill"),
    ("host-oom-cgroup", "Task failed because of Command exited with return code -9 due to RAM"),
    ("cuda-device-assert", "I get a device-side assert when the label is 10"),
    ("cuda-oom", "THCudaCheck FAIL file=/pytorch/aten/src/THC/generic/THCStorage.cu line=58 error=2 : out of memory"),
    ("collective-mismatch", "rank 0 calls all_gather while rank 1 calls all_reduce so it deadlocks: ranks call different collectives"),
    ("collective-missing-rank", "The training hangs because one rank has fewer batches and never reaches the barrier"),
    ("dataloader-shm-exhausted", "No space left on device: /dev/shm is full while training with many workers, it crashes"),
    ("killed-by-sigterm", "torch.distributed.elastic.multiprocessing.api.SignalException: Process 40121 got signal: 1"),
    ("supervisor-worker-crashed", "Your session crashed. Automatically restarting."),
    ("killed-by-signal-9-unknown", "Training process was killed without throwing any problems (not RAM overflow problem)"),
    ("cuda-oom", "I keep getting CUDA OOM after epoch 3 and the training dies"),
    ("cuda-oom", "训练到一半显存不足, 程序崩溃"),
    ("cuda-oom", "RuntimeError: CUDA driver error: out of memory"),
    ("cuda-oom", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5432.00 MiB on device 0: cudaMalloc failed: out of memory"),
    ("cuda-illegal-access", "The real fault is CUDA error: an illegal memory access in the log of the server"),
    ("cuda-illegal-access", "dmesg shows Xid 31 for python whenever it crashes"),
    ("gpu-lost", "The training crashed, Xid 79 in the journal"),
    ("gpu-ecc-error", "node crashed with Xid 48 last night"),
    ("rocm-queue-abort", "HW Exception by GPU node-1 (Agent handle: 0x55) reason :GPU Hang\nAborted (core dumped)"),
    (
        "rendezvous-failed",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)",
    ),
    ("rendezvous-failed", "multi-node run always crashes with torch.distributed.DistStoreError: Socket Timeout"),
    (
        "rendezvous-failed",
        "INFO - Waiting in store based barrier to initialize process group for rank: 0, key: store_based_barrier_key:1 (world_size=2, worker_count=1, timeout=0:30:00)\nthe job hangs",
    ),
    ("import-order-libstdcxx", "segmentation fault on macOS, the bug does not occur if you import lightgbm before torch"),
    (
        "collective-mismatch",
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=101, OpType=ALLGATHER), but Rank 7 is running collective: CollectiveFingerPrint(SequenceNumber=0OpType=REDUCE)",
    ),
    ("dataloader-too-many-open-files", "RuntimeError: unable to open shared memory object </torch_20991_592962625> in read-write mode"),
    (
        "dataloader-too-many-open-files",
        "OSError: [Errno 24] Too many open files\nI added torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    (
        "host-oom-cgroup",
        "Container is running beyond physical memory limits. Current usage: 4.1 GB of 4 GB physical memory used; Killing container.",
    ),
    ("host-oom-cgroup", "=>> PBS: job killed: mem 16875312kb exceeded limit 16777216kb"),
    ("host-oom-cgroup", "1234567     train  OUT_OF_ME+    0:125"),
    (
        "host-oom-cgroup",
        "systemd-oomd[712]: Killed /user.slice/app-python.scope due to memory pressure for /user.slice being 66.78% > 50.00% for > 20s with reclaim activity",
    ),
    ("host-oom-cgroup", "Runtime exited with error: signal: killed\nREPORT RequestId: 6f7 Memory Size: 512 MB Max Memory Used: 512 MB"),
    ("host-oom-cgroup", "The worker was killed because it ran out of memory, 32 GB was not enough"),
    (
        "killed-by-signal-9-unknown",
        'Last State:    Terminated\n  Reason:      Error            # not "OOMKilled"\n  Exit Code:   137              # SIGKILL\n',
    ),
    (
        "killed-by-signal-9-unknown",
        "Exited with code 137\nHint: Exit code 137 typically means the process is killed because it was running out of memory",
    ),
    ("thread-limit", "runtime: failed to create new OS thread (have 11 already; errno=11)"),
    ("thread-limit", "pthread_create failed: Resource temporarily unavailable"),
    (
        "thread-limit",
        "F tensorflow/core/platform/default/env.cc:73] Check failed: ret == 0 (11 vs. 0)Thread tf_ creation via pthread_create() failed.\nAborted (core dumped)",
    ),
    ("thread-limit", "容器崩溃, 容器内的进程无法创建新的线程"),
    ("sigill-unsupported-cpu", "系统日志显示 trap invalid opcode, 你的 CPU 不支持 AVX2 指令集"),
    (
        "abi-undefined-symbol",
        'pyo3_runtime.PanicException: called `Result::unwrap()` on an `Err` value: DlSym { desc: "/p/_x.cpython-310-x86_64-linux-gnu.so: undefined symbol: _x_version" }',
    ),
    (
        "abi-undefined-symbol",
        "OSError: /p/libcublas.so.11: symbol cublasLtGetStatusString version libcublasLt.so.11 not defined in file libcublasLt.so.11 with link time reference",
    ),
    (
        "abi-undefined-symbol",
        "terminate called after throwing an instance of 'pybind11::error_already_set'\n  what():  ImportError: /p/unicodedata.cpython-310-x86_64-linux-gnu.so: undefined symbol: _PyUnicode_Ready",
    ),
    (
        "glog-check-failed",
        "F tensorflow/stream_executor/cuda/cuda_dnn.cc:222] Check failed: s.ok() could not find cudnnCreate in cudnn DSO; dlerror: /p/_pywrap.so: undefined symbol: cudnnCreate",
    ),
    (
        "import-order-libstdcxx",
        "segmentation fault (core dumped)\nI put the code `from tensorboardX import SummaryWriter` at the top and the problem was solved!",
    ),
    ("heap-corruption-invalid-free", "python2(92014) in free(): bogus pointer (double free?) 0xffffffffffffffff\nAbort trap (core dumped)"),
    ("null-deref", "PRIMARY_PROBLEM_CLASS:  NULL_POINTER_READ\nBUGCHECK_STR:  APPLICATION_FAULT_NULL_POINTER_READ"),
    ("null-deref", "postgres[xxxx]: segfault at 0 ip xxx sp xx error 4 in libc-2.19.so[xxxx+xxxx]"),
    ("windows-access-violation", "Unhandled exception: c0000005\nFault address: 7FFE7B586F3F"),
    ("stack-overflow", "segfault in some threads as stack space too small"),
    ("signal-without-handler", "subprocess.CalledProcessError: Command '['bash', 'run.sh']' died with <Signals.SIGPIPE: 13>."),
    ("macos-code-signature", "Exception Type:        EXC_CRASH (SIGABRT)\nTermination Reason:    DYLD, [0x5] Code Signature"),
    (
        "gui-wrong-thread",
        "*** Terminating app due to uncaught exception 'NSInternalInconsistencyException', reason: 'nextEventMatchingMask should only be called from the Main Thread!'",
    ),
    (
        "cxx-forced-unwind",
        '#2  __GI_raise (sig=sig@entry=6) at raise.c:51\n#3  0x00007f13e2960921 in __GI_abort () at abort.c:79\n#4  0x00007f13e29a99fa in __GI___libc_fatal (message=0x7f13e34cac70 "FATAL") at libc_fatal.c:191\n#5  0x00007f13e34c6fc0 in unwind_cleanup (reason=<optimized out>, exc=<optimized out>) at unwind.c:105',
    ),
    (
        "stack-overflow",
        "Stack overflow segfault with --no-locale\n#130715 0x00007f207766648e in errorCheck () from /p/multicorn.so\n#130716 0x00007f2077666612 in PyString_AsString () from /p/multicorn.so",
    ),
    (
        "qt-object-lifetime",
        "Stack trace of thread 65298:\n#0  0x00007f2a89cb0884 __pthread_kill_implementation (libc.so.6 + 0x8e884)\n#1  0x00007f2a89c4887f abort (libc.so.6 + 0x2687f)\nELF object binary architecture: AMD x86-64\n\nQThread: Destroyed while thread is still running\nAborted (core dumped)",
    ),
]

LOOK_ALIKES = [
    "docs: -fstack-protector detects stack smashing; enable it in CFLAGS",
    "Feature: raise a Python exception for uncaught C++ exceptions, see the docs of pybind11",
    "AbortController.abort() is called twice in React strict mode and requests are cancelled",
    "test_abort.py::test_calls_abort PASSED, 12 passed in 0.4s",
    "ZeroDivisionError: division by zero\nThe script stops with exit status 1.",
    "sqlite3.OperationalError: attempt to write a readonly database",
    "OSError: [Errno 30] Read-only file system: '/var/log/app.log'; the server exited",
    "ValueError: I/O operation on closed file.",
    "sqlite3.ProgrammingError: Cannot operate on a closed database.\nThe bot stopped.",
    "IndexError: index 5 is out of bounds for axis 0 with size 5\nThe process exited with 1",
    "sys.setrecursionlimit(5000) fixed the RecursionError",
    "ld.lld: error: undefined symbol: main\nclang: error: linker command failed with exit code 1",
    "All tests pass, but the CI job was cancelled after 6 hours",
    "Segmentation fault. My Celeron laptop has 4 GB RAM.",
    "with nogil: the loop runs 4 times faster",
    "terminating 4 worker processes; shutdown complete",
    "Our Fortran runtime errors are documented; ERROR STOP is one of them. The script exited.",
    "The crash is fixed: (gdb) bt\n#0  0x00007f10 in poll (fds=0x0, nfds=0, timeout=-1) at poll.c:29\n#1  0x00005f in main () at main.c:3",
    "error: static assertion failed: sizes differ (vector.h, line 12)",
    "Build aborted: cmake not found",
    "daemon threads are stopped abruptly at exit",
    "INFO - Waiting in store based barrier to initialize process group for rank: 0, key: store_based_barrier_key:1 (world_size=2, worker_count=2, timeout=0:30:00)",
    "[I ProcessGroupWrapper.cpp:562] [Rank 0] Running collective: CollectiveFingerPrint(SequenceNumber=1277, OpType=ALLREDUCE)",
    "Memory limit of the service: 2 GB. The job was killed by its owner.",
    "We reached 137 stars; the memory limit is documented in README.md",
    "Reason: Completed\nExit Code: 0\nOOMKilled: false",
    "REPORT RequestId: 6f7 Memory Size: 512 MB Max Memory Used: 120 MB",
    "JobID State ExitCode\n1234567 COMPLETED 0:0",
    "INFO: Xid 13 is documented in the manual, nothing happened here",
    "torch.multiprocessing.set_sharing_strategy('file_system')  # in conftest.py\n12 passed in 3.2s",
    "Please put the import at the top of the file (E402)",
    "ImportError: libfoo.so.1: cannot open shared object file: No such file or directory",
    "RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode: Permission denied",
    "The thread pool is started by pthread_create and ends with the process",
    "int main() { pthread_create(&t, 0, f, 0); } // returns EAGAIN if the system has no resources",
    "[info] GPU oom score adjusted",
    "segfault at the beginning of the file list\nall files were written",
    "Code Signature: valid on disk, satisfies its Designated Requirement",
    "#10 0x00007f13e29a99fa is the id of the tenth item (see the list)",
]


NOTHING_HAPPENED = [
    '# Troubleshooting\nIf the pod shows `OOMKilled` and exit code 137, raise `resources.limits.memory`.\nIf you see "CUDA out of memory", reduce the batch size.',
    "feat: detect OOMKilled pods and report them in the UI",
    'def is_oom(e): return "CUDA out of memory" in str(e)',
    'try:\n    run()\nexcept RuntimeError as e:\n    if "out of memory" in str(e):\n        torch.cuda.empty_cache()',
    "INFO gunicorn: Handling signal: term\nINFO Worker exiting (pid: 14)\nINFO Shutting down: Master",
    "[2024-01-01 10:00:00 +0000] [1] [INFO] Handling signal: hup\n[2024-01-01 10:00:00 +0000] [1] [INFO] Hang up: Master\n[2024-01-01 10:00:00 +0000] [8] [INFO] Worker exiting (pid: 8)",
    "celery worker: Warm shutdown (MainProcess)",
    "We should handle BrokenProcessPool and restart the pool automatically.",
    "Add support for detecting Xid 79 (GPU has fallen off the bus) errors in the health checker",
    "How do I set the NCCL timeout? I want to raise it from 30 minutes to 2 hours.",
    "Question: what does `Watchdog caught collective operation timeout` mean in general?",
    "NCCL INFO Connected all rings\nNCCL INFO comm 0x55 rank 0 nranks 2 - Init COMPLETE",
    "W1128 torch/distributed/run.py:757] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
    'ulimit -n 65535  # avoids "Too many open files"\nall tests passed',
    "docs: mention set_sharing_strategy('file_system') in the FAQ",
    "UserWarning: This DataLoader will create 8 worker processes in total. Our suggested max number of worker in current system is 4, which is smaller than what this DataLoader is going to create. Please be aware that excessive worker creation might get DataLoader running slow or even freeze",
    "nvidia-smi\n| 0  NVIDIA A100  On | 00000000:3B:00.0 Off | 0 |\n| N/A 30C P0 52W / 400W | 10MiB / 40960MiB | 0% Default |\nVolatile Uncorr. ECC 0",
    "Slurm job finished: State COMPLETED ExitCode 0:0 MaxRSS 12G",
    "Release 2.1: fixed a race where a worker was terminated with SIGTERM during reload",
    "time limit: the job was submitted with --time=24:00:00",
    "Memory cgroup: limit 4Gi, usage 1.2Gi, failcnt 0",
    'raise MemoryError("the cache limit is exceeded")',
    "MemoryError: Unable to allocate 7.45 GiB for an array with shape (1000000000,) and data type float64",
    "Error R14 (Memory quota exceeded)",
    "Exceeded 90% of memory; spilling to disk",
    "distributed.worker - WARNING - Memory use is high but worker has no data to store to disk. Perhaps some other process is leaking memory?",
    "Liveness probe failed: HTTP probe failed with statuscode: 500",
    "Node pool upgraded, pods were evicted gracefully",
    "[info] worker 3 restarted after max_requests",
    "kernel: perf: interrupt took too long (2501 > 2500), lowering kernel.perf_event_max_sample_rate",
    "kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.104.05",
    "RuntimeError: CUDA error: invalid device ordinal",
    "AssertionError: Torch not compiled with CUDA enabled",
    "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
    "pthread_create is called with a 64 MB stack because the default stack size is too small for deep recursion",
    "The segment allocator grows memory when the memory limit is reached",
]
"""Healthy logs, documentation, wishes, code and ordinary exceptions: a finding may be possible, never more."""


@pytest.mark.parametrize(("expected", "text"), FORMS, ids=[f"{number}-{form[0]}" for number, form in enumerate(FORMS)])
def test_form(expected: str, text: str) -> None:
    verdict = judged(Report(url="", text=text + "\n", expect=expected))
    assert (verdict.outcome, verdict.taken) == ("first", expected)


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_nothing_is_claimed_of_a_look_alike(text: str) -> None:
    verdict = judged(Report(url="", text=text + "\n", crash=False))
    assert (verdict.taken, verdict.false) == (None, ())


@pytest.mark.parametrize("text", NOTHING_HAPPENED, ids=range(len(NOTHING_HAPPENED)))
def test_nothing_is_claimed_where_nothing_happened(text: str) -> None:
    assert judged(Report(url="", text=text + "\n", crash=False)).false == ()
