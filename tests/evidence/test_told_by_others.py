"""What others say of a process that died: supervisors, schedulers, containers, operating systems, and shells in other languages.

Each line is the form that a public report quotes (fixtures/public-reports), with its siblings; and what only looks like it.
"""

# ruff: noqa: E501

from __future__ import annotations

import gettext
from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Crash

TOLD = {
    "opencv and PyQt5 both ship Qt plugins; the xcb plugin could not be loaded.": "qt-platform-plugin",
    "The worker dies with code 137 whenever the data does not fit in memory.": "host-oom-cgroup",
    "The pod gets OOM'ed as soon as two requests are processed.": "host-oom-cgroup",
    "The callback runs Python code without holding the GIL": "gil-not-held",
    "I/DEBUG   (   86): signal 11 (SIGSEGV), code 1 (SEGV_MAPERR), fault addr 00000000": "null-deref",
    "mailpile>\nmailpile> Killed\nuser@host:~/Mailpile$": "killed-by-signal-9-unknown",
    ">>> Killed": "killed-by-signal-9-unknown",
    "htop shows full memory used. After a few minutes, without any output, the process was automatically killed.": "host-oom-cgroup",
    "It was using too much memory and was terminated.": "host-oom-cgroup",
    "The out of memory issue causes the kernel to kill the job.": "host-oom-cgroup",
    "[2020-05-15 07:31:52,315] {__init__.py:1416} ERROR - Received SIGTERM. Terminating subprocesses.": "killed-by-sigterm",
    "airflow.exceptions.AirflowException: Task received SIGTERM signal": "killed-by-sigterm",
    "Microsoft.Azure.WebJobs.Script.Workers: python exited with code 143 (0x8F)": "killed-by-sigterm",
    "dagster._core.executor.child_process_executor.ChildProcessCrashException": "supervisor-worker-crashed",
    "SDK harness sdk-0-1 disconnected. This usually means that the process running the pipeline code has crashed.": "supervisor-worker-crashed",
    "RuntimeError: Application timeout caused pair closure": "gloo-timeout",
    "distributed.worker_memory - WARNING - Worker tcp://h:1 (pid=7) exceeded 95% memory budget. Restarting...": "dask-memory-limit",
    "TypeError: Descriptors should not be created directly, but only retrieved from their parent.": "protobuf-version",
    "INFO - Task exited with return code -9": "killed-by-signal-9-unknown",
    "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\nwith errorcode 59.": "job-rank-failed",
    "srun: error: n12: tasks 8-18,20: Aborted": "supervisor-worker-crashed",
    "srun: error: n12: task 0: Segmentation fault": "supervisor-worker-crashed",
    "srun: error: n12: task 0: Killed": "killed-by-signal-9-unknown",
    "srun: error: n12: task 0: Out Of Memory": "host-oom-cgroup",
    "2022-07-11 09:21:58,244 INFO exited: ocr (terminated by SIGABRT (core dumped); not expected)": "supervisor-worker-crashed",
    "2022-07-11 09:21:58,244 INFO exited: ocr (terminated by SIGSEGV; not expected)": "supervisor-worker-crashed",
    "[I 13:31:37.030 NotebookApp] KernelRestarter: restarting kernel (1/5), keep random ports": "supervisor-worker-crashed",
    "[I 2023-08-25 ServerApp] AsyncIOLoopKernelRestarter: restarting kernel (1/5), new random ports": "supervisor-worker-crashed",
    "The kernel appears to have died. It will restart automatically.": "supervisor-worker-crashed",
    "The Kernel crashed while executing code in the current cell or a previous cell.": "supervisor-worker-crashed",
    "concurrent.futures.process.BrokenProcessPool: A child process terminated abruptly, the process pool is not usable anymore": "supervisor-worker-crashed",
    "distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting": "dask-memory-limit",
    "distributed.nanny.memory - WARNING - Worker tls://10.0.0.1:34937 (pid=129) exceeded 95% memory budget. Restarting...": "dask-memory-limit",
    "distributed.nanny - WARNING - Worker process 22204 was killed by unknown signal": "supervisor-worker-crashed",
    "low swap: killing largest compressed process with pid 34341 (python3.7) and size 325 MB": "host-oom-cgroup",
    "The command '/bin/sh -c python x.py' returned a non-zero code: 137": "killed-by-signal-9-unknown",
    '7b606d820b89   app   "python x.py"   15 hours ago   Exited (137) 15 hours ago': "killed-by-signal-9-unknown",
    "ExceptionCode         : EXCEPTION_ILLEGAL_INSTRUCTION (0xc000001d)": "illegal-instruction",
    "ExceptionCode         : EXCEPTION_INT_DIVIDE_BY_ZERO": "sigfpe-integer-divide",
    "Process finished with exit code -1073741795 (0xC000001D)": "illegal-instruction",
    "python(63332,0x1ef55dd80) malloc: *** error for object 0x1ef569b40: pointer being freed was not allocated": "heap-corruption-invalid-free",
    "python(63332,0x1ef55dd80) malloc: *** error for object 0x1ef569b40: pointer being realloc'd was not allocated": "heap-corruption-invalid-free",
    "python(63332,0x1ef55dd80) malloc: Double free of object 0x1ef569b40": "heap-corruption-double-free",
    "python(63332,0x1ef55dd80) malloc: *** error for object 0x1ef569b40: incorrect checksum for freed object - object was probably modified after being freed.": "heap-corruption-overflow",
    "python(63332,0x1ef55dd80) malloc: Heap corruption detected, free list is damaged at 0x600001": "heap-corruption-overflow",
    "n1:15:91 [3] include/socket.h 398 NCCL WARN Call to recv failed : Connection reset by peer.": "nccl-remote-error",
    "n1:255200:255473 [1] misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer n2<40048>": "nccl-remote-error",
    "[math_functions.cu:79] Check failed: error == cudaSuccess (74 vs. 0)  misaligned address": "cuda-misaligned-address",
    "[relu_layer.cu:26] Check failed: error == cudaSuccess (2 vs. 0)  out of memory": "cuda-oom",
    "[blob.cpp:32] Check failed: shape[i] >= 0 (-1 vs. 0)": "glog-check-failed",
    "OMP: Error #13: Assertion failure at z_Linux_util.cpp(2361).": "c-assertion-failed",
    "Panic occurred in file 'src/build_context.rs' at line 683": "rust-panic",
    "QXcbConnection: Could not connect to display :0": "qt-platform-plugin",
    "../Modules/gcmodule.c:2162: visit_validate: Assertion failed: PyObject_GC_Track() object is not valid": "gc-corrupted-object",
    'Modules/gcmodule.c:442: update_refs: Assertion "gc_get_refs(gc) != 0" failed': "gc-corrupted-object",
    'Modules/gcmodule.c:114: gc_decref: Assertion "gc_get_refs(g) > 0" failed: refcount is too small': "gc-refcount-too-small",
    'Thread 1 "python3" received signal SIGILL, Illegal instruction.': "illegal-instruction",
    "Loading checkpoint shards:  38%|███▊      | 3/8 [00:02<00:03,  1.28it/s]Killed": "killed-by-signal-9-unknown",
    "  0%|          | 0/1 [00:00<?, ?it/s]已杀死": "killed-by-signal-9-unknown",
    "229/230 [============================>.] - ETA: 2s - loss: 0.2038 - acc: 0.9209Killed": "killed-by-signal-9-unknown",
    "epoch 3, loss 0.134 (best 0.120)Killed": "killed-by-signal-9-unknown",
    "When setting values like 1980, the script halts with an error `4441 Killed` message.": "killed-by-signal-9-unknown",
    "step 100 loss 0.31Floating point exception (core dumped)": "sigfpe-integer-divide",
    "[2020-08-20] INFO - Task exited with return code Negsignal.SIGKILL": "killed-by-signal-9-unknown",
    "src/tcmalloc.cc:332] Attempt to free invalid pointer 0x5555e0508040": "heap-corruption-invalid-free",
    "src/tcmalloc.cc:345] Attempt to realloc invalid pointer 0x5555e0508040": "heap-corruption-invalid-free",
    "mimalloc: error: double free detected of block 0x7f0010 with size 64": "heap-corruption-double-free",
    "mimalloc: error: mi_free: invalid (unaligned) pointer: 0x7f0011": "heap-corruption-invalid-free",
    "mimalloc: error: buffer overflow in heap block 0x7f0010 of size 60: write after 60 bytes": "heap-corruption-overflow",
    "mimalloc: error: thread 0x7f: corrupted free list entry of size 64b at 0x7f0010: value 0x41": "heap-corruption-overflow",
    "Scudo ERROR: invalid chunk state when deallocating address 0x2000071e053c000": "heap-corruption-double-free",
    "Scudo ERROR: corrupted chunk header at address 0x7f0010": "heap-corruption-overflow",
    "Assertion failed: x > 0, file C:\\src\\a.c, line 30": "c-assertion-failed",
    "assertion failed: false, file C:\\src\\kernels\\dispatch_utils.h, line 30": "c-assertion-failed",
    "what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception: [Rank 3] Watchdog caught colle": "nccl-watchdog-timeout",
    "F0000 00:00:1795311539.759354   20205 server.cc:69] Cannot bind port 80": "glog-check-failed",
    "F20260307 09:58:53.545448  1234 table.cpp:108] rows are missing": "glog-check-failed",
    "Trace/breakpoint trap (core dumped)": "trap-reached",
    "./run.sh: line 3: 12345 Trace/breakpoint trap   (core dumped) python app.py": "trap-reached",
    "app.service: Main process exited, code=dumped, status=5/TRAP": "trap-reached",
    "traps: python[123] trap int3 ip:7f00 sp:7ffe error:0 in libchrome.so[7f00+100]": "trap-reached",
    "traps: python[123] trap invalid opcode ip:7f00 sp:7ffe error:0 in libfoo.so[7f00+100]": "illegal-instruction",
    "2017/11/20 11:24:05 [alert] 5413#5413: worker process 20299 exited on signal 11 (core dumped)": "supervisor-worker-crashed",
    "WARNING: [pool www] child 1234 exited on signal 11 (SIGSEGV - core dumped) after 12.5 seconds from start": "supervisor-worker-crashed",
    "[core:notice] [pid 1] AH00051: child pid 4711 exit signal Segmentation fault (11), possible coredump in /tmp": "supervisor-worker-crashed",
    "LOG:  server process (PID 4711) was terminated by signal 11: Segmentation fault": "supervisor-worker-crashed",
    "mod_wsgi (pid=4711): Process 'app' terminated by signal 11": "supervisor-worker-crashed",
    "Multiprocess executor: child process for step train was terminated by signal 11 (SIGSEGV).": "supervisor-worker-crashed",
    "[ERROR] worker[12] error: exitCode=0, signal=11": "supervisor-worker-crashed",
    "WARNING swManager_check_exit_status: worker#7[pid=23010] abnormal exit, status=0, signal=11": "supervisor-worker-crashed",
    "ERROR -- : reaped #<Process::Status: pid 4711 SIGSEGV (signal 11) (core dumped)> worker=0": "supervisor-worker-crashed",
    "Moving job to FailedJobRegistry (Work-horse terminated unexpectedly; waitpid returned 11 (signal 11); )": "supervisor-worker-crashed",
    "uwsgi (terminated by SIGSEGV)": "supervisor-worker-crashed",
    "The kernel for work/draw.ipynb appears to have died. It will restart automatically.": "supervisor-worker-crashed",
    "Kernel Restarting: The kernel for a.ipynb appears to have died. It will restart automatically.": "supervisor-worker-crashed",
    "The kernel has died, and the automatic restart has failed.": "supervisor-worker-crashed",
    "Your session crashed for an unknown reason.": "supervisor-worker-crashed",
    "BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending.": "supervisor-worker-crashed",
    "[DEBUG:MainProcess:QueueManager] The executor is broken as at least one process terminated abruptly": "supervisor-worker-crashed",
    "E       pyo3_runtime.PanicException: not yet implemented": "rust-panic",
    "pyo3_runtime.PanicException: called `Option::unwrap()` on a `None` value": "rust-panic",
    "3137 illegal hardware instruction (core dumped) python": "illegal-instruction",
    "*** glibc detected *** python: double free or corruption": "heap-corruption-double-free",
    "terminate called after throwing an instance of ‘std::length_error‘": "cxx-uncaught-exception",
    "terminating with uncaught exception of type std::runtime_error: x": "cxx-uncaught-exception",
    "terminating due to uncaught exception of type std::bad_cast": "cxx-uncaught-exception",
    "libc++abi: terminating due to uncaught exception of type NSException": "objc-uncaught-exception",
    "Process finished with exit code -1073741571 (0xC00000FD)": "stack-overflow",
    "Windows fatal exception: stack overflow": "stack-overflow",
    "SUMMARY: AddressSanitizer: heap-use-after-free (/lib64/libasan.so.8+0xf5675) in memcpy": "asan-report",
    "torch.AcceleratorError: HIP error: an illegal memory access was encountered": "rocm-memory-fault",
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB": "cuda-oom",
    "RuntimeError: HIP error: invalid device function": "cuda-no-kernel-image",
    "   far: 0x0000000000000010  esr: 0x92000006 (Data Abort) byte read Translation fault": "null-deref",
    "Fatal signal 11 (SIGSEGV), code 1 (SEGV_MAPERR), fault addr 0x0 in tid 4711 (python)": "null-deref",
    "Fatal error: PyThreadState_Get: no current thread": "gil-not-held",
    'I got an "fatal Python error: Cannot recover from stack overflow"': "stack-overflow",
    "thread '<unnamed>' panicked at 'assertion failed: `(left != right)`": "rust-panic",
    "ImportError: _x.so: undefined symbol: __asan_option_detect_stack_use_after_return": "asan-runtime-order",
    "> Process 'command 'bash'' finished with non-zero exit value 137": "killed-by-signal-9-unknown",
    'The instruction at "0x00c25fa4" referenced memory at "0x00000010".': "windows-access-violation",
    "  exitcode  : 1 (pid: 49149)": "launcher-child-failed",
    "subprocess.CalledProcessError: Command 'x' died with <Signals.SIGABRT: 6>.": "supervisor-worker-crashed",
    "<Process name='Process-1' pid=123 parent=1 stopped exitcode=-SIGSEGV>": "supervisor-worker-crashed",
    "<Process(Process-1, stopped[SIGSEGV])>": "supervisor-worker-crashed",
    "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)": "supervisor-worker-crashed",
    "RuntimeError: One of the subprocesses has abruptly died during map operation.": "supervisor-worker-crashed",
    "RuntimeError: worker 3 died unexpectedly": "supervisor-worker-crashed",
    "concurrent.futures.process.BrokenProcessPool": "supervisor-worker-crashed",
    "Kernel died, restarting": "supervisor-worker-crashed",
    "##[error]Bash exited with code '137'.": "killed-by-signal-9-unknown",
    "exit_status  137": "killed-by-signal-9-unknown",
    "[1]+  Killed                  python x.py": "killed-by-signal-9-unknown",
    "(Killed): bash failed: error executing command": "killed-by-signal-9-unknown",
    "OSError: exception: access violation reading 0x0000000000000010": "windows-access-violation",
    "panic: runtime error: invalid memory address\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x30 pc=0x68c30f]": "null-deref",
    "  1/10 Test  #1: mytest ...***Exception: Illegal  0.45 sec": "illegal-instruction",
    "Docker image startup container error 137 exit code": "killed-by-signal-9-unknown",
    "proot info: vpid 1: terminated with signal 11": "supervisor-worker-crashed",
    "error: command terminated by signal 31: Bad system call": "supervisor-worker-crashed",
    "  Exception Code:   c0000005\n  Exception Offset: 00032239": "windows-access-violation",
    "Exception Code:   c00000fd": "stack-overflow",
    "Stack overflow in thread #1: can't grow stack to 0x1ffe801000": "stack-overflow",
    "thread 'main' has overflowed its stack": "stack-overflow",
    "runtime: goroutine stack exceeds 1000000000-byte limit": "stack-overflow",
    "RecursionError: maximum recursion depth exceeded\nSegmentation fault (core dumped)": "stack-overflow",
    "I raised it with sys.setrecursionlimit(10000)\nthen a `Segmentation fault`": "stack-overflow",
    "*** caught segfault *** address (nil), cause 'memory not mapped'": "null-deref",
    " *** caught segfault ***\naddress 0x8, cause 'memory not mapped'": "null-deref",
    "Crash reason:  EXC_BAD_ACCESS / KERN_INVALID_ADDRESS\nCrash address: 0x8": "null-deref",
    "Crash reason:  SIGSEGV /SEGV_MAPERR\nCrash address: 0x0": "null-deref",
    '"exception" : {"type":"EXC_BAD_ACCESS","signal":"SIGSEGV","subtype":"KERN_INVALID_ADDRESS at 0x0000000000000008"},': "null-deref",
    "* thread #1, stop reason = EXC_BAD_ACCESS (code=1, address=0x10)\n    frame #0: 0x0000000103077d91 python`f + 4": "null-deref",
    "traps: openarc[9640] general protection ip:55ff9fed033f sp:7f533f9ad240 error:0 in openarc[55ff9fec5000+13000]": "wild-pointer",
    "Async handler deleted by the wrong thread": "tk-wrong-thread",
    "RuntimeError: CUDA error: an illegal memory access was encountered terminate called after throwing an instance of 'c10::Error' what(): CUDA error": "cuda-illegal-access",
    'pod "ml-0" 0/1 OOMKilled 3 5m': "host-oom-cgroup",
    "the pod gets OOMKilled after an hour": "host-oom-cgroup",
    "Process: 466 ExecStart=/srv/hass (code=killed, signal=KILL)": "killed-by-signal-9-unknown",
    "5    libstdc++ 0x7f in std::terminate()": "cxx-uncaught-exception",
    "Terminate called without an active exception.": "cxx-terminate-no-exception",
    "Unhandled exception: page fault on read access to 0x00000008 in 64-bit code (0x00000001).": "null-deref",
    "Uncaught signal: 11, pid=2, tid=2, fault_addr=0.": "null-deref",
    "Invalid memory access of location 0x8 rip=0x10c1": "null-deref",
    "Failing at address: (nil)": "null-deref",
    "--- SIGSEGV {si_signo=SIGSEGV, si_code=SEGV_MAPERR, si_addr=NULL} ---\n+++ killed by SIGSEGV (core dumped) +++": "null-deref",
    "signal 11 (SIGSEGV), code 1 (SEGV_MAPERR), fault addr 0x8": "null-deref",
    "python3[1234]: unhandled level 2 translation fault (11) at 0x00000008, esr 0x92000006": "null-deref",
    "python[123]: segfault (11) at 10 nip 7fff lr 7fff code 1": "null-deref",
    "python[1]: unhandled signal 11 code 0x1 at 0x0000000000000008 in libc-2.31.so": "null-deref",
    "kernel: python: segfault at 8 ip 00007f6 sp 00007ffd error 6 in libc.so[7f+1000]": "null-deref",
    "main process (123) killed by KILL signal": "killed-by-signal-9-unknown",
    "failed assumedly after job because: job 1.1 died through signal KILL (9)": "killed-by-signal-9-unknown",
    "=   KILLED BY SIGNAL: 11 (Segmentation fault)": "supervisor-worker-crashed",
    "[CRITICAL] Worker with PID 12 exited unexpectedly (code -11). Shutting down...": "supervisor-worker-crashed",
    "Work-horse process was terminated unexpectedly (waitpid returned 11)": "supervisor-worker-crashed",
    "App name:app id:0 disconnected; exited with code [137] via signal": "killed-by-signal-9-unknown",
    "heroku[web.1]: Process exited with status 137": "killed-by-signal-9-unknown",
    "app.service: Failed with result 'oom-kill'.": "host-oom-cgroup",
    "app.service: A process of this unit has been killed by the OOM killer.": "host-oom-cgroup",
    "Memory limit of 512 MiB exceeded with 530 MiB used.": "host-oom-cgroup",
    "Container killed by YARN for exceeding memory limits.": "host-oom-cgroup",
    "D:\\a\\llama.cpp\\ggml\\src\\ggml.c:6399: GGML_ASSERT(c->ne[0] >= n_dims / 2) failed": "c-assertion-failed",
    "GGML_ASSERT: D:\\a\\ggml\\src\\ggml.c:13968: n_dims <= ne0": "c-assertion-failed",
    'assertion "p != 0" failed: file "a.c", line 12, function: main': "c-assertion-failed",
    'a.cpp:12: void f(int): assertion "x > 0" failed': "c-assertion-failed",
    'ODE INTERNAL ERROR 1: assertion "a >= b && c" failed in collide() [collision_space.cpp:460]': "c-assertion-failed",
    "virtual void shader_core_config::init(): Assertion `toks' failed.\n12260 Aborted   (core dumped)": "c-assertion-failed",
    'ASSERT: "d" in file qcore.h, line 123': "c-assertion-failed",
    'ASSERT failure in QVector<T>::at: "index out of range", file /usr/include/qt/qvector.h, line 434': "c-assertion-failed",
    "Gtk:ERROR:../gtk/gtkiconhelper.c:494:ensure_surface: assertion failed (error == NULL): Failed to load": "c-assertion-failed",
    "Bail out! Gdk:ERROR:../gdkmain.c:12:f: code should not be reached": "c-assertion-failed",
    "Abort was called at 123 line in file: ../os_interface.cpp": "c-assertion-failed",
    "# Fatal error in ../deps/v8/src/api.cc, line 12": "glog-check-failed",
    "#  SIGSEGV (0xb) at pc=0x00007f, pid=123, tid=0x1": "jvm-crash",
    "A worker process managed by the executor was unexpectedly terminated. This could be caused by a segmentation fault": "supervisor-worker-crashed",
    "terminate called recursively": "cxx-uncaught-exception",
    "terminate called without an active exception\nterminate called recursively": "cxx-terminate-no-exception",
    "Unhandled exception. System.AccessViolationException: Attempted to read or write protected memory.": "windows-access-violation",
    "my dataloader worker was killed by a signal (segmentation fault)": "dataloader-worker-killed-segv",
    "Process finished with exit code -529697949 (0xE06D7363)": "cxx-uncaught-exception",
    "Runtime died. Automatically restarting.": "supervisor-worker-crashed",
    "RuntimeError: Kernel died before replying to kernel_info": "supervisor-worker-crashed",
    "Your notebook tried to allocate more memory than is available. It has restarted.": "host-oom-cgroup",
    "The node was low on resource: memory.": "host-oom-cgroup",
    "oom_reaper: reaped process 123 (python), now anon-rss:0kB": "host-oom-cgroup",
    "[ERROR] Worker (pid:14) exited with code 139": "supervisor-worker-crashed",
    "c++: fatal error: Killed signal terminated program cc1plus": "killed-by-signal-9-unknown",
    "Received signal 11 SEGV_MAPERR 000000000008": "null-deref",
    "[1:1:FATAL:zygote_host_impl_linux.cc(127)] No usable sandbox!": "glog-check-failed",
    "segfault at 10 ip 00007f6a sp 00007ffd error 4 in libfoo.so[7f00+1000]": "null-deref",
    "my dataloader worker process was killed by a signal (bus error)": "dataloader-worker-sigbus",
    "libunwind: _Unwind_GetDataRelBase - _Unwind_GetDataRelBase() not implemented": "unwinder-crash",
    "Process: app [95476]\nException Type:  EXC_BAD_ACCESS (SIGSEGV)\nException Codes: EXC_I386_GPFLT": "wild-pointer",
    "[0]PETSC ERROR: Caught signal number 15 Terminate: Some process (or the batch system) has told this process to end": "killed-by-sigterm",
    "genericpipeline: Subprocess completed with exit status -11: /bin/sh -c python x.py": "supervisor-worker-crashed",
    "kernel: app[10215]: segfault at 0 ip           (null) sp 00007fff3b4b7e88 error 14 in app[400000+6db000]": "null-function-call",
    "Your session crashed after using all available RAM.": "host-oom-cgroup",
    "libprotobuf FATAL google/protobuf/wire_format.cc:830] CHECK failed: (a) == (b): : Protocol message\n"
    "terminate called after throwing an instance of 'google::protobuf::FatalException'": "cxx-uncaught-exception",
    "terminate called after throwing an instance of 'google::protobuf::FatalException'": "protobuf-duplicate-registration",
    "ERROR: /start.sh: line 54: Killed": "killed-by-signal-9-unknown",
    "Note where it says Killed, I did not do this manually.": "killed-by-signal-9-unknown",
    "F1012 12:47:55.453529 140583399446272 core.py:93] GLEW initalization error: Missing GL version": "glog-check-failed",
    "[2024-05-29 22:54:10,723 C 359273 359273] (raylet) resource_manager.cc:29: Check failed: ReturnBundle(*it).ok()": "glog-check-failed",
    "(raylet) [2021-10-25 05:34:10,286 C 43098 1729504] provider.cc:73:  Check failed: _s.ok() Bad status: IOError": "glog-check-failed",
    "[2021-01-14 01:41:41,655 C 17146 17146] util.h:70:  Check failed: false Method unused": "glog-check-failed",
    "[2022-03-01 10:00:00,123 C 12 12] raylet_client.cc:160:  Could not connect to socket /tmp/ray/raylet": "glog-check-failed",
    "Qt warning: QPaintDevice: Cannot destroy paint device that is being painted": "qt-object-lifetime",
    "libiomp5.so already initialized": "duplicate-openmp-runtime",
    'Thread 1 "python3" received signal SIGSEGV, Segmentation fault.\nlib_version (handle=0x0) at src/library.cpp:4358': "null-deref",
    "Stack Overflow due to deep recursion in the parser": "stack-overflow",
    'Crash with "Python error: GC object already tracked"': "fatal-python-error",
    "mpirun noticed that process rank 5 with OID 6637 on node n1 exited on signal 11": "supervisor-worker-crashed",
    "your application terminated with the exit string: segmentation fault (signal 11)": "supervisor-worker-crashed",
    '"Illegal instrunction" on a Raspberry Pi': "illegal-instruction",
    "worker process 7 exited on signal 11\nnginx[7]: segfault at 0 ip 00007ff453910b67 sp 00007ffda0306a40 error 4 in a.so[7ff45376f000+2000]": "null-deref",
    "thread 'main' panicked at\n'index out of bounds: the len is 0', src/lib.rs:5:5": "rust-panic",
    "panicked at src/lib.rs:12:5:": "rust-panic",
    "called `Option::unwrap()` on a `None` value": "rust-panic",
    "called `Result::unwrap()` on an `Err` value: ParseIntError { kind: InvalidDigit }": "rust-panic",
    "PanicException: Polars' maximum length reached. Consider installing 'polars-u64-idx'.": "rust-panic",
    "polars.exceptions.PanicException: index out of bounds": "rust-panic",
    "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace": "rust-panic",
    "   0: rust_begin_unwind\n             at /rustc/abc/library/std/src/panicking.rs:593:5": "rust-panic",
    "The application panicked (crashed).\nLocation: src/main.rs:14": "rust-panic",
    "fatal runtime error: Rust panics must be rethrown": "rust-panic",
    "*** Terminating app due to uncaught exception of class 'NSException'": "objc-uncaught-exception",
    "Uncaught exception: NSInvalidArgumentException: -[__NSCFString f]: unrecognized selector sent to instance 0x6": "objc-uncaught-exception",
    "2014-07-04 13:27:20.522 Python[33727:1107] An uncaught exception was raised": "objc-uncaught-exception",
    "1   libobjc.A.dylib     0x00007fff8e883e75 objc_exception_throw + 43": "objc-uncaught-exception",
    "*** Terminating app due to uncaught exception 'NSInternalInconsistencyException', reason: "
    "'NSWindow drag regions should only be invalidated on the Main Thread!'": "gui-wrong-thread",
    "Windows fatal exception: code 0xe06d7363": "cxx-uncaught-exception",
    "Unhandled exception at 0x00007FFB in python.exe: Microsoft C++ exception: std::bad_alloc at memory location 0x0": "cxx-uncaught-exception",
    "#  EXCEPTION_ACCESS_VIOLATION (0xc0000005) at pc=0x00007ffb, pid=12, tid=34": "jvm-crash",
    "# Problematic frame:\n# C  [libpython3.8.so.1.0+0x123]  PyObject_Call+0x10": "jvm-crash",
    "#  Internal Error (sharedRuntime.cpp:553), pid=1, tid=2": "jvm-crash",
    "# There is insufficient memory for the Java Runtime Environment to continue.": "runtime-out-of-memory",
    "srun: error: n12: task 3: Exited with exit code 139": "supervisor-worker-crashed",
    "we see several srun: errors, like 'srun: error segmentation fault'": "supervisor-worker-crashed",
    "R Session Aborted\nR encountered a fatal error.": "supervisor-worker-crashed",
    "giving me a 'Terminated' line on my console": "killed-by-sigterm",
    "./run.sh: line 3: 12345 Terminated              python app.py": "killed-by-sigterm",
    "zsh: terminated  python app.py": "killed-by-sigterm",
    "Terminated: 15": "killed-by-sigterm",
    "app crashed with general protection fault ip:50fcc4 sp:7ffcc2465108 error:0 in python3.7[421000+232000]": "wild-pointer",
    'Segfault happened at: 0x7f1234:    mov 0x8(%rax),%rdx\n source "0x8(%rax)" (0x00000008) not located in a known VMA region (needed readable region)!': "null-deref",
    "SegvReason: reading NULL VMA": "null-deref",
    "Exception Type:  EXC_BAD_ACCESS (SIGBUS)\nException Codes: KERN_PROTECTION_FAILURE at 0x0000000000000008": "null-deref",
    "Exception:  EXC_BAD_ACCESS (0x0001)\nCodes:      KERN_INVALID_ADDRESS (0x0001) at 0x00000000": "null-deref",
    "--> STACK GUARD            00007ffee0400000-00007ffee3c00000 [ 56.0M] ---/rwx SM=NUL  stack guard for thread 0": "stack-overflow",
    "Stack overflow with infinite nesting\nSegmentation fault": "stack-overflow",
    'Random assert "Assertion failed: mNodes[nodeID].aabb.contains(newAABB)"': "c-assertion-failed",
    "Assertion failed!\n\nProgram: C:\\python.exe\nFile: src/a.c, Line 123": "c-assertion-failed",
    "Debug Assertion Failed!": "c-assertion-failed",
    "AddressSanitizer: heap-use-after-free in foo.cc": "asan-report",
    "CUDA error 700": "cuda-illegal-access",
    "CUDA error code: 719": "cuda-launch-failure",
    "Bus error (core dumped)\nshm              64M     0   64M   0% /dev/shm": "dataloader-shm-exhausted",
    "terminate called after throwing an instance of 'class_loader::LibraryLoadException'\n"
    "  what():  dlopen error: /usr/lib/libOpen3D.so: cannot allocate memory in static TLS block": "static-tls-exhausted",
    "frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<long>) + 0x1d2 (0x1554 in libtorch_cuda.so)\n\n"
    "Exception raised from ncclCommWatchdog at ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1521 (most recent call first):": "nccl-watchdog-timeout",
    "Fatal Python error: Illegal instruction\n\nCurrent thread 0x0000ffffa52c4420 (most recent call first):\n"
    '  File "<frozen importlib._bootstrap_external>", line 1176 in create_module': "sigill-unsupported-cpu",
    "all jobs are automatically killed because of an out-of-memory error of slurm": "host-oom-cgroup",
    "the workers are killed w/ error 9 which is oom": "host-oom-cgroup",
    "Exception Type:  EXC_BREAKPOINT (SIGTRAP)\nThread 0 Crashed:\n"
    "0   AppKit            0x00000001b7367d84 -[NSApplication _crashOnException:] + 324 (NSApplication.m:6688)": "objc-uncaught-exception",
    "*** Terminating app due to uncaught exception 'NSInternalInconsistencyException', reason: "
    "'NSWindow should only be instantiated on the main thread!'": "gui-wrong-thread",
    "it segfaults on deep recursion\nso the recursion limit has to be raised": "stack-overflow",
    "mpiexec has exited due to process rank 1 with PID 23471 on\nnode n1 exiting improperly.": "launcher-child-failed",
    "mpirun detected that one or more processes exited with non-zero status": "launcher-child-failed",
    "'std::bad_alloc' Error": "cxx-bad-alloc",
    'Getting "Killed" error with the whole data set': "killed-by-signal-9-unknown",
    "训练过程中程序突然被杀死": "killed-by-signal-9-unknown",
    "在服务器上train的时候自动kill自己": "killed-by-signal-9-unknown",
    "==27726==  Block was alloc'd at\n==27726==    at 0x4C2DB8F: malloc (in /usr/lib/valgrind/vgpreload_memcheck-amd64-linux.so)": "valgrind-report",
    "MPT-7B error: Assertion `ggml_nelements(src1) == 3' failed": "c-assertion-failed",
    "segfault at 7fffbba9d040 ip 0000564c9dd8b662 sp 00007ffcbf21f540 error 6 in qrflash[564c9dd8b000+5000]": "unmapped-access",
    "Caught signal 11 (Segmentation fault: address not mapped to object at address 0x100000007)": "unmapped-access",
    "Signal: Segmentation fault (11)\nSignal code: Address not mapped (1)\nFailing at address: 0x55aa000000": "unmapped-access",
    "Exception Type:  EXC_BAD_ACCESS (SIGSEGV)\nException Codes: KERN_INVALID_ADDRESS at 0x0000003802000000\n"
    "VM Regions Near 0x3802000000:\n    MALLOC  0000000144-0000000145 [12K] rw-\n--> \n    STACK GUARD  000070000eec5000-000070000eec6000 [4K] ---\n"
    "\nThread 0 Crashed:\n0   libblocks.dylib   0x000000011337d7f6 poll + 3": "unmapped-access",
    "* thread #1, stop reason = EXC_BAD_ACCESS (code=1, address=0x3802000000)\n  * frame #0: 0x00000001000b5678 libz.dylib`inflate + 24": "unmapped-access",
    "*** caught segfault ***\naddress 0x55aa0000, cause 'memory not mapped'": "unmapped-access",
    "Fatal Python error: init_interp_main: can't initialize time\nPython runtime state: core initialized\n"
    "PermissionError: [Errno 1] Operation not permitted\n\nCurrent thread 0xb6f61520 (most recent call first):\n<no Python frame>": "seccomp-old-profile",
    "kernel: python[10098]: segfault at 5563198b0000 ip 00007f905b424c76 sp 00007ffd02bedcf8 error 5 in libc-2.23.so[7f905b2d7000+1c0000]": "wild-pointer",
    "kernel: python[10098]: segfault at 7ffd02beda00 ip 00007f905b424c76 sp 00007ffd02beda08 error 6 in libc-2.23.so[7f905b2d7000+1c0000]": "stack-overflow",
    "kernel: python[10098]: segfault at 7f905b424000 ip 00007f905b424c76 sp 00007ffd02beda08 error 7 in libc-2.23.so[7f905b2d7000+1c0000]": "write-to-readonly",
    "Zugriffsverletzungen\nBeim lesen von Adresse 20424752.": "windows-access-violation",
    "Access violation at address 00405F3C in module 'app.exe'. Read of address 00000010": "windows-access-violation",
    "Zugriffsverletzung bei Adresse 00405F3C in Modul 'app.exe'. Lesen von Adresse 00000010": "windows-access-violation",
    "Segmentation fault at address 0x0": "null-deref",
    'It crashes: Thread 1 "python3" received signal SIGILL, Illegal instruction.': "illegal-instruction",
    "Multiprocess executor: child process for step train was\nterminated by signal 11 (SIGSEGV).": "supervisor-worker-crashed",
    "Invalid memory access (signal 11) at address 0x8": "null-deref",
    "previously allocated by thread T0 here:\n    #0 0x1081dc9ef (libclang_rt.asan_osx_dynamic.dylib+0x2b9ef)": "asan-report",
    "> RuntimeError: cuda runtime error (35) : CUDA driver version is insufficient for CUDA runtime version at /x/THCGeneral.cpp:70": "cuda-driver-mismatch",
    "Attempting to use an MPI routine before initializing MPICH": "mpi-abi-mismatch",
    "Assertion failed: nbytes == sizeof (dummy) (src/signaler.cpp:303)\nAbort trap: 6": "c-assertion-failed",
    "Assertion failed: check () (C:\\bld\\zeromq\\src\\msg.cpp: 402)": "c-assertion-failed",
    "- Operation now in progress (mailbox.cpp:77)\nit closes": "c-assertion-failed",
    "Bad file descriptor (bundled/zeromq/src/epoll.cpp:104)": "c-assertion-failed",
    "Assertion my_references[ref_external] == 0 failed on line 306 of file ../../src/tbb/arena.cpp": "c-assertion-failed",
    "Assertion p != nullptr failed (located in the get function, line in file: 42)": "c-assertion-failed",
    "Assertion failure at kmp_runtime.cpp(6608): thread.": "c-assertion-failed",
    "T* boost::shared_ptr<T>::operator->() const [with T = A]: Assertion `px != 0' failed.": "c-assertion-failed",
    "app: /usr/include/boost/shared_ptr.hpp:734：T* f() [with T = A]: hypothesis ‘px != 0’ failed。": "c-assertion-failed",
    "python: a.cpp:12：void f(int)：断言“x > 0”失败。": "c-assertion-failed",
    "ASSERTION FAILED: idx < size at src/foo.cpp:123": "c-assertion-failed",
    "[ERROR] assert failed: (x > 0) at /src/a.cc:82": "c-assertion-failed",
    "src/arena.cc:302: my_assert my_num_slots > 0 failed": "c-assertion-failed",
    "Model loads, but GGML_ASSERT failed at the first prompt": "c-assertion-failed",
    "crashes with an assertion failure:`rd_kafka_assert(NULL, rkmq->rkmq_msg_cnt > 0)` in rdkafka_msg.h": "c-assertion-failed",
    "Program terminated with signal SIGABRT, Aborted.\n#0  __GI_raise (sig=6) at raise.c:51\n#1  0x7f12 in __GI_abort () at abort.c:90\n"
    "#2  0x7f13 in zmq::zmq_abort (errmsg_=<optimized out>) at src/err.cpp:87\n#3  0x7f14 in f () at a.cpp:3": "c-assertion-failed",
    "the container restarts in a loop (with code 132), no logs": "illegal-instruction",
    "my_app exited 132": "illegal-instruction",
    "[2024-01-01] {local_task_job_runner.py:234} INFO - Task exited with return code Negsignal.SIGSEGV": "supervisor-worker-crashed",
    "INFO - Task exited with return code Negsignal.SIGKILL": "killed-by-signal-9-unknown",
    "text_generation_launcher: Shard process was signaled to shutdown with signal 11 rank=0": "supervisor-worker-crashed",
    "Shard process was signaled to shutdown with signal 9 rank=0": "killed-by-signal-9-unknown",
    "dagster._core.executor.child_process_executor.ChildProcessCrashException: (-11, None)": "supervisor-worker-crashed",
    "PM2        | App [bot:0] exited with code [139] via signal [SIGSEGV]": "supervisor-worker-crashed",
    "org.pytorch.serve.wlm.WorkerThread - Backend worker process died.": "supervisor-worker-crashed",
    "failed to load 'x': Internal: Stub process 'x_0_0' is not healthy.": "supervisor-worker-crashed",
    "[ERROR] Unexpected exit from worker-1": "supervisor-worker-crashed",
    "A worker in the pool died unexpectedly": "supervisor-worker-crashed",
    "ImportError: Error relocating /usr/lib/x.so: _ZNSt7__cxx1112basic_stringIcE: symbol not found": "abi-undefined-symbol",
    "OSError: Error relocating /usr/lib/librego.so: __cxa_thread_atexit_impl: symbol not found": "abi-undefined-symbol",
    "ImportError: Error loading shared library ld-linux-x86-64.so.2: No such file or directory (needed by /a/cygrpc.so)": "glibc-library-on-musl",
    "ImportError: Error relocating /a/_multiarray_umath.so: __memcpy_chk: symbol not found": "glibc-library-on-musl",
    "ImportError: Error relocating /a/onnxruntime_pybind11_state.so: fcntl64: symbol not found": "glibc-library-on-musl",
    "ImportError: Error relocating /usr/lib/x.so: (null): initial-exec TLS resolves to dynamic definition in /usr/lib/x.so": "static-tls-exhausted",
    "tests/test_a.py::test_shutdown_with_sys_exit ++++++++++++++++ Timeout ++++++++++++++++": "timeout-pytest",
    "**\\* buffer overflow detected _**: python terminated": "stack-smashing",
    "Exit code is -1073740791 (Fatal Python error: PyEval_SaveThread: the function must be called with the GIL held, but the GIL is released "
    "(the current Python thread state is NULL)": "gil-not-held",
    "This application has requested the Runtime to terminate it in an unusual way.Please contact the support": "self-abort",
    'Stack trace (most recent call last):\n#2    Object "/opt/libx.so", at 0x12, in main\n#1    Object "/opt/libx.so", at 0x12, in f(int)\n'
    '#0    Source "../a.cpp", line 98, in load [0x13]\nSegmentation fault (Signal sent by the kernel [(nil)])': "wild-pointer",
    '[node-3] #8    Object "/opt/libx.so", at 0x12, in f(int)\n'
    '[node-3] #7    Source "../functexcept.cc", line 82, in __throw_length_error [0x12]\n'
    '[node-3] #6    Source "../eh_throw.cc", line 98, in __cxa_throw [0x13]': "cxx-uncaught-exception",
    "start.sh: line 1:16 Killed python3 -m bot": "killed-by-signal-9-unknown",
    'in the log appears the line:\n"start.sh: line 1:16 Killed python3 -m bot"': "killed-by-signal-9-unknown",
    "I will encounter **illegal memory access** for all datasets": "cuda-illegal-access",
    "one gpu is lost during the training": "gpu-lost",
    "uvicorn says only that a child process died": "timeout-uvicorn-worker",
    "ExceptionCode         : EXCEPTION_ACCESS_VIOLATION (0xc0000005)\nException Parameters  : 0x2\n"
    "\tParameters[0] (action)  : 0x0000000000000000 (read)\n\tParameters[1] (address) : 0x0000000000000010": "null-deref",
    "ExceptionCode         : EXCEPTION_ACCESS_VIOLATION (0xc0000005)\n\tParameters[1] (address) : 0x00007FFA30A9D883": "windows-access-violation",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": "cuda-cublas-status",
    "2022-12-20 01:56:57.136533: F tensorflow/core/sampler.cc:42] Check failed: a > b (0 vs. 10)\n"
    "qemu: uncaught target signal 6 (Aborted) - core dumped\nAborted": "emulated-processor",
    "Killed process 4254 (python3) total-vm:11968kB, anon-rss:4288kB, file-rss:3972kB, shmem-rss:0kB": "host-oom-cgroup",
    "2019-05-04T18:05:45-05:00 container oom 29d72966e0beb17d9b0b9fbcbfc734e2 (name=job)": "host-oom-cgroup",
    "[gw0] [ 93%] FAILED tests/test_a.py::test_b\n\nreplacing crashed worker gw0": "supervisor-worker-crashed",
    "Process finished with exit code -1073740940 (0xC0000374)": "heap-corruption-overflow",
    "Faulting module name: ntdll.dll\nException code: 0xc0000374": "heap-corruption-overflow",
    "7b606d820b89   app   Restarting (132) 15 seconds ago": "illegal-instruction",
    "[Rank 14] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800834 m": "nccl-watchdog-timeout",
    "DataLoader process (pid 3063) exited is killed by signal: Killed": "dataloader-worker-killed-sigkill",
    "DataLoader worker (pid   3063) is killed by signal: 9.": "dataloader-worker-killed-sigkill",
    "The Python kernel terminated unexpectedly. Restarting.": "supervisor-worker-crashed",
    "[ERROR] [gzclient-2]: process has died [pid 193996, exit code 134, cmd 'gzclient'].": "supervisor-worker-crashed",
    "[ERROR] [node-1]: process has died [pid 96, exit code 139, cmd 'python3 node.py'].": "supervisor-worker-crashed",
    'Thread 1 "python" received signal SIGSEGV, Segmentation fault.\n#0  0x7ff6 in to_bitmap (\n    vbitmap=0x5555, cache=0x0)\n    at a.cpp:3': "null-deref",
    "Program received signal SIGSEGV, Segmentation fault.\n#0  0x7ff6 in Foo::bar (this=0x0) at a.cpp:3": "null-deref",
    "Program received signal SIGSEGV, Segmentation fault.\n#0  __strlen_avx2 () at strlen-avx2.S:76\n#1  0x7ff6 in f (a=1, s=0x0) at a.cpp:3": "null-deref",
    "Segmentation fault\n#0  load (x=3, obj=0xb <error: Cannot access memory at address 0xb>) at a.h:359\n#1  0x7ff6 in f () at a.c:3": "null-deref",
    "*** The MPI_Comm_rank() function was called before MPI_INIT was invoked.": "mpi-abi-mismatch",
}


def _crash(text: str, tmp_path: Path) -> Crash:
    (tmp_path / "posted.log").write_text(text + "\n")
    return crash_of_log(tmp_path / "posted.log", read_log(tmp_path / "posted.log"))


@pytest.mark.parametrize("text", TOLD)
def test_signature(text: str, tmp_path: Path) -> None:
    findings = diagnose(_crash(text, tmp_path), load_catalog()).findings
    assert findings and findings[0].id == TOLD[text]


@pytest.mark.parametrize(
    "text",
    [
        "srun: error: n12: task 0: Exited with exit code 1",
        "srun: error: n12: tasks 1-3: Terminated",
        "2022-07-11 09:21:58,244 INFO exited: ocr (exit status 0; expected)",
        "[I 13:31:37.030 NotebookApp] Kernel restarted: e2dcf2e8-1352",  # the user did
        "distributed.worker - WARNING - Worker is at 82% memory usage. Pausing worker.",
        "memorystatus: killing_idle_process pid 508 [iTunesHelper]",  # macOS does, all day
        "The command '/bin/sh -c make' returned a non-zero code: 2",
        '7b606d820b89   app   "python x.py"   15 hours ago   Exited (0) 15 hours ago',
        "python(63332) malloc: stack logs being written into /tmp/stack-logs",
        "n1:15:91 [3] NCCL INFO Connection closed by localRank 7",  # also said at an ordinary end
        "[12:00:00] src/objective.cc:123: Check failed: preds == labels (3 vs. 4) : size",  # dmlc's is an exception
        "the build was killed by a colleague: it was 非法指令集 of a newer machine",
        "100%|██████████| 8/8 [00:02<00:00,  1.28it/s] Killed 3 stale jobs",
        "E0000 00:00:1795311539.759354   20205 server.cc:69] Cannot bind port 80",
        "I0307 09:58:53.545448  1234 table.cpp:108] FATAL rows",
        '"OOMKilled": false, "ExitCode": 1',
        "OOMKilled=false ExitCode=0",
        "State: OOMKilled: False",
        '+                == "OOMKilled"',
        'if reason != "OOMKilled":',
        "[12:00] INFO - Task exited with return code 0",
        "[18:58:25] INFO: Home Assistant Core finish process exit code 0",
        "mimalloc: warning: thread 0x7f: unable to allocate aligned OS memory directly",
        "the type system reports: assertion failed: see the file, line by line",
        "2017/11/20 11:24:05 [notice] 1#1: worker process 20299 exited with code 0",
        "2017/11/20 11:24:05 [notice] 1#1: signal 17 (SIGCHLD) received from 20299",
        "WARNING swManager_check_exit_status: worker#7 abnormal exit, status=1, signal=0",
        "include/tty.hpp:61:54: error: throw will always call terminate() [-Werror=terminate]",
        "SUMMARY: AddressSanitizer: 0 byte(s) leaked",  # nothing was found
        "[2024-05-29 22:54:10,723 E 359273 359273] (raylet) resource_manager.cc:29: Check failed and retried",
        "[2024-05-29 22:54:10,723 I 359273 359273] (raylet) resource_manager.cc:29: Starting",
        "RuntimeError: x INTERNAL ASSERT FAILED at a.cpp:23, please report a bug to PyTorch",  # an exception
        "I1012 12:47:55.453529 140583399446272 core.py:93] nothing is wrong",
        "(app:1): Gtk-CRITICAL **: f: assertion 'GTK_IS_WIDGET (widget)' failed",  # it goes on
        "../src/common/object.cpp(366): assert 'classTable' failed in wxClassInfo()",  # it asks
        "[ERROR] Worker (pid:14) exited with code 1",
        "libunwind: warning: no unwind info",
        "see start.sh: line 54: Killed processes are listed",
        "subprocess completed with exit status 0",
        "the class pyo3_runtime.PanicException is no Exception",
        "the driver panicked at the lights",
        "set RUST_BACKTRACE=1 to see more",
        "zsh: the kernel was terminated by its user",
        "the flights are Terminated   at the border",
        "Assertion failed: the user is not logged in",
        "assertion failed: expected 3 to equal 4",  # a test runner's
        "CUDA error handling in 700 lines",
        "CUDA 11.7: 719 tests passed",
        "An uncaught exception was raised by the parser, which goes on",
        "catch it with objc_exception_throw as breakpoint",
        "shm              64M     0   64M   0% /dev/shm",
        "Exception: EXC_BAD_ACCESS is what it would be",
        "AddressSanitizer: built with gcc",
        "Stack overflow has an answer\nSegmentation fault",
        "Exception raised from check at ../c10/cuda/impl/CUDAGuardImpl.h:30 (most recent call first):",
        "the frames of watchdogHandler are shown",
        "the process was killed by its owner, not by memory",
        "an access violation of the rules at address 12",
        "==12== Copyright (C) 2002-2017, and GNU GPL'd, by Julian Seward et al.",
        "Assertion `deep recursion` is a name",
        "the recursion limit is 1000",
        "the mpirun has exited",
        "cv2.error: OpenCV(4.5.1) /io/src/color.cpp:182: error: (-215:Assertion failed) !_src.empty() in function 'cvtColor'",
        "RuntimeError: Assertion failed at src/foo.cpp:123",
        "a.cpp:12:3: error: static assertion failed: too large",
        "a.cpp:12:3: error: static_assert failed due to requirement 'x'",
        "Permission denied (publickey.cpp:12 explains it)",
        "Assertion failed on line 3 of the tests",
        "[node-1]: process has finished cleanly [pid 193999]",
        "[ERROR] [node-1]: process has died [pid 96, exit code 1, cmd 'python3 node.py'].",
        "the kernel was stopped by its user",
        "my_app exited 130",
        "App [bot:0] exited with code [0] via signal [SIGINT]",
        "Shard process was signaled to shutdown with signal 2",
        "the stub process is healthy",
        "Use assert(x > 0) in foo.c line 12 to check it; if it fails, fix your code.",
        "warning: assertion in file.h:12 may fail at runtime",
        "Job succeeded; code 132 lines changed",
        "error 139 files skipped",
        "a job that hangs around for a minute",
        "GPU 0 lost 3 percent of its clock speed",
        '{"message": "\\u6a21\\u578b\\u52a0\\u8f7d\\u5b8c\\u6210", "level": "info"}',
        "no error relocating /usr/lib/x.so: every symbol was found",
        "rows ++++ Timeout ++++",
        "the container listens on port 132",
        'decode.py:120: best: hypothesis "hello world" score -3.2',
        "2024-05-01 10:00:00 asr/beam.py:88: INFO: hypothesis 'the cat sat' accepted",
        "12:30:05: 张三: 假设 “x>0” 成立",
        "src/a.cpp:12: f: 假设 “x>0” 成立",
        "RuntimeError: Assertion failed: n > 0 (src/foo.cpp:12)",
        "WARNING: assertion failed: cache hit (src/cache.hpp:12), using slow path",
        "[TRT] [W] Assertion failed: dims > 0 (ModelImporter.cpp:720)",
        "No GPU is lost; 8 of 8 healthy",
        "the node is drained if a GPU is lost",
        "when a GPU has fallen off the bus the node is drained",
        "workers exited prematurely because early-stopping criterion was met",
        "The kernel process exited unexpectedly 0 times",
        "container oom 0123456789abcdef score computed: low",
        "# Killed",
        "state -> Killed",
        "INFO: received SIGTERM, shutting down gracefully",
        "the handler of SIGTERM received by the parent",
        "app-1 exited with code 143",
        "SDK harness sdk-0-1 connected",
        "ChildProcessCrashException: raised with exit code 1",
        "    raise ChildProcessCrashException(pid=process.pid, exit_code=process.exitcode)",
        "Task exited with return code 0",
        "worker_memory - INFO - at 40% of its memory budget",
    ],
)
def test_look_alike(text: str, tmp_path: Path) -> None:
    try:
        findings = diagnose(_crash(text, tmp_path), load_catalog()).findings
    except EvidenceError:
        return
    assert [finding.id for finding in findings if finding.confidence != "possible"] == []


@pytest.mark.parametrize(
    "text",
    [
        "i2c transfer returned -4",
        "ath10k: failed to load firmware, error -5",
        "read sensor error -5, retry",
        "recv returned -11, try again",
        "open: error -9",
        "bus status -7",
        "HTTP status: 136",
        "job status 139",
        "error 132",
        "return 133",
        "rc 137 released",
        "UPS monitor: 1: 2 Power failure",
        "Restarting (137) seconds remaining",
        "solver.sh: line 3: 22 CPU time limit exceeded, best solution 5",
        "uvm_assert failures: 0",
        "WARN driver.c:120: soft assert failed, continuing",
    ],
)
def test_words_that_claim_nothing(text: str, tmp_path: Path) -> None:
    try:
        found = _crash(text, tmp_path)
    except EvidenceError:
        return
    assert found.signal is None and diagnose(found, load_catalog()).findings == ()


@pytest.mark.parametrize("name", ["args", "arg", "noargs", "_", "unused", "ignored"])
def test_a_method_without_arguments_is_passed_null(name: str, tmp_path: Path) -> None:
    found = _crash(
        f"Program received signal SIGSEGV, Segmentation fault.\n#0  0x7ff6 in foo (self=0x7ffff71234, {name}=0x0) at a.c:3", tmp_path
    )
    assert "null-deref" not in {finding.id for finding in diagnose(found, load_catalog()).findings}


def test_a_word_alone_in_a_long_log_is_no_signal(tmp_path: Path) -> None:
    ordinary = "an ordinary line\n" * 3000
    with pytest.raises(EvidenceError):
        _crash(f"{ordinary}Alarm clock\n{ordinary}", tmp_path)
    found = _crash(f"{ordinary}run.sh: line 3: 4711 Alarm clock             ./x\n{ordinary}", tmp_path)
    assert found.signal is not None and found.signal.name == "SIGALRM"


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("[18:58:25] INFO: Home Assistant Core finish process received signal 7", "SIGBUS"),
        ("[09:00:00] WARNING: Service nginx exited with code 256 (by signal 11)", "SIGSEGV"),
        ("Pod state is CrashLoopBack with error code 139", "SIGSEGV"),
        ("CrashLoopBackOff error with exit code 134", "SIGABRT"),
        ("Exit status code: 139", "SIGSEGV"),
        ("it ended with exit code -4", "SIGILL"),
        ("the return code is -11", "SIGSEGV"),
        ("returncode=-5", "SIGTRAP"),
        ("rc=-9", "SIGKILL"),
        ("rc: 134", "SIGABRT"),
        ("run.sh: line 3: 22 CPU time limit exceeded ./solve", "SIGXCPU"),
        ('"OOMKilled": false, "Dead": false, "ExitCode": 137', "SIGKILL"),
        ("Illegal instruction (core dumped)", "SIGILL"),
        ("Bus Error (core dumped)", "SIGBUS"),
        ("Aborted ( core dumped )", "SIGABRT"),
        ("segmentation fault （core dumped）", "SIGSEGV"),
        ("[1]    4711 IOT instruction (core dumped)  python x.py", "SIGABRT"),
        ("Error: Runtime exited with error: signal: segmentation fault Runtime.ExitError", "SIGSEGV"),
        ("make: run: signal: killed", "SIGKILL"),
        ("Fatal signal: Segmentation fault", "SIGSEGV"),
        ("Fatal error 6: Aborted", "SIGABRT"),
        ("Vim: Caught deadly signal SEGV", "SIGSEGV"),
        ("[BUG] Segmentation fault at 0x0000000000000000", "SIGSEGV"),
        (" *** caught segfault ***", "SIGSEGV"),
        (" *** caught illegal operation ***", "SIGILL"),
        ("signal (11.1): Segmentation fault", "SIGSEGV"),
        ("forrtl: severe (174): SIGSEGV, segmentation fault occurred", "SIGSEGV"),
        ('  "exception" : {"codes":"0x0, 0x0","rawCodes":[0,0],"type":"EXC_CRASH","signal":"SIGABRT"},', "SIGABRT"),
        ('"exception" : {"type" : "EXC_BAD_ACCESS", "signal" : "SIGBUS"}', "SIGBUS"),
    ],
)
def test_signal_that_is_told(text: str, signal: str, tmp_path: Path) -> None:
    found = _crash(text, tmp_path)
    assert found.signal is not None and found.signal.name == signal


def test_a_bare_illegal_instruction_may_be_a_trap(tmp_path: Path) -> None:
    (first, *_) = diagnose(_crash("Illegal instruction (core dumped)", tmp_path), load_catalog()).findings
    assert first.id == "illegal-instruction" and "a trap that a compiler put there" in (first.summary or "")
    for text in ("Trace/breakpoint trap", "python exited with code 133"):
        assert "sigill-unsupported-cpu" not in {found.id for found in diagnose(_crash(text, tmp_path), load_catalog()).findings}


@pytest.mark.parametrize(
    "text",
    [
        "Process finished with exit code -1073740771 (0xC000041D)",
        "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:38032",
    ],
)
def test_evidence_that_names_no_cause(text: str, tmp_path: Path) -> None:
    found = _crash(text, tmp_path)
    assert found.signal is None
    general = {signature.id for signature in load_catalog().signatures if signature.general}
    assert {finding.id for finding in diagnose(found, load_catalog()).findings} <= general


LANGUAGES = ("de", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "pt_BR", "ru", "sv", "uk", "zh_CN", "zh_TW")
ENDS = {
    "Segmentation fault": "SIGSEGV",
    "Illegal instruction": "SIGILL",
    "Bus error": "SIGBUS",
    "Killed": "SIGKILL",
}
ORDINARY = {
    "Morto",
    "Dödad",
    "Убит",
    "Вбитий",
    "Tué",
    "Busfout",
    "Bussfel",
    "Bus-Fehler",
    "不正な指定",
    "부적절한 명령",
    "Niedozwolona instrukcja",
    "Istruzione non valida",
}
"""Ordinary words of their languages, or other messages too: not taken for a signal."""


@pytest.mark.parametrize("message", ENDS)
@pytest.mark.parametrize("domain", ["libc", "bash"])
def test_other_languages(domain: str, message: str, tmp_path: Path) -> None:
    """As the catalogues of glibc and bash on this machine translate it."""
    catalogs = {language: Path(f"/usr/share/locale/{language}/LC_MESSAGES/{domain}.mo") for language in LANGUAGES}
    if not all(catalog.exists() for catalog in catalogs.values()):
        pytest.skip(f"the translations of {domain} are not installed")
    taken = {}
    for language, catalog in catalogs.items():
        with catalog.open("rb") as file:
            translated = gettext.GNUTranslations(file).gettext(message)
        if translated in ORDINARY or translated == message:
            continue
        try:
            signal = _crash(translated, tmp_path).signal
        except EvidenceError:
            signal = None
        taken[language, translated] = signal.name if signal else None
    assert len(taken) >= 8
    assert {said: name for said, name in taken.items() if name != ENDS[message]} == {}
