"""Causes that many programs tell in the same words: failed imports, the manual of CUDA, sandboxes, init systems, MPI."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crashkit.model import Crash
from crashkit.report.wording import native_at

DLOPEN = "(mach-o file, but is an incompatible architecture (have 'x86_64', need 'arm64e'))"
CHROMIUM = "../../sandbox/linux/seccomp-bpf-helpers/sigsys_handlers.cc:**CRASHING**:seccomp-bpf failure in syscall 0332"
DEVICE = "ErrorX: While executing a kernel, the device encountered a load or store instruction on"
SYSTEMD = """Active: failed (Result: signal) since Sat 2017-06-17 21:40:28 UTC; 7s ago
 Main PID: 18316 (code=killed, signal=SEGV)"""
MPI = """Abort(1090959) on node 0 (rank 0 in comm 0): Fatal error in {}: Other MPI error, error stack:
forrtl: severe (174): SIGSEGV, segmentation fault occurred"""
HYDRA = "[proxy:0:0@cpu-6-2.local] HYD_pmcd_pmip_control_cmd_cb (./pm/pmiserv/pmip_cb.c:883): assert (!closed) failed"
PETSC = "[0]PETSC ERROR: Caught signal number "
GDB = "Program received signal SIGSEGV, Segmentation fault.\n(gdb) bt\n"
LINK = "https://github.com/owner/project/issues/"
PHYSX = "/buildAgent/work/9/source/gpunarrowphase/src/PxgNarrowphaseCore.cpp (2408) : internal error : memcpy failed fail!"

ABORTED = (
    "Program terminated with signal SIGABRT, Aborted.\n#0  0x00007f82eea42476 in raise () from /lib/libc.so.6\n"
    "#1  0x00007f82eea287f3 in abort () from /lib/libc.so.6\n"
)
FIRST = {
    "ImportError: libGL.so.1: cannot open shared object file: No such file or directory": ("library-not-loaded", "possible"),
    "[ERROR] Runtime.ImportModuleError: Unable to import module 'app': libpython2.7.so.1.0: cannot open shared object file: "
    "No such file or directory": ("library-not-loaded", "possible"),
    "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object file": (
        "library-not-loaded",
        "possible",
    ),
    f"Error: dlopen(/venv/libcapstone.dylib, 0x0006): tried: '/venv/libcapstone.dylib' {DLOPEN}": (
        "library-not-loaded",
        "possible",
    ),
    '"errorMessage": "Unable to import module \'app\': libc.musl.so.1: cannot open shared object file: No such file or directory",': (
        "library-not-loaded",
        "possible",
    ),
    "OSError: /opt/libfoo.so: wrong ELF class: ELFCLASS32": ("library-not-loaded", "possible"),
    "OSError: libfoo.so.1: cannot open shared object file: No such file or directory": ("library-not-loaded", "possible"),
    f"ImportError: dlopen(/app/solver.cpython-310-darwin.so, 0x0002): tried: '/app/solver.so' {DLOPEN}": ("library-not-loaded", "possible"),
    "ImportError: DLL load failed while importing _ssl: The specified module could not be found.": ("library-not-loaded", "possible"),
    f"GPU 4: Critical error in main loop {DEVICE} an invalid memory address.": ("cuda-illegal-access", "certain"),
    f"{DEVICE} a memory address which is not aligned.": ("cuda-misaligned-address", "certain"),
    "ErrorLaunchFailed: An exception occurred on the device while executing a kernel.": ("cuda-launch-failure", "likely"),
    "ErrorMemoryAllocation: The API call failed because it was unable to allocate enough memory to perform the requested operation.": (
        "cuda-oom",
        "likely",
    ),
    "ErrorNoBinaryForGPU: This indicates that there is no kernel image available that is suitable for the device.": (
        "cuda-no-kernel-image",
        "certain",
    ),
    f"{PHYSX} 700": ("cuda-illegal-access", "certain"),
    f"{PHYSX}\n  700\nSegmentation fault (core dumped)": ("cuda-illegal-access", "possible"),
    f"{CHROMIUM}\nReceived signal 11 SEGV_MAPERR 00000589c14c": ("seccomp-denied", "likely"),
    "Fatal error. System.AcccessViolation: Attempted to read or write protected memory.": ("windows-access-violation", "certain"),
    SYSTEMD: ("supervisor-worker-crashed", "possible"),
    "/run.sh: line 118:   187 Segmentation fault      /usr/bin/node server.js": ("supervisor-worker-crashed", "possible"),
    "   94 Segmentation fault      | tempio\ncont-init: info: ssh.sh exited 139": ("supervisor-worker-crashed", "possible"),
    MPI.format("PMPI_Init"): ("mpi-fatal-error", "possible"),
    "*** SIGSEGV (@(nil)), see gl__41#s15 received by PID 11743 (TID 12350) on cpu 17; stack trace: ***\n"
    "    @     0x7facbd838294        976  (unknown)": ("null-deref", "likely"),
    "Backtrace:\n/venv/site-packages/psycopg2/.libs/./libcrypto-1e9dee74.so.1.0.2n(+0x748be)[0x7f1780c408be]\nSegmentation fault": (
        "duplicate-openssl",
        "possible",
    ),
    "Process 1 dies.\nMemoryError": ("memory-refused", "possible"),
    "MemoryError: Unable to allocate array with shape (110011, 110011, 3) and data type float64": ("memory-refused", "possible"),
    "RuntimeError: DataLoader worker (pid 34569) is killed by signal": ("dataloader-worker-crashed", "possible"),
    "kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 1 caused by previous Xid 149": ("gpu-nvlink-error", "likely"),
    "Error : AH00052 -child pid exit signal segment ion fault": ("supervisor-worker-crashed", "likely"),
    "INIT_START\nRequestId: 7 Error: Runtime exited with error: signal: segmentation fault (core dumped)\nRuntime.ExitError": (
        "supervisor-worker-crashed",
        "certain",
    ),
    "web_1 | started\nproject_web_1 exited with code 139": ("supervisor-worker-crashed", "possible"),
    "The spark driver has stopped unexpectedly and is restarting.": ("supervisor-worker-crashed", "likely"),
    "AbortedError: Horovod has been shut down. This has been caused by an exception on one of the ranks": ("job-rank-failed", "possible"),
    "RuntimeError: [1] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d key-value store by key '0', but "
    "store->get('0') got error: Timeout": ("rendezvous-failed", "likely"),
    "rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: No such file or directory for GPU arch : gfx1036\n"
    "Aborted (core dumped)": ("cuda-no-kernel-image", "likely"),
    "Unhandled exception. System.DllNotFoundException: Unable to load shared library 'onnxruntime' or one of its dependencies.": (
        "library-not-loaded",
        "likely",
    ),
    "#0  0x0000000000000000 in ?? ()\n#1  0x00007fe10ddbab8f in draw () from /usr/lib/libQt5Gui.so.5": ("null-function-call", "possible"),
    f"{GDB}#0  0x0000000000009e4e in ?? ()\n#1  0x00007f1fa65dac33 in manage (data=0x7f1fabb964f8) at m.c:74": (
        "jump-to-unmapped",
        "likely",
    ),
    f"{GDB}#0 __strlen_avx2 () at strlen-avx2.S:65\n{LINK}1 0x00007fffef994982 in _IO_puts (str=0x0) at ioputs.c:35": (
        "null-deref",
        "possible",
    ),
    "(lldb) bt\n* thread #2, queue = 'main', stop reason = signal SIGABRT\n"
    "  * frame #0: 0x00007ff80d5c5196 libsystem_kernel.dylib`__pthread_kill + 10\n"
    "    frame #1: 0x00007ff80d523b45 libsystem_c.dylib`abort + 123\n"
    "    frame #2: 0x000000010313572e libffi.8.dylib`dlfree + 2991\n"
    "    frame #3: 0x00000001031cf5e0 _ctypes.cpython-312-darwin.so`CThunkObject_dealloc + 41": ("heap-corruption-invalid-free", "likely"),
    f"{PETSC}13 Broken Pipe\napplication called MPI_Abort(MPI_COMM_WORLD, 5) - process 0": ("handler-ended-process", "possible"),
    "python: posixio.c:342: px_rel: Assertion `a <= b' failed.\nOr:\n/build.sh: line 57:  1696 Segmentation fault      (core dumped)": (
        "c-assertion-failed",
        "possible",
    ),
    "kernel: python[2862]: segfault at bf95a000 ip b748bae6 sp bf957d88 error 6 in libc-2.13.so[b7414000+176000]": (
        "unmapped-access",
        "likely",
    ),
    "kernel: python[2862]: segfault at bf95a010 ip b748bae6 sp bf95a010 error 6 in libc-2.13.so[b7414000+176000]": (
        "stack-overflow",
        "certain",
    ),
    "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007fb9015dd740 (most recent call first):\n"
    '  File "<frozen importlib._bootstrap>", line 219 in _call_with_frames_removed\n'
    '  File "<frozen importlib._bootstrap_external>", line 922 in create_module\n'
    '  File "<frozen importlib._bootstrap>", line 571 in module_from_spec\n  File "/srv/app.py", line 3 in <module>': (
        "library-init-crash",
        "possible",
    ),
    "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007fb9015dd740 (most recent call first):\n"
    '  File "/usr/lib/python3.9/ctypes/__init__.py", line 374 in __init__\n  File "/srv/app.py", line 3 in <module>': (
        "library-init-crash",
        "possible",
    ),
    "Thread 0 Crashed:: Dispatch queue: com.apple.main-thread\n"
    "0   libsystem_kernel.dylib  0x000000019ffa8cec __pthread_kill + 8\n"
    "1   libsystem_c.dylib       0x000000019ff21864 abort + 104\n"
    "2   libc++abi.dylib         0x000000019ff99cf8 abort_message + 132\n"
    "3   libobjc.A.dylib         0x000000019fe836c8 _objc_terminate() + 144\n"
    "4   libc++abi.dylib         0x000000019ff990e0 std::__terminate(void (*)()) + 20\n"
    "5   libc++abi.dylib         0x000000019ff9be5c __cxa_throw + 140\n"
    "6   libobjc.A.dylib         0x000000019fe80d30 objc_exception_throw + 360\n"
    "7   com.apple.CoreFoundation 0x00000001a01e1020 -[NSObject(NSObject) doesNotRecognizeSelector:] + 144": (
        "objc-uncaught-exception",
        "certain",
    ),
    f"{GDB}#0  0x0000000000000030 in  ()\n#1  0x00007ffff0dc8a45 in wxEvtHandler::Unlink() () at /usr/lib/libwx_baseu-3.0.so.0": (
        "null-function-call",
        "likely",
    ),
    "Fatal Python error: Segmentation fault\n\nCurrent thread 0x0000000200db2240 (most recent call first):\n"
    '  File "/srv/app.py", line 132 in write\n\nCurrent thread\'s C stack trace (most recent call first):\n'
    '  Binary file "/usr/lib/libpython3.14.dylib", at _Py_DumpStack+0x44 [0x10488d5f4]\n'
    '  Binary file "/usr/lib/libpython3.14.dylib", at faulthandler_fatal_error+0x208 [0x10488d5f4]\n'
    '  Binary file "/usr/lib/system/libsystem_platform.dylib", at _sigtramp+0x38 [0x18a7b5584]\n'
    '  Binary file "/usr/lib/system/libsystem_malloc.dylib", at tiny_malloc_should_clear+0x110 [0x18a5c5584]\n'
    '  Binary file "/usr/lib/system/libsystem_malloc.dylib", at szone_malloc_should_clear+0x54 [0x18a5c5584]': (
        "heap-corruption-overflow",
        "likely",
    ),
    "* thread #1, stop reason = signal SIGABRT\n  * frame #0: 0x1f1 libsystem_kernel.dylib`__pthread_kill + 10\n"
    "    frame #1: 0x1f2 libsystem_c.dylib`abort + 123\n    frame #2: 0x1f3 libobjc.A.dylib`_objc_terminate() + 96\n"
    "    frame #3: 0x1f4 libc++abi.dylib`std::__terminate(void (*)()) + 8\n    frame #4: 0x1f4 libc++abi.dylib`__cxa_rethrow + 99\n"
    "    frame #5: 0x1f5 libobjc.A.dylib`objc_exception_rethrow + 37": ("cxx-uncaught-exception", "certain"),
    "undefined symbol: cuDeviceGetCount\nThat is how training ends in the container:": ("abi-undefined-symbol", "possible"),
    'I saw "The kernel appears to have died. It will restart automatically." In a terminal:\n>>> f()\nSegmentation fault (core dumped)': (
        "supervisor-worker-crashed",
        "possible",
    ),
    "It segfaults: the function is variadic, and has no argtypes.": ("ctypes-pointer-truncated", "possible"),
    f"{ABORTED}#2  0x00007f82eb912b43 in g_logv () from /lib/libglib-2.0.so.0\n"
    "#3  0x00007f82eb912c43 in gdk_x_error () from /lib/libgdk-3.so.0": ("glib-error", "certain"),
    "Program terminated with signal SIGTRAP, Trace/breakpoint trap.\n"
    "#0  0x00007f82eb912b43 in g_log_structured_array () from /lib/libglib-2.0.so.0": ("glib-error", "certain"),
    f"{ABORTED}#2  0x00007f82eb912b43 in ?? () from /usr/share/app/libglib-2.0.so.0\n"
    "#3  0x00007f82eb912c43 in g_main_context_dispatch () from /usr/share/app/libglib-2.0.so.0": ("glib-error", "likely"),
    f"{ABORTED}#2  0x00007f82eb912b43 in g_assertion_message_expr () from /lib/libglib-2.0.so.0": ("c-assertion-failed", "likely"),
    "--- SIGSEGV {si_signo=SIGSEGV, si_code=SI_KERNEL, si_addr=0} ---\n+++ killed by SIGSEGV +++\n\nIs that a null pointer?": (
        "wild-pointer",
        "likely",
    ),
    "QThread: Destroyed while thread is still running\nMakefile:6: recipe for target 'run' failed\nmake: *** [run] Segmentation fault": (
        "qt-object-lifetime",
        "possible",
    ),
    "OpenBLAS warning: precompiled NUM_THREADS exceeded, adding auxiliary array for thread metadata.\nSegmentation fault (core dumped)": (
        "openblas-memory-regions",
        "possible",
    ),
    "homeassistant | [14:05:54] INFO: Home Assistant Core finish process received signal 11": ("supervisor-worker-crashed", "certain"),
    "[14:05:54] INFO: Service Z-Wave JS exited with code 256 (by signal 11)": ("supervisor-worker-crashed", "certain"),
    "Faulting module name: python27.dll, version: 2.7.3150.1013\nException code: 0x40000015\nFault offset: 0x0000000000141b3a": (
        "self-abort",
        "possible",
    ),
    "Problem signature:\n  Problem Event Name:   BEX\n  Application Name: python.exe\n  Exception Code:   c0000417": (
        "libc-fatal",
        "likely",
    ),
    "Process finished with exit code 3221226519 (0xC0000417)": ("libc-fatal", "likely"),
    "OSError: /tmp/tmpy4lr98to/libespeak-ng.so.1.1.49: cannot change memory protections": ("library-not-loaded", "possible"),
    "ImportError: /x/libfoo.so: cannot restore segment prot after reloc: Permission denied": ("library-not-loaded", "possible"),
    "ImportError: /x/libfoo.so: object file has no dynamic section": ("library-not-loaded", "possible"),
    "ImportError: /x/libfoo.so: cannot enable executable stack as shared object requires: Invalid argument": (
        "executable-stack",
        "certain",
    ),
    "ImportError: /x/libfoo.so: undefined symbol: gtk_init": ("abi-undefined-symbol", "possible"),
    "Message: 'Received sigquit from a child proces. It usually means the child failed.'": ("supervisor-worker-crashed", "possible"),
    "Program received signal SIGSEGV, Segmentation fault.\n0x00007ffff1abae20 in PyArray_API () from /venv/numpy/core/multiarray.so": (
        "jump-into-data",
        "likely",
    ),
    "[n:33] *** Process received signal ***\n[n:33] Signal: Floating point exception (8)\n"
    "[n:33] Signal code: Floating point divide-by-zero (3)": ("sigfpe-floating-point", "likely"),
    "[n:33] *** Process received signal ***\n[n:33] Signal: Floating point exception (8)\n[n:33] Signal code: Integer divide-by-zero (1)": (
        "sigfpe-integer-divide",
        "likely",
    ),
    "forrtl: error (73): floating divide by zero": ("sigfpe-floating-point", "likely"),
    "#0 0x00007f1 in _int_malloc () from /lib64/libc.so.6\n#1 0x00007f2 in malloc () from /lib64/libc.so.6\n"
    "#2 0x00007f3 in build_index () from /x/libfaiss.so": ("heap-corruption-overflow", "possible"),
    "GPU memory allocation of 8000000000 bytes failed": ("rust-alloc-failed", "possible"),
    "Assertion 's' failed at pulse/stream.c:1234, function pa_stream_get_time().": ("c-assertion-failed", "possible"),
    "Assertion 's' failed at pulse/stream.c:1234, function pa_stream_get_time(). Aborting.": ("c-assertion-failed", "certain"),
    "x.py:13: UserWarning: Failed to load image Python extension: '/v/image.so: undefined symbol: _ZN3c106detail'If you don't plan on "
    "using image functionality from `torchvision.io`, you can ignore this warning.": ("abi-undefined-symbol", "possible"),
    "[W502 socket.cpp:752] [c10d] The client socket cannot be initialized to connect to [localhost]:29500 (errno: 97 - Address family not "
    "supported by protocol).": ("rendezvous-failed", "possible"),
    'Process SpawnProcess-1:\nTraceback (most recent call last):\n  File "x.py", line 3, in <module>\n    main()\nAttributeError: Can\'t '
    "get attribute 'f'\nBrokenProcessPool: A process in the process pool was terminated abruptly while the future ran.": (
        "supervisor-worker-crashed",
        "possible",
    ),
    'Traceback (most recent call last):\n  File "x.py", line 3, in <module>\n    main()\nFileNotFoundError: a.dat\n'
    "QThread: Destroyed while thread is still running\nAborted (core dumped)": ("qt-object-lifetime", "likely"),
    "[Recovery] 2024/05/02 - 12:00:00 panic recovered:\npanic: runtime error: integer divide by zero\ngoroutine 7 [running]:": (
        "go-panic",
        "possible",
    ),
    "panic: runtime error: integer divide by zero\n\ngoroutine 1 [running]:": ("go-panic", "certain"),
    "libGL error: MESA-LOADER: failed to open iris: /opt/conda/lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by "
    "/lib/x86_64-linux-gnu/libLLVM-15.so.1)": ("libstdcxx-too-old", "possible"),
    "--- FAIL: TestX (0.00s)\npanic: runtime error: index out of range [recovered]\n\tpanic: runtime error: index out of range\n\n"
    "goroutine 1 [running]:": ("go-panic", "certain"),
    "foo: foo.c:12: bar: Assertion `x > 0' failed.\nAborted (core dumped)\nrunning second binary\n[  PASSED  ] 3 tests.": (
        "c-assertion-failed",
        "certain",
    ),
    "slurmstepd: error: Step 6111.0 exceeded memory limit (10241200 > 10240000), being killed": ("host-oom-cgroup", "likely"),
    "Fatal signal 11 (SIGSEGV), code 2 (SEGV_ACCERR), fault addr 0x0 in tid 1 (python)": ("null-deref", "certain"),
    "Fatal error in cpyext, CPython compatibility layer, calling PyObject_Call\nEither report a bug or consider not using this particular "
    "extension\n<SystemError object at 0x7f93faba64a8>\nRPython traceback:\nSegmentation fault (core dumped)": (
        "fatal-python-error",
        "certain",
    ),
    "python: /project/lib/Dialect/TritonNvidiaGPU/Transforms/FenceInsertion.cpp:113: bool dependOn(mlir::Value): Assertion "
    '`false && "no WhileOp"\' failed.\nAborted (core dumped)': ("triton-compile-crash", "likely"),
    "F driver/usb/usb_driver.cc:406] HandleEvent failed. USB transfer error 1 [LibUsbDataInCallback]": ("glog-check-failed", "certain"),
    "QObject::moveToThread: Current thread (0x55af5ad9b920) is not the object's thread (0x55af5cb91700).\n"
    "Cannot move to target thread (0x55af5ad9b920)\nSegmentation fault (core dumped)": ("gui-wrong-thread", "possible"),
    'Traceback (most recent call last):\n  File "canvas.py", line 530, in paintEvent\n    p.drawLine(self.x, 0, self.x, self.height)\n'
    "ValueError: x\nAborted (core dumped)": ("pyqt-unhandled-exception", "possible"),
    'Traceback (most recent call last):\n  File "canvas.py", line 530, in draw\n    p.drawLine(self.x, 0, self.x, self.height)\n'
    "TypeError: arguments did not match any overloaded call:\nAborted (core dumped)": ("pyqt-unhandled-exception", "possible"),
    "#0  __new_sem_wait (sem=sem@entry=0x0) at sem_wait.c:39\n"
    "#1  0x00007ffff7bfe482 in PyThread_acquire_lock_timed (lock=0x0, microseconds=-1, intr_flag=0) at Python/thread_pthread.h:459\n"
    "#2  0x00007ffff7c5c334 in new_threadstate (interp=0x0, init=init@entry=1) at Python/pystate.c:613": (
        "python-not-initialized",
        "possible",
    ),
    '*** Aborted at 1627296117 (unix time) try "date -d @1627296117" if you are using GNU date ***\n'
    "*** SIGSEGV (@0x2b77d8087e00) received by PID 15991 (TID 0x2b78aa92c700) from PID 18446744073039019520; stack trace: ***\n"
    "    @     0x2b77d87dd6d0 (unknown)\n    @     0x2b77d9cf8b6b ciBytecodeStream::get_method()\n"
    "    @     0x2b77d9c263e3 GraphBuilder::invoke()": ("jvm-crash", "likely"),
    " ** On entry to cusparseSpMM_bufferSize() parameter number 1 (handle) had an illegal value\nSegmentation fault": (
        "cuda-cublas-status",
        "possible",
    ),
}
RANKS = "".join(
    f'[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "train.py", line 3, in <module>\n[rank{rank}]:     main()\n'
    f"[rank{rank}]: {{}}\n"
    for rank in (0, 1)
)
NOT = {
    "Thread 1 received signal SIGSEGV, Segmentation fault.\n#0  0x00007f12 in GraphBuilder::addNode(int) () from /opt/libgraph.so\n"
    "#1  0x00007f13 in GraphBuilder::run(int) () from /opt/libgraph.so": "jvm-crash",
    'Traceback (most recent call last):\n  File "/site/wx/core.py", line 3, in draw\n    main()\n'
    "TypeError: arguments did not match any overloaded call:\nAborted (core dumped)": "pyqt-unhandled-exception",
    "grep: F src/a.cc:12] was seen 3 times\nSegmentation fault": "glog-check-failed",
    RANKS.format(
        "FileNotFoundError: [Errno 2] No such file or directory: 'train.bin'",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2006, remote process exited or there was a network error",
    ): "nccl-remote-error",
    RANKS.split("[rank1]")[0].format("ZeroDivisionError: division by zero")
    + "[rank1]:[E502 Process.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, "
    "Timeout(ms)=600000) ran for 600012 milliseconds before timing out.": "nccl-watchdog-timeout",
    "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\nKeyError: 'x'\n"
    "Error: CUDA error: driver shutting down": "finalization-cuda-teardown",
    "OperationFailure: Exceeded memory limit for $group, but didn't allow external sort.\nSegmentation fault": "host-oom-cgroup",
    "HDFS_SCAN_NODE (id=0) exceeded its memory limit\nSegmentation fault": "host-oom-cgroup",
    "ray.exceptions.ActorDiedError: The actor died because its owner has died.": "supervisor-worker-crashed",
    'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\nValueError: bad label 7\n'
    "RuntimeError: DataLoader worker (pid 123) is killed by signal: Terminated.": "killed-by-sigterm",
    "conftest: error while loading shared libraries: libmpi.so.40: cannot open shared object file: No such file or directory\n"
    "checking for cblas... no": "library-not-loaded",
    "Unable to determine the device handle for GPU 0000:01:00.0: Insufficient Permissions": "gpu-lost",
    "Fatal error in PMPI_Recv: Message truncated, error stack:": "collective-mismatch",
    "*** An error occurred in MPI_Recv\n*** MPI_ERR_TRUNCATE: message truncated\n*** MPI_ERRORS_ARE_FATAL": "collective-mismatch",
    "[33:44:0502/100000.123:ERROR:content/web_contents_impl.cc:3333] Check failed: false.": "glog-check-failed",
    "Assertion failed: (m_window), function -[QNSView initWithCocoaWindow:], file qnsview.mm, line 50.": "mps-assertion",
    "[n:33] *** Process received signal ***\n[n:33] Signal: Floating point exception (8)\n"
    "[n:33] Signal code: Floating point divide-by-zero (3)": "sigfpe-integer-divide",
    "#0  Foam::error::printStack(Foam::Ostream&) at ??:?\n#1  Foam::sigFpe::sigHandler(int) at ??:?\n"
    "#2  ? in /lib/x86_64-linux-gnu/libc.so.6\n#3  Foam::divide(Foam::Field<double>&) at ??:?\nFloating point exception (core dumped)": (
        "sigfpe-integer-divide"
    ),
    f"{ABORTED}#2  0x00007f8 in std::terminate () from /lib/libstdc++.so.6\n#3  0x00007f8 in __cxa_throw () from /lib/libstdc++.so.6\n"
    "#4  0x00007f9 in std::thread::_M_start_thread () from /lib/libstdc++.so.6": "cxx-terminate-no-exception",
    "[BUG] Dataloader hangs with 8 workers\n\nruby 3.1.2p20 (2022-04-12 revision 4491bb740a) [x86_64-linux-gnu]": "runtime-fatal-error",
    "OpenBLAS warning: precompiled NUM_THREADS exceeded, adding auxiliary array for thread metadata.": "openblas-memory-regions",
    "[14:05:54] INFO: Service Z-Wave JS exited with code 0 (by signal 15)": "supervisor-worker-crashed",
    f"{ABORTED}#2  0x00007f82eb912b43 in draw () from /lib/libmine.so.0\n"
    "#3  0x00007f82eb912c43 in g_main_context_dispatch () from /lib/libglib-2.0.so.0": "glib-error",
    "distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting\n"
    "distributed.nanny - WARNING - Worker process 2969 was killed by signal 15": "killed-by-sigterm",
    "python: /project/lib/Dialect/Affine/Loops.cpp:113: bool dependOn(mlir::Value): Assertion `x' failed.\nAborted (core dumped)": (
        "triton-compile-crash"
    ),
    "E driver/usb/usb_driver.cc:406] HandleEvent failed. USB transfer error 1\nSegmentation fault": "glog-check-failed",
    'Traceback (most recent call last):\n  File "canvas.py", line 530, in draw\n    p.drawLine(self.x, 0, self.x, self.height)\n'
    "ValueError: x\nAborted (core dumped)": "pyqt-unhandled-exception",
    "#0  __new_sem_wait (sem=sem@entry=0x0) at sem_wait.c:39\n"
    "#1  0x00007ffff7c5c334 in new_threadstate (interp=0x5581, init=init@entry=1) at Python/pystate.c:613": "python-not-initialized",
    " ** On entry to DGETRF parameter number 4 had an illegal value\nSegmentation fault": "cuda-cublas-status",
    "* thread #1, queue = 'com.apple.main-thread', stop reason = signal SIGSTOP\n"
    "  * frame #0: 0x00007fff6c1b1b5e libsystem_malloc.dylib`tiny_malloc_from_free_list + 12\n"
    '    frame #1: 0x0000000100003f20 MyApp`parse(text="x") at parse.c:9': "heap-corruption-overflow",
    "SIGSEGV\n#0  0x00000044 in Reset_Handler ()\n#1  0x000001f8 in main ()": "null-function-call",
    "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007fb9015dd740 (most recent call first):\n"
    '  File "/srv/plugin.py", line 9 in <module>\n  File "<frozen importlib._bootstrap>", line 219 in _call_with_frames_removed\n'
    '  File "<frozen importlib._bootstrap_external>", line 850 in exec_module': "library-init-crash",
    f"{GDB}#0  0x0000000000000130 in  ()\n#1  0x00007ffff0dc8a45 in draw() () at /usr/lib/libwx_baseu-3.0.so.0": "null-function-call",
    "AH00052: child pid 77 exit signal Terminated (15)": "supervisor-worker-crashed",
    f"Received signal 11 SEGV_MAPERR 000000000008\n{CHROMIUM.replace('0332', 'nr=0x25')}": "seccomp-denied",
    f'{CHROMIUM}\nFatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n  File "a.py", line 3 in f': (
        "seccomp-denied"
    ),
    "docs say: `**CRASHING**:seccomp-bpf failure in syscall 0230` appears when glibc is too new": "seccomp-denied",
    "Fatal error in MPI_Init: Other MPI error, error stack:\nsrun: error: n1: task 0: Segmentation fault": "mpi-fatal-error",
    f"{PETSC}11 SEGV: Segmentation Violation\n{PETSC}13 Broken Pipe": "handler-ended-process",
    "- 700: While executing a kernel, the device encountered a load or store instruction on an invalid memory address.": (
        "cuda-illegal-access"
    ),
    "note: no kernel image available that is suitable for the device: this warning is ignored": "cuda-no-kernel-image",
    "#0 0x00001234 in ?? ()\n#1 0x20001000 in ?? ()\n#2 0x20001100 in main ()": "jump-to-unmapped",
    "java.lang.UnsatisfiedLinkError: /tmp/libx.so: libgomp.so.1: cannot open shared object file: No such file or directory": (
        "library-not-loaded"
    ),
    "WARNING: OSError: libsox.so: cannot open shared object file: No such file or directory. sox backend disabled": "library-not-loaded",
    "WARNING - ImportError: DLL load failed: The specified module could not be found. Using numpy instead.": "library-not-loaded",
    f"{PETSC}11 SEGV\n[0]PETSC ERROR: Run with -malloc_debug to check if memory corruption is causing the crash.\n"
    "[0]PETSC ERROR: or see https://petsc.org/release/faq/#valgrind": "heap-corruption-overflow",
    "We gave it ample memory. A server that starts processes in an endless loop gives exit code 137": "busy-loop",
    f"{HYDRA}\nEXIT CODE: 9": "c-assertion-failed",
    "Every few hours a worker dies. It uses 1 of 31 GB, and dmesg has no entry of the OOM killer.": "host-oom-cgroup",
    MPI.format("PMPI_Recv"): "mpi-fatal-error",
    "Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file or "
    "directory\nSegmentation fault": "library-not-loaded",
}


@pytest.mark.parametrize(("text", "expected"), FIRST.items())
def test_the_cause_is_named_first(told: Callable[[str], Crash], text: str, expected: tuple[str, str]) -> None:
    first = told(text).findings[0]
    assert (first.id, first.confidence) == expected


@pytest.mark.parametrize(("text", "other"), NOT.items())
def test_what_is_no_cause_of_it(told_ids: Callable[[str], list[str]], text: str, other: str) -> None:
    assert other not in told_ids(text)


def test_whom_mpd_killed_because_another_rank_had_failed(told: Callable[[str], Crash]) -> None:
    ends = [
        f"rank {rank} in job 1  n1_40512   caused collective abort of all ranks\n  exit status of rank {rank}: killed by signal {number}"
        for rank, number in ((0, 11), (1, 9))
    ]
    for text in ("\n".join(ends), "\n".join(reversed(ends))):
        crash = told(text)
        assert crash.signal is not None and crash.signal.name == "SIGSEGV"
    alone = told(ends[1])
    assert alone.signal is not None and alone.signal.name == "SIGKILL"


def test_an_import_that_failed_is_no_end_by_the_loader(told: Callable[[str], Crash]) -> None:
    first = told("ImportError: libGL.so.1: cannot open shared object file: No such file or directory").findings[0]
    assert first.summary.startswith("Python could not load libGL.so.1 for an import or a CDLL(), and raised an exception.")
    assert any("apt-file search libGL.so.1" in fix for fix in first.fix) and not any(fix.startswith("ldd ") for fix in first.fix)
    first = told("ImportError: libc.musl-x86_64.so.1: cannot open shared object file: No such file or directory").findings[0]
    assert first.fix[0].startswith("pip install --force-reinstall") and not any("apt-file" in fix for fix in first.fix)


def test_a_crash_that_is_told_beside_a_failed_import(told: Callable[[str], Crash]) -> None:
    missing = "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"
    crash = told(f"{missing} was gone with libgl1.\nNow I get Segmentation fault.")
    assert crash.signal is not None and crash.signal.name == "SIGSEGV"
    assert told(missing).signal is None


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        (f"{CHROMIUM}\nReceived signal 11 SEGV_MAPERR 00000589c14c", "Chromium, in its own sandbox, made a system call"),
        (
            "RuntimeError: DataLoader worker (pid 34569) is killed by signal",
            "Worker 34569 of a DataLoader was killed by a signal, whose name",
        ),
        (f"{PETSC}13 Broken Pipe\napplication called MPI_Abort(MPI_COMM_WORLD, 5) - process 0", "PETSC's handler caught Broken Pipe, and"),
        (
            "ImportError: DLL load failed while importing _ssl: The module could not be found.",
            "Python could not load a library for an import",
        ),
        ("RequestId: 7 Error: Runtime exited with error: signal: segmentation fault", "A worker process ended by SIGSEGV"),
    ],
)
def test_what_is_said_first(told: Callable[[str], Crash], text: str, begins: str) -> None:
    assert told(text).findings[0].summary.startswith(begins)


def test_fixes_are_for_the_product_that_failed(told: Callable[[str], Crash]) -> None:
    files = "rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: No such file or directory for GPU arch : gfx1036"
    rocm = "\n".join(told(files).findings[0].fix)
    assert "HSA_OVERRIDE_GFX_VERSION" in rocm and "whl/cu" not in rocm and "TORCH_CUDA_ARCH_LIST" not in rocm
    chromium = "\n".join(told(CHROMIUM).findings[0].fix)
    assert "Use a newer release of Chromium" in chromium and "docker" not in chromium and "SystemCallFilter" not in chromium
    windows = "\n".join(told("ImportError: DLL load failed while importing _ssl: The module could not be found.").findings[0].fix)
    assert "VCRedist" in windows and "dumpbin" in windows


PRINTED = {
    "Open MPI on i386": "[n1:123] *** Process received signal ***\n[n1:123] Signal: Segmentation fault (11)\n"
    "[n1:123] Signal code: Address not mapped (1)\n[n1:123] Failing at address: 0x18\n[n1:123] [ 0] [0xb7726410]\n"
    "[n1:123] [ 1] ./solver(compute_forces+0x9) [0x8049149]\n[n1:123] [ 2] /lib/libc.so.6(__libc_start_main+0xf3) [0xb7533a83]",
    "UCX of a stripped program": "[n1:26:0:26] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x18)\n"
    "==== backtrace (tid:  26) ====\n 0  /usr/lib64/libucs.so.0(ucs_handle_error+0x2dc) [0x7f1]\n"
    " 1  /usr/lib64/libucs.so.0(+0x2b0bc) [0x7f2]\n 2  ./solver(compute_forces+0x1) [0x7f4]\n"
    " 3  /lib64/libc.so.6(__libc_start_main+0xf3) [0x7f5]",
    "no handler": "terminate called after throwing an instance of 'E'\n  what():  bad config\nStack trace:\n"
    "#0  ./server(compute_forces+0x5) [0x55d849159345]\n#1  /usr/lib/libplugin.so(run_plugin+0x20) [0x7f21b7533a83]\nAborted (core dumped)",
    "Open MPI": "[n1:123] *** Process received signal ***\n[n1:123] Signal: Segmentation fault (11)\n"
    "[n1:123] Signal code: Address not mapped (1)\n[n1:123] Failing at address: 0x18\n"
    "[n1:123] [ 0] /lib64/libpthread.so.0(+0xf5e0)[0x2b1f1d7a85e0]\n"
    "[n1:123] [ 1] /opt/lib/libforce.so(compute_forces+0x12)[0x2b1f1d9a85e0]\n"
    "[n1:123] [ 2] /usr/bin/python3(_PyEval_EvalFrameDefault+0x5a3)[0x5c1234]\n[n1:123] *** End of error message ***",
    "UCX, with debug information": "[n1:26:0:26] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x18)\n"
    "==== backtrace (tid:  26) ====\n 0 0x0000000000042520 __sigaction()  ???:0\n 1 0x00000000000a1234 compute_forces()  /src/a.c:12\n====",
    "FreeCAD": "Program received signal SIGSEGV, Segmentation fault.\n#0  /lib/x86_64-linux-gnu/libc.so.6(+0x42520) [0x7fbb88c42520]\n"
    "#1  0x7fbb8f5a1234 in compute_forces(App::Document*) from /usr/lib/freecad/lib/libFreeCADApp.so+0x14\n",
    "Blender": "# backtrace\n/opt/blender(BLI_system_backtrace+0x20) [0x9f1]\n/opt/blender() [0x9f2]\n"
    "/lib/x86_64-linux-gnu/libc.so.6(+0x42520) [0x7f5d]\n/opt/blender(compute_forces+0x34) [0x9f3]\n/opt/blender(main+0x1) [0x9f4]",
    "LLVM": "Stack dump:\n #0 0x00007f1a2b3c4d5e llvm::sys::PrintStackTrace(llvm::raw_ostream&, int) (/venv/libtriton.so+0x5a1b2c3)\n"
    " #1 0x00007f1a2b3c2a3b llvm::sys::RunSignalHandlers() (/venv/libtriton.so+0x5a19a3b)\n"
    " #2 0x00007f1a2b3c5f1c SignalHandler(int) Signals.cpp:0:0\n #3 0x00007f1b00042520 (/lib/x86_64-linux-gnu/libc.so.6+0x42520)\n"
    " #4 0x00007f1a29a1b2c3 compute_forces(mlir::Operation*) (/venv/libtriton.so+0x40a1b2c3)\nSegmentation fault (core dumped)",
    "Chromium": "Received signal 11 SEGV_MAPERR 000000000018\n#0 0x55d5f9a1b2c3 base::debug::CollectStackTrace()\n"
    "#1 0x55d5f9a1b111 base::debug::(anonymous namespace)::StackDumpSignalHandler()\n"
    "#2 0x7f1b00042520 (/usr/lib/x86_64-linux-gnu/libc.so.6+0x4251f)\n#3 0x55d5f71b2c3a compute_forces()",
    "LLVM, of old": "Stack dump:\n #0 0x0000000002e041cf PrintStackTraceSignalHandler(void*) Signals.cpp:0:0\n"
    " #1 0x0000000002e0198d SignalHandler(int) Signals.cpp:0:0\n"
    " #2 0x00007ff929159390 __restore_rt (/lib/x86_64-linux-gnu/libpthread.so.0+0x11390)\n"
    " #3 0x00007ff927e8d918 compute_forces /build/forces.c:347:0\nSegmentation fault (core dumped)",
    "LLVM, demangled with a copy's name": "Stack dump:\n #0 0x00007f75ffa4c47c PrintStackTraceSignalHandler(void*) (.llvm.142725274327) "
    "(/usr/lib/libLLVM-11.so+0x133747c)\n #1 0x00007f75ffa4c905 SignalHandler(int) (/usr/lib/libLLVM-11.so+0x1337905)\n"
    " #2 0x00007f75fe6ec140 __restore_rt (/lib/x86_64-linux-gnu/libpthread.so.0+0x14140)\n"
    " #3 0x00007f75ffe8c752 compute_forces (/usr/lib/libLLVM-11.so+0x1777752)\nSegmentation fault (core dumped)",
    "Chromium, with lines": "Received signal 11 SEGV_MAPERR 000000000018\n"
    "#0 0x55d5f9a1b2c3 base::debug::CollectStackTrace() [../../base/debug/stack_trace_posix.cc:889:7]\n"
    "#1 0x55d5f9a1b111 base::debug::(anonymous namespace)::StackDumpSignalHandler() [../../base/debug/stack_trace_posix.cc:452:3]\n"
    "#2 0x7f1b00042520 (/usr/lib/x86_64-linux-gnu/libc.so.6+0x4251f)\n#3 0x55d5f71b2c3a compute_forces() [../../forces.cc:45:2]",
    "Chromium, on macOS": "Received signal 11 SEGV_MAPERR 000000000150\n"
    "0   Electron Framework                  0x000000011625fe39 base::debug::CollectStackTrace(void**, unsigned long) + 9\n"
    "1   Electron Framework                  0x000000011625fd91 base::debug::(anonymous namespace)::StackDumpSignalHandler(int, "
    "__siginfo*, void*) + 1329\n2   libsystem_platform.dylib            0x00007fff6b4525fd _sigtramp + 29\n"
    "3   Electron Framework                  0x0000000111a156bd compute_forces() + 621",
    "Paddle": "C++ Traceback (most recent call last):\n--------------------------------------\n0   compute_forces(std::string)\n"
    "1   paddle::framework::SignalHandle(char const*, int)\n2   paddle::platform::GetCurrentTraceBackString[abi:cxx11]()\n\n"
    "----------------------\nError Message Summary:\n----------------------\n"
    "FatalError: A serious error (Segmentation fault) is detected by the operating system. (at /paddle/paddle/fluid/platform/init.cc:303)\n"
    "  [SignalInfo: *** SIGSEGV (@0x10) received by PID 3118 (TID 0x7f1ae8cf3700) from PID 16 ***]",
    "UCX, without the signal's frame": "[n1:26:0:26] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x18)\n"
    "==== backtrace (tid:  26) ====\n 0  /usr/lib/ucx/libucs.so.0(ucs_handle_error+0x2fd) [0x7f1]\n"
    " 1  /usr/lib/ucx/libucs.so.0(+0x29591) [0x7f2]\n 2  /opt/lib/libforce.so(compute_forces+0x12) [0x7f4]",
    "glog": '*** Aborted at 1534487245 (unix time) try "date -d @1534487245" if you are using GNU date ***\n'
    "PC: @     0x7f2329804bc3 compute_forces\n*** SIGSEGV (@0x18) received by PID 30608 (TID 0x7f23) from PID 24; stack trace: ***\n"
    "    @     0x7f232a4d2390 (unknown)\n    @     0x7f2329804bc3 compute_forces\n    @           0x4c15bf PyEval_EvalFrameEx",
    "absl, without where it was": "*** SIGSEGV (@0x18), see go/stacktraces#s15 received by PID 1 (TID 1) on cpu 3; stack trace: ***\n"
    "    @     0x55d6b6e60b21         64  absl::debugging_internal::WriteFailureInfo()\n    @     0x7f4d3a5c0140  (unknown)  (unknown)\n"
    "    @     0x7f4d3a2a7a3b         96  compute_forces",
    "absl": "*** SIGSEGV (@0x18), see go/stacktraces#s15 received by PID 1 (TID 1) on cpu 3; stack trace: ***\n"
    "PC: @     0x7f4d3a2a7a3b  (unknown)  compute_forces\n"
    "    @     0x55d6b6e60b21         64  absl::debugging_internal::WriteFailureInfo()\n    @     0x7f4d3a5c0140  (unknown)  (unknown)\n"
    "    @     0x7f4d3a2a7a3b         96  compute_forces",
}


@pytest.mark.parametrize("text", PRINTED.values(), ids=PRINTED.keys())
def test_who_prints_a_backtrace_is_not_what_failed(told: Callable[[str], Crash], text: str) -> None:
    """Nor is the frame by which the kernel had called the handler."""
    crash = told(text)
    failed = native_at(crash.thread, crash.signal)
    assert failed is not None and (failed.function or "").partition("(")[0] == "compute_forces"


def test_which_frame_of_a_stack_without_names_failed(told: Callable[[str], Crash]) -> None:
    """Chromium's registers tell it; the innermost frames are its handler's."""
    frames = "".join(f"#{level} 0x7f5f5acc9d{level:x}7 <unknown>\n" for level in range(4))
    registers = "  r8: 00000000beeddead  r9: 00000000beeddead\n  ip: 00007f5f5acc9d27 efl: 0000000000010246 cgf: 002b000000000033"
    crash = told(f"Received signal 11 SEGV_MAPERR 000000000018\n{frames}{registers}\n[end of stack trace]")
    failed = native_at(crash.thread, crash.signal)
    assert failed is not None and (failed.function, failed.pc) == (None, 0x7F5F5ACC9D27)


def test_where_chromium_says_that_a_function_is(told: Callable[[str], Crash]) -> None:
    crash = told(PRINTED["Chromium, with lines"])
    failed = native_at(crash.thread, crash.signal)
    assert failed is not None and (failed.function, failed.file, failed.line) == ("compute_forces()", "../../forces.cc", 45)
