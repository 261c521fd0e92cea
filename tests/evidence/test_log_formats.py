"""Texts that real programs print: every interpreter's faulthandler, glibc, libstdc++, gdb, torch, sanitizers."""

# ruff: noqa: E501

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from crashkit.evidence.text.log import LogEvidence, read_log
from crashkit.model import NativeFrame, PythonFrame
from crashkit.naming.machinery import SIGNAL_FRAME
from crashkit.pipeline import Options, analyze
from crashkit.report import wording

from ..crashes import CRASHERS, NO_COMPILER, NO_GDB, NO_TORCH, Interpreter, every_interpreter
from ..test_support_matrix import made, sid_is_there

THREADS = """
import ctypes, faulthandler, sys, threading
faulthandler.enable()
ready, never = threading.Barrier(3), threading.Event()
def nested(depth):
    if depth:
        return nested(depth - 1)
    ready.wait()
    {action}
def work():
    nested(3)
def sleeper():
    ready.wait()
    never.wait()
threads = [threading.Thread(target=target, daemon=True) for target in (work, sleeper)]
for thread in threads:
    thread.start()
ready.wait()
for thread in threads:
    thread.join()
"""

ACTIONS = {
    "segv": ("ctypes.string_at(16)", 11),
    "abort": ("ctypes.CDLL(None).abort()", 6),
    "fatal": ("faulthandler._fatal_error(b'a test', True)", 6),
}


def ended(tmp_path: Path, *command: str, **environment: str) -> Path:
    """Where the output of a program lies that was run until it ended; it leaves no core."""
    log = tmp_path / "stderr.log"
    with log.open("wb") as file:
        variables = {**os.environ, "LD_BIND_NOW": "", **environment}
        subprocess.run(["prlimit", "--core=0", *command], stdout=file, stderr=file, check=False, timeout=120, cwd=tmp_path, env=variables)
    return log


def kinds(evidence: LogEvidence) -> list[str | None]:
    return [line.kind for line in evidence.lines]


@pytest.mark.slow
@pytest.mark.parametrize("interpreter", every_interpreter())
@pytest.mark.parametrize("action", ["segv", "abort", "fatal"])
def test_faulthandler_of_every_interpreter(interpreter: Interpreter, action: str, tmp_path: Path) -> None:
    code, number = ACTIONS[action]
    if action == "fatal" and interpreter.version >= (3, 10):
        code = "faulthandler._fatal_error_c_thread()"
    script = tmp_path / "case.py"
    script.write_text(THREADS.replace("{action}", code))
    log = ended(tmp_path, str(interpreter.path), str(script))

    evidence = read_log(log)

    assert evidence.kind == "faulthandler"
    assert evidence.signal is not None
    assert evidence.signal.number == number
    # From 3.14 on a fatal error prints the threads twice: the second time with the C stack, of a thread that here is none of Python's.
    dumps = re.split("^Fatal Python error: ", log.read_text(), flags=re.MULTILINE)[1:]
    assert len(dumps) == (2 if action == "fatal" and interpreter.version >= (3, 14) else 1)
    blocks = re.findall(r"^(Current thread|Thread) 0x([0-9a-f]+)", dumps[-1], re.MULTILINE)
    outside = [(None, True)] if len(dumps) == 2 else []
    assert [(thread.tid, thread.crashed) for thread in evidence.threads] == [
        *((int(tid, 16), kind == "Current thread") for kind, tid in blocks),
        *outside,
    ]
    c_stack = re.findall(r"^  Binary file .*\[0x([0-9a-f]+)\]$", dumps[-1], re.MULTILINE)
    natives = [frame for thread in evidence.threads if thread.crashed for frame in thread.natives()]
    assert [frame.pc for frame in natives] == [int(address, 16) for address in c_stack]
    assert bool(c_stack) == (interpreter.version >= (3, 14))
    printed = re.findall(r'^  File "(.*)", line (\d+) in (.*)$', dumps[-1], re.MULTILINE)
    frames = [frame for thread in evidence.threads for frame in thread.pythons()]
    assert [(frame.file, str(frame.line), frame.function) for frame in frames] == printed
    if action != "fatal":
        crashed = next(thread for thread in evidence.threads if thread.crashed)
        assert [frame.function for frame in crashed.pythons()][-4:-1] in (["nested", "work", "run"], ["work", "run", "_bootstrap_inner"])


def test_watchdog(tmp_path: Path) -> None:
    code = "import faulthandler, threading; faulthandler.dump_traceback_later(0.2, exit=True); threading.Event().wait()"
    evidence = read_log(ended(tmp_path, sys.executable, "-c", code))
    assert kinds(evidence) == ["watchdog-timeout"]
    assert evidence.signal is None
    assert len(evidence.threads) == 1
    assert not evidence.threads[0].crashed


LIBC = (
    "import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; c.free.argtypes = [ctypes.c_void_p]; "
    "c.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]; "
)
GLIBC = {
    "double-free": LIBC + "p = c.malloc(24); c.free(p); c.free(p)",
    "invalid-free": LIBC + "p = c.malloc(64); c.memset(p, 0, 64); c.free(p + 16)",
    "heap-overflow": LIBC + "p = c.malloc(0x1f000); c.memset(p, 0xff, 0x1f018); c.malloc(0x1f800)",
}


@pytest.mark.parametrize("kind", ["double-free", "invalid-free", "heap-overflow"])
def test_glibc_aborts(kind: str, tmp_path: Path) -> None:
    evidence = read_log(ended(tmp_path, sys.executable, "-c", GLIBC[kind], PYTHONMALLOC="malloc"))
    assert kind in kinds(evidence), evidence.lines
    assert evidence.signal is not None
    assert evidence.signal.name == "SIGABRT"


CXX = {
    "terminate": ('#include <stdexcept>\nint main() { throw std::runtime_error("no such model"); }', "terminate"),
    "terminate-bare": ("#include <thread>\nint main() { std::thread t([] { for (;;) ; }); }", "terminate-bare"),
    "pure-virtual": (
        "struct A { A() { call(); } void call() { run(); } virtual void run() = 0; };\nstruct B : A { void run() override {} };\nint main() { B b; }",
        "pure-virtual",
    ),
    "stack-smashing": (
        '#include <cstring>\n__attribute__((noinline)) void f(const char *s) { char b[8]; strcpy(b, s); __asm__("" ::"r"(b) : "memory"); }\n'
        'int main(int n, char **v) { f(n > 5 ? "x" : "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"); }',
        "stack-smashing",
    ),
}


def built(tmp_path: Path, source: str, *flags: str) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip(NO_COMPILER)
    (tmp_path / "program.cpp").write_text(source)
    subprocess.run([compiler, "-g", "-w", *flags, "program.cpp", "-o", "program", "-pthread"], cwd=tmp_path, check=True)
    return tmp_path / "program"


@pytest.mark.slow
@pytest.mark.parametrize("name", CXX)
def test_libstdcxx_and_fortify(name: str, tmp_path: Path) -> None:
    source, kind = CXX[name]
    program = built(tmp_path, source, "-fstack-protector-all", "-U_FORTIFY_SOURCE")
    evidence = read_log(ended(tmp_path, str(program)))
    assert kind in kinds(evidence), evidence.lines
    if name == "terminate":
        assert evidence.lines[0].fields["type"] == "std::runtime_error"
        assert [line.fields["what"] for line in evidence.lines if line.kind == "what"] == ["no such model"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "source", "kind", "problem"),
    [
        ("address", "#include <cstdlib>\nint main() { char *p = (char *)malloc(8); free(p); return p[2]; }", "asan", "heap-use-after-free"),
        ("undefined", "int main(int n, char **) { int shift = 40 * n; return 1 << shift; }", "ubsan", "shift exponent"),
        ("thread", "#include <thread>\nint x; int main() { std::thread t([] { x = 1; }); x = 2; t.join(); }", "tsan", "data race"),
    ],
)
def test_sanitizers(flag: str, source: str, kind: str, problem: str, tmp_path: Path) -> None:
    program = built(tmp_path, source, f"-fsanitize={flag}")
    for _ in range(20):  # a data race is seen if the threads run at the same time
        log = ended(tmp_path, "setarch", "-R", str(program))
        if log.read_text():
            break
    if "unexpected memory mapping" in log.read_text():
        pytest.skip("this kernel's address layout does not suit the sanitizer")
    evidence = read_log(log)
    line = next(line for line in evidence.lines if line.kind == kind)
    assert problem in line.fields["problem"]
    if kind == "asan":
        frame = next(frame for frame in evidence.threads[0].natives())
        assert (frame.function, Path(frame.file or "").name, frame.line) == ("main", "program.cpp", 2)
        assert line.fields["operation"] == "read of 1 byte"


@pytest.mark.slow
@pytest.mark.parametrize("newer", [False, True])
def test_the_block_of_an_address_sanitizer_report(newer: bool, tmp_path: Path) -> None:
    source = """#include <cstring>
        __attribute__((noinline)) char *make(int n) { return new char[n]; }
        __attribute__((noinline)) void drop(char *p) { delete[] p; }
        int main(int n, char **) { char *p = make(24); if (n > 1) drop(p); memset(p + (n > 1 ? 2 : -8), 0, 4); drop(p); }
    """
    program = built(tmp_path, source, "-fsanitize=address")
    fields = []
    for arguments in ([], ["x"]):
        log = ended(tmp_path, "setarch", "-R", str(program), *arguments)
        if newer:  # the words of LLVM 16 and GCC 13
            log.write_text(log.read_text().replace("to the left of", "before"))
        fields.append(next(line for line in read_log(log).lines if line.kind == "asan").fields)
    assert (fields[0]["where"], fields[0]["allocated"]) == ("8 bytes before a block of 24 bytes", "make") and "freed" not in fields[0]
    assert (fields[1]["where"], fields[1]["allocated"], fields[1]["freed"]) == ("2 bytes into a freed block of 24 bytes", "make", "drop")


@pytest.mark.slow
def test_a_sanitizers_frame_without_a_name(tmp_path: Path) -> None:
    program = built(
        tmp_path, "#include <cstdlib>\nint main() { char *p = (char *)malloc(8); free(p); free(p); }", "-fsanitize=address", "-s"
    )
    evidence = read_log(ended(tmp_path, "setarch", "-R", str(program)))
    frame = next(frame for frame in evidence.threads[0].natives() if "program" in (frame.module or ""))
    assert frame.function is None and frame.offset and frame.pc
    assert next(line for line in evidence.lines if line.kind == "asan").fields["problem"] == "double-free"


@pytest.mark.slow
def test_an_exception_that_the_sanitizer_does_not_know(tmp_path: Path) -> None:
    """AddressSanitizer is preloaded without the C++ library; the frames are read with and without the line above them."""
    source = 'extern "C" int thrown() { try { throw 1; } catch (int value) { return value; } }'
    library = built(tmp_path, source, "-shared", "-fPIC").rename(tmp_path / "thrown.so")
    runtime = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
    code = f"import ctypes; ctypes.CDLL({str(library)!r}).thrown()"
    log = ended(tmp_path, "env", f"LD_PRELOAD={runtime}", "ASAN_OPTIONS=detect_leaks=0", sys.executable, "-c", code)
    whole = read_log(log)
    assert kinds(whole) == ["asan-order"]
    log.write_text(log.read_text().partition("\n")[2])
    for evidence in (whole, read_log(log)):
        functions = [frame.function for frame in evidence.threads[0].natives()]
        assert (
            {"__interceptor___cxa_throw", "__cxa_throw"} & {*functions}  # GCC 14 has the second name
            and "thrown" in functions
            and all(" " not in function.partition("(")[0] for function in functions if function)
        )


@pytest.mark.slow
def test_gdb_text(tmp_path: Path) -> None:
    if shutil.which("gdb") is None:
        pytest.skip(NO_GDB)
    program = built(
        tmp_path,
        "#include <csignal>\n#include <thread>\nvoid deep(int n) { if (n) deep(n - 1); else raise(SIGSEGV); }\nint main() { std::thread t(deep, 3); t.join(); }",
    )
    log = ended(
        tmp_path, "gdb", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "run", "-ex", "thread apply all bt", str(program)
    )

    evidence = read_log(log)

    assert evidence.kind == "gdb"
    assert evidence.signal is not None
    assert evidence.signal.name == "SIGSEGV"
    assert len(evidence.threads) == 2
    deep = next(thread for thread in evidence.threads if any(frame.function == "deep" for frame in thread.natives()))
    calls = [frame for frame in deep.natives() if frame.function == "deep"]
    assert [frame.args for frame in calls] == [{"n": "0"}, {"n": "1"}, {"n": "2"}, {"n": "3"}]
    assert all(frame.line == 3 and (frame.file or "").endswith("program.cpp") for frame in calls)


def test_traceback_with_chain(tmp_path: Path) -> None:
    code = "def f():\n    raise KeyError('a')\ntry:\n    f()\nexcept KeyError as e:\n    raise RuntimeError('CUDA error: an illegal memory access was encountered') from e\n"
    (tmp_path / "case.py").write_text(code)
    evidence = read_log(ended(tmp_path, sys.executable, "case.py"))
    assert [(line.kind, line.fields["exception"]) for line in evidence.lines] == [
        ("exception", "KeyError"),
        ("cuda-illegal-access", "RuntimeError"),
    ]
    innermost = next(evidence.threads[0].pythons())
    assert (innermost.line, innermost.function) == (6, "<module>")


FAILS_AFTERWARDS = {
    "deallocator": "class Late:\n    def __del__(self): raise KeyError('late')\nkept = [Late()]\n",
    "atexit": "import atexit\n@atexit.register\ndef late(): raise KeyError('late')\n",
    "excepthook": "import sys\ndef late(*rest): raise KeyError('late')\nsys.excepthook = late\n",
    "generator": "def late():\n    try: yield\n    finally: raise KeyError('late')\nkept = late(); next(kept)\n",
    "logging": "import logging\nlogging.getLogger().error('%d', 'no number')\n",
}
"""Programs in which another exception is printed beside the one that ends them."""


@pytest.mark.parametrize("name", FAILS_AFTERWARDS)
def test_an_exception_that_python_ignored_is_not_the_one_that_ended_it(name: str, tmp_path: Path) -> None:
    code = (
        FAILS_AFTERWARDS[name] + "def ending():\n    raise RuntimeError('CUDA error: an illegal memory access was encountered')\nending()\n"
    )
    (tmp_path / "case.py").write_text(code)
    evidence = read_log(ended(tmp_path, sys.executable, "case.py"))
    assert {line.fields["exception"] for line in evidence.lines if "exception" in line.fields} > {"RuntimeError"}
    assert [frame.function for frame in evidence.threads[0].pythons()] == ["ending", "<module>"]


def test_an_exception_that_only_was_ignored_is_shown(tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(FAILS_AFTERWARDS["deallocator"])
    text = ended(tmp_path, sys.executable, "case.py").read_text()
    log = tmp_path / "more.log"
    log.write_text(text + "Killed\n")
    assert [frame.function for frame in read_log(log).threads[0].pythons()] == ["__del__"]


def test_cython_prints_what_it_ignores_twice(tmp_path: Path) -> None:
    """As CuPy ends after an error of a kernel, shortened."""
    ignored = """Traceback (most recent call last):
  File "cupy_backends/cuda/api/driver.pyx", line 73, in cupy_backends.cuda.api.driver.check_status
cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered
"""
    log = tmp_path / "stderr.log"
    log.write_text(
        'Traceback (most recent call last):\n  File "/srv/app.py", line 99, in total\n    print(float(y.sum()))\n'
        '  File "cupy_backends/cuda/api/runtime.pyx", line 146, in cupy_backends.cuda.api.runtime.check_status\n'
        "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access was encountered\n"
        f"{ignored}Exception ignored in: 'cupy.cuda.function.Module.__dealloc__'\n{ignored}"
    )
    assert [frame.function for frame in read_log(log).threads[0].pythons()][-1] == "total"


def test_exception_group(tmp_path: Path) -> None:
    if sys.version_info < (3, 11):
        pytest.skip("exception groups came with Python 3.11")
    code = "def f():\n    raise ValueError('CUDA out of memory. Tried to allocate 2.00 GiB')\ntry:\n    f()\nexcept ValueError as e:\n    raise ExceptionGroup('several', [e])\n"
    (tmp_path / "case.py").write_text(code)
    evidence = read_log(ended(tmp_path, sys.executable, "case.py"))
    assert "cuda-oom" in kinds(evidence)


@pytest.mark.chroot
@pytest.mark.slow
@pytest.mark.skipif(not sid_is_there(), reason="no Debian sid here: run as root with CRASHKIT_TEST_CHROOT=1")
def test_the_c_stack_of_314_leads_to_where_the_core_says(tmp_path: Path) -> None:
    """It begins with faulthandler's own frames."""
    crash = made("3.14 of Debian sid, from a container, debug info")
    (tmp_path / "stderr.log").write_text(crash.folder.stderr)
    core, log = analyze(crash.folder.core, options=Options(sysroot=crash.sysroot)), analyze(tmp_path / "stderr.log")
    failed = [wording.native_at(one.thread, one.signal) for one in (core, log)]
    assert failed[0] is not None and failed[1] is not None and failed[0].pc == failed[1].pc
    assert "_Py_DumpStack" not in wording.sentence(log)


def test_where_the_c_stack_of_314_ends_with_the_signal_faulthandler_is_not_blamed(tmp_path: Path) -> None:
    """As for a call of a null pointer, from which nothing leads on."""
    log = tmp_path / "stderr.log"
    log.write_text(
        'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f0000000002 (most recent call first):\n  File "/x.py", line 9 in f\n\n'
        "Current thread's C stack trace (most recent call first):\n"
        '  Binary file "/usr/bin/python3.14", at _Py_DumpStack+0x4a [0x49b2f9]\n'
        '  Binary file "/usr/bin/python3.14" [0x53d28e]\n'
        '  Binary file "/usr/lib/libc.so.6", at +0x406b0 [0x7fba404726b0]\n'
    )
    crash = analyze(log)
    assert wording.native_at(crash.thread, crash.signal) is None and wording.sentence(crash) == "Segmentation fault in f (/x.py:9)."


def test_python_314_text(tmp_path: Path) -> None:
    """No interpreter of 3.14 is at hand: written after Python/traceback.c, with the C stack and thread names."""
    log = tmp_path / "stderr.log"
    log.write_text(
        "Fatal Python error: Segmentation fault\n\n"
        'Thread 0x00007f0000000001 [worker] (most recent call first):\n  File "/x.py", line 3 in f\n\n'
        'Current thread 0x00007f0000000002 [MainThread] (most recent call first):\n  Garbage-collecting\n  File "/x.py", line 9 in <module>\n\n'
        "Current thread's C stack trace (most recent call first):\n"
        '  Binary file "/usr/bin/python3.14", at _Py_DumpStack+0x3f [0x5d2a40]\n'
        '  Binary file "/usr/lib/libc.so.6" [0x7f1234]\n'
        "  Binary file '<unknown>' [0x7f9999]\n"
        "  <truncated rest of calls>\n\nExtension modules: torch._C, numpy.core (total: 2)\n"
    )
    evidence = read_log(log)
    assert [(thread.name, thread.crashed) for thread in evidence.threads] == [("worker", False), ("MainThread", True)]
    crashed = evidence.threads[1]
    assert [frame.function for frame in crashed.natives()] == ["_Py_DumpStack", SIGNAL_FRAME, None]
    assert [frame.module for frame in crashed.natives()] == ["/usr/bin/python3.14", "/usr/lib/libc.so.6", None]
    assert [frame.line for frame in crashed.pythons()] == [9]


@pytest.mark.torch
def test_dataloader_of_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=NO_TORCH)
    code = (
        "import ctypes, torch\n"
        "class Bad(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, i): ctypes.string_at(8)\n"
        "for _ in torch.utils.data.DataLoader(Bad(), num_workers=1): pass\n"
    )
    (tmp_path / "case.py").write_text(code)
    evidence = read_log(ended(tmp_path, sys.executable, "case.py"))
    assert kinds(evidence)[0] == "worker-segfault"
    assert set(kinds(evidence)) <= {"worker-segfault", "worker-exited", "exception"}
    assert evidence.signal is not None
    assert evidence.signal.name == "SIGSEGV"


def test_frames_of_gdb_with_modules_and_python(tmp_path: Path) -> None:
    log = tmp_path / "gdb.txt"
    log.write_text(
        "(gdb) bt\n#0  0x00007fffd721ec4b in ?? () from /usr/lib/libcuda.so.1\n#1  0x00007fffd7290f40 in cuLaunchKernel () from /usr/lib/libcuda.so.1\n"
        "#2  0x00007fffa72f2dcb in cudart::cudaApiLaunchCommon(void const*, bool) ()\n   from /venv/torch/lib/libcaffe2_gpu.so\n"
        "#3  <signal handler called>\n(gdb) py-bt\nTraceback (most recent call first):\n  <built-in method _cudnn_rnn>\n"
        '  File "/venv/rnn.py", line 288, in forward\n    dropout_ts)\n'
    )
    thread = read_log(log).threads[0]
    natives = list(thread.natives())
    assert [(frame.function, frame.module) for frame in natives[:3]] == [
        (None, "/usr/lib/libcuda.so.1"),
        ("cuLaunchKernel", "/usr/lib/libcuda.so.1"),
        ("cudart::cudaApiLaunchCommon(void const*, bool)", "/venv/torch/lib/libcaffe2_gpu.so"),
    ]
    assert isinstance(natives[3], NativeFrame)
    assert natives[3].trust == "signal"
    assert list(thread.pythons()) == [
        PythonFrame(function="forward", file="/venv/rnn.py", line=288, source="dropout_ts)", origin="libpython")
    ]


def test_the_sanitizer_of_gcc_14_has_no_names_of_its_own() -> None:
    """Its malloc(), free() and memset() are none of the program's functions."""
    crash = analyze(CRASHERS.parent / "logs" / "asan-gcc-14.log")
    native = wording.native_at(crash.thread, crash.signal)
    assert native is not None and (native.function, native.line) == ("main", 4)
    summary = crash.findings[0].summary or ""
    assert "It happened in main." in summary and "made allocated it. main freed it." in summary


CLANG: dict[str, str] = msgspec.toml.decode((CRASHERS.parent / "logs" / "sanitizers-clang-14.toml").read_bytes())


@pytest.mark.parametrize("name", sorted(set(CLANG) - {"msan"}))
def test_a_fault_that_a_sanitizer_of_clang_caught(name: str, tmp_path: Path) -> None:
    """The line of the program, without the column; a pointer that can be no address is printed as 0 or not at all, and was none."""
    (log := tmp_path / "err.log").write_text(CLANG[name])
    crash = analyze(log)
    native = wording.native_at(crash.thread, crash.signal)
    assert native is not None and (native.function, native.file, native.line) == ("read_from", "/src/s.c", 2)
    sanitizer, _, pointer = name.partition("-")
    assert crash.signal is not None and crash.signal.name == "SIGSEGV"
    assert crash.signal.reason == ("null-pointer" if pointer == "null" else "non-canonical")
    finding = crash.findings[0]
    if name == "undefined-wild":
        assert (finding.id, finding.confidence) == ("ubsan-report", "certain"), "the pointer is misaligned, too"
        assert "load of misaligned address" in finding.summary
    elif sanitizer == "address":
        assert finding.id == "asan-report"
        said = "in the zero page: the pointer was null" if pointer == "null" else "no address of this machine"
        assert said in finding.summary and "SEGV (read)" in finding.summary
    else:
        assert finding.id == ("null-deref" if pointer == "null" else "wild-pointer"), "it is no finding of the sanitizer's own"


def test_memory_that_nothing_was_written_to(tmp_path: Path) -> None:
    (log := tmp_path / "err.log").write_text(CLANG["msan"])
    crash = analyze(log)
    (finding,) = crash.findings
    assert (finding.id, finding.confidence, crash.signal) == ("msan-report", "certain", None)
    assert (
        "decode made a decision based on memory that was never initialized" in finding.summary and "main allocated it." in finding.summary
    )
    assert finding.fix[0] == "Initialize the memory that main allocates before decode reads it."
