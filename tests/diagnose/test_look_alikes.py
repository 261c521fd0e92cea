"""Cases of our own: signatures without a public report, and look-alikes that must not match."""

# ruff: noqa: E501

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Crash, PythonRuntime

from .synthetic import crash, lines
from .test_public_cases import CASES, EVAL, RNN, WORKER, Case

TRAINING = "py /venv/lib/python3.12/site-packages/torch/nn/modules/linear.py:134 forward > py /srv/train.py:40 main"

KNOWN = {
    "a trap, or an instruction that is missing": Case(
        "",
        "illegal-instruction",
        log='Fatal Python error: Illegal instruction\n\nCurrent thread 0x00007f0000000001 (most recent call first):\n  File "/srv/app.py", line 3 in check\n',
    ),
    "asan": Case(
        "",
        "asan-report",
        log="==811==ERROR: AddressSanitizer: heap-use-after-free on address 0x60200 at pc 0x55 bp 0x7f sp 0x7f\nREAD of size 1 at 0x60200 thread T0\n    #0 0x55 in main program.cpp:2\n",
    ),
    "asan-order": Case(
        "",
        "asan-runtime-order",
        log="==811==ASan runtime does not come first in initial library list; you should either link runtime to your application or manually preload it with LD_PRELOAD.\n",
    ),
    "msan": Case(
        "",
        "msan-report",
        log="==811==WARNING: MemorySanitizer: use-of-uninitialized-value\n    #0 0x55 in decode /srv/decode.c:3:59\nSUMMARY: MemorySanitizer: use-of-uninitialized-value /srv/decode.c:3:59 in decode\nExiting\n",
    ),
    "ubsan": Case("", "ubsan-report", log="program.cpp:1:66: runtime error: shift exponent 40 is too large for 32-bit type 'int'\n"),
    "tsan": Case(
        "",
        "tsan-report",
        log="WARNING: ThreadSanitizer: data race (pid=811)\n  Write of size 4 at 0x55 by main thread:\n    #0 main program.cpp:1 (program+0x1)\n",
    ),
    "gloo": Case(
        "",
        "gloo-timeout",
        log="RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation to complete\n",
    ),
    "oom-cgroup": Case(
        "",
        "host-oom-cgroup",
        log="oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=pod,mems_allowed=0,oom_memcg=/kubepods,task_memcg=/kubepods/x,task=python,pid=811,uid=0\n"
        "Memory cgroup out of memory: Killed process 811 (python) total-vm:1kB, anon-rss:1kB\nRuntimeError: DataLoader worker (pid 811) is killed by signal: Killed.\n",
    ),
    "inductor-toolchain": Case(
        "",
        "inductor-toolchain",
        log="torch._inductor.exc.InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')\n",
    ),
    "freed-pattern": Case(
        "",
        "use-after-free",
        {"signal": "SIGSEGV", "reason": "non-canonical", "address": 0xDDDDDDDDDDDDDDED, "frames": "Node::next > " + WORKER},
    ),
    "openmp-after-fork": Case(
        "",
        "fork-openmp-hang",
        {"frames": "syscall > gomp_team_barrier_wait_end > gomp_team_end > GOMP_parallel > at::native::add_kernel > " + TRAINING},
    ),
    "worker-segv-core": Case(
        "",
        "dataloader-worker-crashed",
        {
            "signal": "SIGSEGV",
            "frames": "raise > handler_SIGSEGV(int, siginfo_t*, void*) [libtorch_python.so] > <signal handler called> > decode_jpeg > py /srv/data.py:9 load",
        },
    ),
    "exit-137": Case("", "killed-by-signal-9-unknown", {"exit_status": 137, "frames": "poll > main"}),
    "watchdog": Case(
        "",
        "hang-faulthandler-timeout",
        log='Timeout (0:00:01)!\nThread 0x00007f01 (most recent call first):\n  File "/x.py", line 3 in f\n',
    ),
}

LOOK_ALIKES: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "address 0 with SI_KERNEL is no null pointer": (
        {"signal": "SIGSEGV", "code": "SI_KERNEL", "address": 0, "frames": "f > " + WORKER},
        "",
        ("null-*",),
    ),
    "a callback whose argument is bad was not freed": (
        {
            "signal": "SIGSEGV",
            "frames": "O_get [_ctypes.so] > _CallPythonObject [_ctypes.so] > ffi_closure_unix64_inner [libffi.so] > qsort [libc.so]",
        },
        "",
        ("ctypes-callback-freed",),
    ),
    "a crash in the function that a callback calls": (
        {
            "signal": "SIGSEGV",
            "frames": "decode [lib.so] > _PyEval_EvalFrameDefault > _CallPythonObject [_ctypes.so] > ffi_closure_unix64_inner [libffi.so]",
        },
        "",
        ("ctypes-callback-freed",),
    ),
    "a callback that ran, and frees what it had": (
        {
            "signal": "SIGSEGV",
            "frames": "func_dealloc > _PyFrame_Clear > py /srv/app.py:3 on_event > PyObject_Vectorcall > _CallPythonObject [_ctypes.so]"
            " > ffi_closure_unix64_inner [libffi.so]",
        },
        "",
        ("ctypes-callback-freed",),
    ),
    "a C function that ctypes calls": (
        {
            "signal": "SIGSEGV",
            "frames": "strlen [libc.so] > ffi_call_unix64 [libffi.so] > ffi_call [libffi.so] > _ctypes_callproc [_ctypes.so]",
        },
        "",
        ("ctypes-callback-freed",),
    ),
    "libffi fails as it copies an argument": (
        {"signal": "SIGSEGV", "frames": "ffi_call_int [libffi.so] > ffi_call [libffi.so] > _ctypes_callproc [_ctypes.so]"},
        "",
        ("ctypes-callback-freed",),
    ),
    "jump to null is no null dereference": (
        {
            "signal": "SIGSEGV",
            "code": "SEGV_MAPERR",
            "address": 0,
            "reason": "null-pointer",
            "access": "execute",
            "frames": "?? > call_it > " + WORKER,
        },
        "",
        ("null-deref",),
    ),
    "stack guard is no read-only write": (
        {"signal": "SIGSEGV", "code": "SEGV_ACCERR", "reason": "stack-overflow", "access": "write", "frames": "f"},
        "",
        ("write-to-readonly",),
    ),
    "null pointer in an API call of a thread that runs Python": (
        {
            "signal": "SIGSEGV",
            "reason": "null-pointer",
            "address": 0x200,
            "frames": f"memcpy > PyBytes_FromStringAndSize > cfunction_call > {EVAL} > " + WORKER + " > start_thread",
        },
        "",
        ("gil-not-held",),
    ),
    "merged stack without interpreter frames": (
        {
            "signal": "SIGSEGV",
            "reason": "null-pointer",
            "address": 0x10,
            "frames": "memcpy > PyBytes_FromStringAndSize > py /srv/app.py:3 read > start_thread",
        },
        "",
        ("gil-not-held",),
    ),
    "heap victim under Py_FinalizeEx": (
        {
            "signal": "SIGSEGV",
            "reason": "null-pointer",
            "address": 8,
            "frames": "subtype_dealloc > dict_dealloc > Py_FinalizeEx > Py_RunMain > main",
        },
        "",
        ("finalization-*",),
    ),
    "idle OpenMP workers of a healthy process": (
        {
            "frames": "gomp_team_barrier_wait_end > gomp_simple_barrier_wait > gomp_thread_start > start_thread",
            "others": [TRAINING, "poll > start_thread"],
        },
        "",
        ("fork-openmp-hang",),
    ),
    "plain stream synchronisation": (
        {"frames": "?? [libcuda.so.1] > cuStreamSynchronize > cudaStreamSynchronize > " + TRAINING},
        "",
        ("nccl-hang",),
    ),
    "one thread that waits for the GIL": (
        {"frames": EVAL + " > " + TRAINING, "others": ["futex_wait > take_gil > PyEval_RestoreThread > c10::f > " + WORKER]},
        "",
        ("deadlock-*",),
    ),
    "two threads that wait for each other's Python locks": (
        {
            "frames": f"futex_wait > sem_wait > PyThread_acquire_lock_timed > lock_acquire > {EVAL} > " + WORKER,
            "others": ["futex_wait > take_gil > PyEval_RestoreThread > c10::f > " + WORKER],
        },
        "",
        ("deadlock-gil*",),
    ),
    "main thread joins workers at exit": (
        {
            "frames": "futex_wait > take_gil > PyEval_RestoreThread > lock_acquire > wait_for_thread_shutdown > Py_FinalizeEx > Py_Exit > main"
        },
        "",
        ("deadlock-finalization",),
    ),
    "warning of the CUDA IPC alone": (
        {},
        "[W CudaIPCTypes.cpp:15] Producer process has been terminated before all shared CUDA tensors released.\nSegmentation fault (core dumped)\n",
        ("finalization-*",),
    ),
    "killed worker without a kernel line": (
        {},
        "RuntimeError: DataLoader worker (pid 8) is killed by signal: Killed.\nKilled\n",
        ("host-oom-cgroup",),
    ),
    "out of memory of the GPU is not of the host": (
        {},
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
        ("host-oom*", "killed*"),
    ),
    "cuDNN crash of one thread among idle driver threads": (
        {
            "signal": "SIGSEGV",
            "reason": "null-pointer",
            "address": 8,
            "frames": "?? [libcudnn.so.9] > cudnnBackendExecute > " + RNN,
            "others": [
                "poll > ?? [libcuda.so.1] > start_thread",
                "pthread_cond_wait > c10d::ProcessGroupNCCL::watchdogHandler() [libtorch_cuda.so] > start_thread",
            ],
        },
        "",
        ("cuda-concurrent-launch",),
    ),
    "main waits for the autograd thread that launches": (
        {
            "signal": "SIGSEGV",
            "frames": "?? [libcuda.so.1] > cuLaunchKernel [libcuda.so.1] > cublasGemmEx > torch::autograd::Engine::thread_main > start_thread",
            "others": ["pthread_cond_wait > torch::autograd::Engine::execute > THPEngine_run_backward > py /srv/train.py:50 main"],
        },
        "",
        ("cuda-concurrent-launch",),
    ),
    "JonathanSalwan's Triton": (
        {"signal": "SIGSEGV", "frames": "triton::arch::Architecture::disassembly > llvm::f"},
        "",
        ("triton-compile-crash",),
    ),
    "a leak is no memory error": (
        {},
        "==12==ERROR: LeakSanitizer: detected memory leaks\n\nDirect leak of 7 byte(s) in 1 object(s) allocated from:\n    #0 0x5c in leak /src/leak.c:4\n",
        ("asan-report",),
    ),
    "a worker was stopped, and the process itself failed": (
        {"signal": "SIGSEGV", "reason": "null-pointer", "address": 8, "frames": "own > " + WORKER},
        "RuntimeError: DataLoader worker (pid 33) is killed by signal: Terminated.\n",
        ("killed-by-sigterm",),
    ),
    "the kernel killed another process": (
        {"signal": "SIGSEGV", "reason": "null-pointer", "address": 8, "frames": "own > " + WORKER},
        "Memory cgroup out of memory: Killed process 811 (node) total-vm:1kB, anon-rss:1kB\n",
        ("host-oom-cgroup",),
    ),
    "a SIGBUS of a regular file in a worker": (
        {"signal": "SIGBUS", "code": "BUS_ADRERR", "address": 0x7F0000001000, "mapped": "/data/train.bin", "frames": "memcpy > " + WORKER},
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n",
        ("dataloader-worker-sigbus", "dataloader-shm-exhausted"),
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known(name: str, tmp_path: Path) -> None:
    case = KNOWN[name]
    if case.crash:
        subject = crash(**case.crash)
    else:
        (tmp_path / "stderr.log").write_text(case.log)
        subject = crash_of_log(tmp_path / "stderr.log", read_log(tmp_path / "stderr.log"))
    assert [finding.id for finding in diagnose(subject, load_catalog()).findings][:1] == [case.expect]


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_look_alike(name: str, tmp_path: Path) -> None:
    facts, log, forbidden = LOOK_ALIKES[name]
    subject: Crash
    if facts:
        subject = crash(**facts, log=lines(log, tmp_path) if log else ())
    else:
        (tmp_path / "stderr.log").write_text(log)
        subject = crash_of_log(tmp_path / "stderr.log", read_log(tmp_path / "stderr.log"))
    ids = [finding.id for finding in diagnose(subject, load_catalog()).findings]
    assert not [identity for identity in ids for pattern in forbidden if fnmatchcase(identity, pattern)], ids


def test_a_symbol_with_at_in_its_name_is_not_certainly_torch(tmp_path: Path) -> None:
    log = lines("ImportError: /x/own.so: undefined symbol: _ZNSt6atomicIiE5storeEi\n", tmp_path)
    assert [finding.confidence for finding in diagnose(crash(log=log), load_catalog()).findings] == ["possible"]


CAUGHT = {
    "cuda-oom": "CUDA out of memory. Tried to allocate 2.00 GiB\n",
    "cuda-after-fork": "RuntimeError: Cannot re-initialize CUDA in forked subprocess.\n",
    "abi-undefined-symbol": "ImportError: /x/flash_attn.so: undefined symbol: _ZN3c105ErrorC2Ev\n",
}


@pytest.mark.parametrize("name", CAUGHT)
def test_an_exception_before_a_fault_may_have_been_caught(name: str, tmp_path: Path) -> None:
    log = lines(CAUGHT[name], tmp_path)
    alone, before = (diagnose(subject, load_catalog()).findings[0] for subject in (crash(log=log), crash(log=log, signal="SIGSEGV")))
    assert [(finding.id, finding.confidence) for finding in (alone, before)] == [(name, "certain"), (name, "possible")]


def test_what_of_an_uncaught_exception_is_told(tmp_path: Path) -> None:
    log = lines("terminate called after throwing an instance of 'std::runtime_error'\n  what():  no such file {x}\n", tmp_path)
    summary = diagnose(crash(log=log), load_catalog()).findings[0].summary
    assert summary is not None and "Its message: no such file {x}." in summary


def test_free_threaded_build_is_only_possible() -> None:
    subject = msgspec.structs.replace(
        crash(signal="SIGSEGV", frames="f > " + WORKER), python=PythonRuntime(version="3.14.0", free_threaded=True)
    )
    assert [(finding.id, finding.confidence) for finding in diagnose(subject, load_catalog()).findings] == [
        ("free-threaded-race", "possible")
    ]


def test_a_free_threaded_build_that_ran_with_the_gil_had_no_such_race() -> None:
    subject = crash(signal="SIGSEGV", frames="f > " + WORKER)
    with_gil = tuple(msgspec.structs.replace(thread, holds_gil=False) for thread in subject.threads)
    subject = msgspec.structs.replace(subject, python=PythonRuntime(version="3.14.0", free_threaded=True), threads=with_gil)
    assert "free-threaded-race" not in {finding.id for finding in diagnose(subject, load_catalog()).findings}


def test_no_deadlock_over_a_gil_that_is_off() -> None:
    """Threads that wait until a stopped world goes on stand in functions that take the GIL in other builds."""
    case = CASES["gil-gloo-destructor-deadlock"]
    found = []
    for free_threaded in (False, True):
        subject = msgspec.structs.replace(crash(**case.crash), python=PythonRuntime(version="3.14.0", free_threaded=free_threaded))
        found.append("deadlock-gil-native-lock" in {finding.id for finding in diagnose(subject, load_catalog()).findings})
    assert found == [True, False]


VALGRIND = (
    "==7== HEAP SUMMARY:\n==7==     in use at exit: 72 bytes in 2 blocks\n==7== \n"
    "==7== 72 bytes in 2 blocks are still reachable in loss record 1 of 1\n"
    "==7==    at 0x4848899: {allocator} (in /usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so)\n"
    "==7==    by 0x109171: load (table.c:31)\n==7==    by 0x1091A5: main (main.c:9)\n==7== \n"
    "==7== LEAK SUMMARY:\n==7==    still reachable: 72 bytes in 2 blocks\n==7== ERROR SUMMARY: 0 errors from 0 contexts (suppressed: 0 from 0)\n"
)
HEALTHY = {
    "a leaf of CPUID": "CPU:\n   0x80000003 0x00: eax=0x37692029 ebx=0x30323539 ecx=0x20204658 edx=0x00000000\n",
    "a number of tokens": "processed 2147483651 tokens\n",
    "a number of bytes": "wrote 1073741845 bytes\n",
    "the id of a row": "id 3221225725 stored\n",
    "a 32-bit address": "mapped the buffer at 0xc0000008\n",
    **{
        f"valgrind: {name} still reachable": VALGRIND.format(allocator=name)
        for name in ("malloc", "calloc", "operator new(unsigned long)", "strdup")
    },
    "valgrind: a file left open": "==7== FILE DESCRIPTORS: 4 open at exit.\n==7== Open file descriptor 3: /etc/passwd\n==7==    at 0x49C0D3B: open (open64.c:41)\n==7==    by 0x109171: main (main.c:9)\n",
    "a count in a table": "Status der Aufträge\n9 Fertig\n14 Abgebrochen\n",
    "a job of a table": "1042  Abandon    12:30\n",
    "the state of a task": "任务 17 状态: 已中止\n",
    "a menu": "3 取消\n",
    "an assertion of a test": "Assertion failed: response.status == 200\n\n1 failed, 30 passed in 2.10s\n",
    "an assertion that GoogleTest prints": "[ RUN      ] Node.next\nAssertion failed: p->x == 3\n[       OK ] Node.next (0 ms)\n[==========] 4 tests from 1 test suite ran. (1 ms total)\n[  PASSED  ] 4 tests.\n",
    "an assertion that Catch2 prints": "Assertion failed: p->x == 3\ntest cases:  8 |  7 passed | 1 failed\nassertions: 31 | 30 passed | 1 failed\n",
    "an assertion that CTest prints": "Assertion failed: p->x == 3\n\n100% tests passed, 0 tests failed out of 12\n",
    "an assertion that unittest prints": "a.cc:12: ASSERT failed: p->x\n.....\nRan 5 tests in 0.002s\n\nOK\n",
    "an assertion that pytest prints": "Assertion failed: p->x == 3\n========== 1 failed, 30 passed in 2.10s ==========\n",
    "workers that are stopped while idle": "INFO autoscaler: killed 3 idle workers to free memory\n",
    "a pod that was replaced": "previous pod 'Terminated' after rollout\n",
    "a job that was stopped": "$ kill %1\n[1]+  Terminated              sleep 100\n",
    "a test of an exception": "test_bad_alloc: caught std::bad_alloc as expected\n",
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_tells_of_no_crash(name: str, tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text(HEALTHY[name])
    try:
        subject = crash_of_log(path, read_log(path))
    except EvidenceError:
        return
    assert subject.signal is None
    assert not diagnose(subject, load_catalog()).findings


@pytest.mark.parametrize(
    ("text", "identity"),
    [
        ("==7==    at 0x10916B: store (table.c:31)\n==7==    by 0x1091A5: main (main.c:9)\n", "valgrind-report"),
        ("Assertion failed: node->next != NULL\n", "c-assertion-failed"),
        ("[  PASSED  ] 4 tests.\nAssertion failed: node->next != NULL\n", "c-assertion-failed"),
        ("Assertion failed: p->x\nAborted (core dumped)\n0% tests passed, 1 tests failed out of 1\n", "c-assertion-failed"),
        ("run.sh: line 3: 811 Terminated              python app.py\n", "killed-by-sigterm"),
        ("python was killed by the OS for memory\n", "killed-by-signal-9-unknown"),
    ],
)
def test_what_resembles_a_healthy_log(text: str, identity: str, tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text(text)
    found = [finding.id for finding in diagnose(crash_of_log(path, read_log(path)), load_catalog()).findings]
    assert identity in found
