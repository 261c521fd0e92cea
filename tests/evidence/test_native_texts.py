"""Native stacks in texts: by programs that run here (Rust, the JVM, valgrind, glibc), and as people post them of other systems."""

# ruff: noqa: E501, W293

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Optional

import pytest

from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import LogEvidence, read_log
from crashkit.model import ElidedFrames
from crashkit.naming.machinery import SIGNAL_FRAME
from crashkit.naming.mangled import demangled
from crashkit.pipeline import analyze

from ..crashes import NO_COMPILER, crash
from .test_log_formats import ended

DEADLINE = 60


def kinds(evidence: LogEvidence) -> list[Optional[str]]:
    return [line.kind for line in evidence.lines]


def functions(evidence: LogEvidence) -> list[Optional[str]]:
    thread = next(thread for thread in evidence.threads if thread.crashed)
    return [frame.function for frame in thread.natives()]


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def compiled(tmp_path: Path, source: str, *flags: str) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip(NO_COMPILER)
    (tmp_path / "program.cpp").write_text(source)
    command = [compiler, "-g", "-O0", "-w", *flags, "program.cpp", "-o", "program", "-rdynamic", "-pthread"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=DEADLINE)
    return tmp_path / "program"


RUST = """
mod jobs {{ pub fn take(jobs: &Vec<u32>, index: usize) -> u32 {{ jobs[index] }} }}
fn main() {{ let jobs: Vec<u32> = Vec::new(); {call} }}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "flags", "signal"),
    [
        ('println!("{}", jobs::take(&jobs, 7));', ["-Cpanic=abort"], None),
        ('extern "C" fn f(n: usize) { let v: Vec<u32> = Vec::new(); jobs::take(&v, n); } f(jobs.len() + 7);', [], "SIGABRT"),
    ],
)
def test_rust(call: str, flags: list[str], signal: Optional[str], tmp_path: Path) -> None:
    (tmp_path / "main.rs").write_text(RUST.format(call=call))
    build = [tool("rustc"), "-g", *flags, "main.rs", "-o", "program"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True, timeout=DEADLINE)
    evidence = read_log(ended(tmp_path, str(tmp_path / "program"), RUST_BACKTRACE="1"))
    panic = next(line for line in evidence.lines if line.kind == "rust-panic")
    assert panic.fields["message"] == "index out of bounds: the len is 0 but the index is 7"
    assert panic.fields["place"].startswith("main.rs:2:")
    assert "main::jobs::take" in functions(evidence)
    assert (evidence.signal.name if evidence.signal else None) == signal


def test_rust_without_memory(tmp_path: Path) -> None:
    (tmp_path / "main.rs").write_text('fn main() { let v: Vec<u8> = Vec::with_capacity(1 << 46); println!("{}", v.len()); }')
    subprocess.run([tool("rustc"), "main.rs", "-o", "program"], cwd=tmp_path, check=True, capture_output=True, timeout=DEADLINE)
    evidence = read_log(ended(tmp_path, str(tmp_path / "program")))
    assert kinds(evidence)[0] == "rust-alloc-failed"
    assert evidence.lines[0].fields["bytes"] == str(1 << 46)


JAVA = """
public class Crash {
    public static void main(String[] arguments) throws Exception {
        java.lang.reflect.Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        ((sun.misc.Unsafe) field.get(null)).putAddress(16, 1);
    }
}
"""


@pytest.mark.slow
def test_jvm(tmp_path: Path) -> None:
    java = tool("java")
    (tmp_path / "Crash.java").write_text(JAVA)
    log = ended(tmp_path, java, "-XX:-CreateCoredumpOnCrash", "Crash.java")
    if "Java Runtime Environment" not in log.read_text():
        pytest.skip("this java runs no source files")
    evidence = read_log(log)
    fatal = next(line for line in evidence.lines if line.kind == "jvm")
    assert fatal.fields["signal"] == "SIGSEGV"
    assert "libjvm.so" in fatal.fields["problem"] and fatal.fields["file"].endswith(".log")
    assert evidence.signal is not None and evidence.signal.name == "SIGSEGV"
    report = read_log(next(tmp_path.glob("hs_err_pid*.log")))
    assert report.signal is not None and report.signal.address == 16
    assert "Unsafe_Put" in (functions(report)[0] or "")
    assert "Crash.main([Ljava/lang/String;)V" in functions(report)


@pytest.mark.slow
def test_valgrind(tmp_path: Path) -> None:
    valgrind = tool("valgrind")
    source = "#include <cstdlib>\nint peek(int *p) { return p[9]; }\nint main() { int *p = (int *)malloc(8); int n = peek(p); abort(); return n; }\n"
    program = str(compiled(tmp_path, source))
    evidence = read_log(ended(tmp_path, valgrind, program, "two words"))
    assert evidence.process is not None and evidence.process.argv == (program, "two words")
    first = next(line for line in evidence.lines if line.kind == "valgrind")
    assert first.fields["problem"] == "Invalid read of size 4"
    assert functions(evidence)[:2] == ["peek(int*)", "main"]
    assert evidence.signal is not None and evidence.signal.name == "SIGABRT"


@pytest.mark.slow
def test_gdb_tells_the_command(tmp_path: Path) -> None:
    program = str(compiled(tmp_path, "int main(int count, char **) { return *(volatile int *)(count * 8l); }\n"))
    log = ended(tmp_path, tool("gdb"), "-nx", "-batch", "-ex", "run", "-ex", "bt", "--args", program, "two words")
    rows = log.read_text().splitlines()
    # In batch mode gdb does not print the line that it prints on a terminal (run_command_1, gdb's infcmd.c).
    log.write_text("\n".join([f"Starting program: {program} two\\ words", *rows]))
    process = read_log(log).process
    assert process is not None and process.argv == (program, "two words")


@pytest.mark.slow
@pytest.mark.parametrize(("words", "known"), [(3, True), (30, False)], ids=["whole", "cut by the kernel"])
def test_gdb_tells_the_command_of_a_core(words: int, known: bool, tmp_path: Path) -> None:
    (script := tmp_path / "ends").write_text("#!/bin/sh\nkill -SEGV $$\n")
    script.chmod(0o755)
    made = crash(["./ends", *["a-word"] * words], tmp_path)
    log = ended(tmp_path, tool("gdb"), "-nx", "-batch", "-ex", "bt", "-core", str(made.core))
    assert "Core was generated by" in log.read_text()
    process = read_log(log).process
    assert (process is not None and process.argv[-words:] == ("a-word",) * words) is known
    assert known or process is None or not process.argv


@pytest.mark.parametrize(
    ("told", "argv"),
    [
        ("Core was generated by `python3 -c import ctypes; ctypes.string_at(0)'.", ()),
        (
            "Starting program: /usr/bin/python3 -c import\\ ctypes\\;\\ ctypes.string_at\\(0\\)",
            ("/usr/bin/python3", "-c", "import ctypes; ctypes.string_at(0)"),
        ),
        ("Core was generated by `first --a'.\nCore was generated by `second --b'.", ()),
    ],
    ids=["code without quotes", "code with quotes", "two"],
)
def test_a_command_that_cannot_be_typed_again(told: str, argv: tuple[str, ...], tmp_path: Path) -> None:
    (log := tmp_path / "gdb.txt").write_text(
        f"{told}\nProgram terminated with signal SIGSEGV, Segmentation fault.\n#0  0x00007f00 in f () at a.c:3\n"
    )
    process = read_log(log).process
    assert (process.argv if process is not None else ()) == argv


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (("0x00007ffff7a8c3cb in reload (tstate=0x1, cached=cached@entry=0x0, ", "    info=0x7fff) at /src/import.c:1763"), 1763),
        (("error (while reading symbols,", "[New Thread 0x7f0 (LWP 12)]", "loaded fine) at /srv/other.c:99"), None),
        (("foo (a=1,", *["b"] * 20, "c=3) at /srv/other.c:99"), None),
    ],
    ids=["broken", "other words", "too long"],
)
def test_where_gdb_stopped_on_a_broken_line(rows: tuple[str, ...], line: Optional[int], tmp_path: Path) -> None:
    (log := tmp_path / "gdb.txt").write_text("\n".join(["Program received signal SIGSEGV, Segmentation fault.", *rows]) + "\n")
    evidence = read_log(log)
    assert [frame.line for thread in evidence.threads for frame in thread.natives()] == ([line] if line else [])


HANDLER = """
#include <csignal>
#include <cstdlib>
#include <execinfo.h>
#include <unistd.h>
namespace store { __attribute__((noinline)) int read(int *where) { return *where; } }
void report(int) { void *frames[64]; backtrace_symbols_fd(frames, backtrace(frames, 64), 2); _exit(1); }
int main() { signal(SIGSEGV, report); return store::read((int *)8); }
"""


def test_backtrace_of_glibc(tmp_path: Path) -> None:
    log = ended(tmp_path, str(compiled(tmp_path, HANDLER)))
    log.write_text("Segmentation fault (core dumped)\n" + log.read_text())
    evidence = read_log(log)
    assert evidence.kind == "backtrace"
    assert "store::read" in functions(evidence) and "main" in functions(evidence)


def test_assertion_of_glibc(tmp_path: Path) -> None:
    source = '#include <cassert>\nstruct Queue { int size; void pop(int n) { assert(n <= size && "queue is empty"); } };\nint main() { Queue{0}.pop(2); }\n'
    (line,) = [line for line in read_log(ended(tmp_path, str(compiled(tmp_path, source)))).lines if line.kind == "c-assert"]
    assert line.fields["assertion"] == 'n <= size && "queue is empty"'
    assert line.fields["place"] == "program.cpp:2"


def test_bad_alloc(tmp_path: Path) -> None:
    evidence = read_log(ended(tmp_path, str(compiled(tmp_path, "#include <vector>\nint main() { std::vector<char> v(1ul << 46); }\n"))))
    assert evidence.lines[0].fields["type"] == "std::bad_alloc"


class Posted(NamedTuple):
    """A text as people post it, shortened."""

    kind: str
    signal: Optional[str]
    frames: tuple[Optional[str], ...]
    text: str
    address: Optional[int] = None
    threads: int = 1


POSTED = {
    "macOS": Posted(
        "apple",
        "SIGSEGV",
        ("PyObject_GetAttr", "_PyEval_EvalFrameDefault"),
        """\
Process:               Python [3577]
Crashed Thread:        1

Exception Type:        EXC_BAD_ACCESS (SIGSEGV)
Exception Codes:       KERN_INVALID_ADDRESS at 0x0000000000000028

Thread 0:: Dispatch queue: com.apple.main-thread
0   libsystem_kernel.dylib        	0x00007fff97e4711a __psynch_cvwait + 10

Thread 1 Crashed:
0   org.python.python             	0x000000010a851ce2 PyObject_GetAttr + 49
1   Python Framework              	0x000000010a8511f0 _PyEval_EvalFrameDefault + 28 (ceval.c:12)

Binary Images:
""",
        0x28,
        2,
    ),
    "macOS without a head": Posted(
        "apple-frames",
        "SIGABRT",
        ("abort", "abort_message", "demangling_terminate_handler()", "foo::Engine::start()", "cfunction_vectorcall_NOARGS"),
        """\
It quits when the second window opens:

0   libsystem_c.dylib             	0x00007fff6a35e808 abort + 120
1   libc++abi.dylib               	0x00007fff675b8458 abort_message + 231
2   libc++abi.dylib               	0x00007fff675a9bd1 demangling_terminate_handler() + 238
3   libfoo.dylib                  	0x0000000104e3b1c0 foo::Engine::start() + 332
4   python3.9                     	0x0000000104a0b1c0 cfunction_vectorcall_NOARGS + 60
""",
    ),
    "macOS without a head and its innermost frames": Posted(
        "apple-frames",
        None,
        ("_imp_create_dynamic", "cfunction_vectorcall_FASTCALL", "_PyEval_EvalFrameDefault"),
        """\
Importing it crashes the interpreter

    39  python3.12                          0x0000000100e6a89c _imp_create_dynamic + 168
    40  python3.12                          0x0000000100d34120 cfunction_vectorcall_FASTCALL + 96
    41  python3.12                          0x0000000100e25c48 _PyEval_EvalFrameDefault + 230832
""",
    ),
    "lldb": Posted(
        "lldb",
        "SIGSEGV",
        ("PyErr_Fetch", "cv::imshow(int)"),
        """\
(lldb) bt all
* thread #1, queue = 'com.apple.main-thread', stop reason = EXC_BAD_ACCESS (code=1, address=0x48)
  * frame #0: 0x00000001000b5678 Python`PyErr_Fetch + 24
    frame #1: 0x0000000103a1b2c3 cv2.so`cv::imshow(int) at window.cpp:35:7 [opt]
  thread #2
    frame #0: 0x00007fff2030c8e2 libsystem_kernel.dylib`__workq_kernreturn + 10
""",
        address=0x48,
        threads=2,
    ),
    "lldb on Linux": Posted(
        "lldb",
        "SIGSEGV",
        ("strlen",),
        "* thread #1, name = 'python3', stop reason = signal SIGSEGV: invalid address (fault address: 0x10)\n  * frame #0: 0x00007fbccf34a18b libc.so.6`strlen + 203\n",
        0x10,
    ),
    "systemd-coredump": Posted(
        "coredumpctl",
        "SIGSEGV",
        (None, "PQconnectPoll"),
        """\
           PID: 1234 (python3)
        Signal: 11 (SEGV)
    Executable: /usr/bin/python3.11
       Message: Process 1234 (python3) of user 1000 dumped core.
                
                Stack trace of thread 1240:
                #0  0x00007f662989ac1b n/a (libssl-fad88670.so.1.0.2l + 0x1ac1b)
                #1  0x00007f6629b1a600 PQconnectPoll (libpq.so.5 + 0x1a600)
                
                Stack trace of thread 1234:
                #0  0x00007f662989acff poll (libc.so.6 + 0x1acff)
""",
        threads=2,
    ),
    "Open MPI": Posted(
        "backtrace",
        "SIGSEGV",
        (SIGNAL_FRAME, "cpp2py::convert", None, "PyObject_Call"),
        """\
[node-7:16611] *** Process received signal ***
[node-7:16611] Signal: Segmentation fault (11)
[node-7:16611] Signal code: Address not mapped (1)
[node-7:16611] Failing at address: 0x12
[node-7:16611] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x3ef20)[0x15222b72ef20]
[node-7:16611] [ 1] /usr/lib/solver_core.so(_ZN6cpp2py7convertEP7_objectb+0x9d)[0x1521fb35705d]
[node-7:16611] [ 2] /usr/lib/solver_core.so(+0x7d17b)[0x1521fb33f17b]
[node-7:16611] [ 3] python(PyObject_Call+0x3e)[0x55ab89932e9e]
[node-7:16611] *** End of error message ***
""",
        0x12,
    ),
    "UCX": Posted(
        "backtrace",
        "SIGSEGV",
        (SIGNAL_FRAME, "PMPI_Comm_set_errhandler"),
        """\
[n1:140515:0:140515] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x54000009)
==== backtrace (tid: 140515) ====
 0 0x0000000000042520 __sigaction()  ???:0
 1 0x000000000006ce20 PMPI_Comm_set_errhandler()  /build/pcomm_set_errhandler.c:81
=================================
""",
        0x54000009,
    ),
    "UCX without debug information": Posted(
        "backtrace",
        "SIGSEGV",
        ("ucs_handle_error", None),
        """\
[n1:77:0:77] Caught signal 11 (Segmentation fault: invalid permissions for mapped object at address 0x7f12)
==== backtrace (tid:     77) ====
 0  /opt/ucx/lib/libucs.so.0(ucs_handle_error+0x2dc) [0x7f1c]
 1  /opt/ucx/lib/libucs.so.0(+0x2b52c) [0x7f1d]
""",
        0x7F12,
    ),
    "uWSGI": Posted(
        "backtrace",
        "SIGSEGV",
        ("uwsgi_backtrace", "uwsgi_segfault", "<signal handler called>", "PyErr_Display"),
        """\
!!! uWSGI process 17715 got Segmentation Fault !!!
*** backtrace of 17715 ***
uwsgi(uwsgi_backtrace+0x2e) [0x45567e]
uwsgi(uwsgi_segfault+0x21) [0x455a51]
/lib/x86_64-linux-gnu/libc.so.6(+0x36ff0) [0x7f67d9522ff0]
/usr/lib/libpython3.3m.so.1.0(PyErr_Display+0x41) [0x7f67d9947701]
*** end of backtrace ***
""",
    ),
    "old glibc": Posted(
        "backtrace",
        "SIGABRT",
        (None, "cfree", "std::locale::_Impl::_Impl"),
        """\
*** glibc detected *** /usr/bin/python: double free or corruption (!prev): 0x0000000001c24710 ***
======= Backtrace: =========
/lib/x86_64-linux-gnu/libc.so.6(+0x78a96)[0x7fe3aaa43a96]
/lib/x86_64-linux-gnu/libc.so.6(cfree+0x6c)[0x7fe3aaa47d7c]
/usr/lib/libstdc++.so.6(_ZNSt6locale5_ImplC1Em+0x12)[0x7fe3a9aa2dc6]
======= Memory map: ========
00400000-00633000 r-xp 00000000 08:06 1901460   /usr/bin/python2.7
""",
    ),
    "Julia": Posted(
        "backtrace",
        "SIGSEGV",
        ("pyjlcallback", None, "_PyObject_MakeTpCall"),
        """\
[4217] signal 11 (1): Segmentation fault
in expression starting at none:0
pyjlcallback at /home/u/.julia/packages/PythonCall/L4cjh/src/JlWrap/C.jl:63
unknown function (ip: 0x7f2a4c18b2d4)
_PyObject_MakeTpCall at /usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0 (unknown line)
Allocations: 2906034 (Pool: 2902101; Big: 3933); GC: 5
""",
    ),
    "Julia 1.8": Posted(
        "backtrace",
        "SIGABRT",
        ("gsignal", "abort"),
        """\
signal (6): Aborted
in expression starting at /home/u/fit.jl:12
gsignal at /lib/x86_64-linux-gnu/libc.so.6 (unknown line)
abort at /lib/x86_64-linux-gnu/libc.so.6 (unknown line)
Allocations: 612 (Pool: 600; Big: 12); GC: 0
""",
    ),
    "glog": Posted(
        "backtrace",
        "SIGSEGV",
        (SIGNAL_FRAME, "caffe::DataReader::Body::read_one()"),
        """\
*** Aborted at 1501135804 (unix time) try "date -d @1501135804" if you are using GNU date ***
PC: @     0x7f31cadd5428 caffe::DataReader<>::Body::read_one()
*** SIGSEGV (@0x30) received by PID 48 (TID 0x7f317b7fe700) from PID 48; stack trace: ***
    @     0x7f31cadd54b0 (unknown)
    @     0x7f31cadd5428 caffe::DataReader::Body::read_one()
Segmentation fault (core dumped)
""",
        0x30,
    ),
    "Paddle": Posted(
        "backtrace",
        "SIGSEGV",
        ("paddle::framework::OperatorBase::Run(paddle::framework::Scope const&)", "paddle::AnalysisPredictor::ZeroCopyRun()"),
        """\
--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
0   paddle::AnalysisPredictor::ZeroCopyRun()
1   paddle::framework::OperatorBase::Run(paddle::framework::Scope const&)

----------------------
Error Message Summary:
----------------------
FatalError: `Segmentation fault` is detected by the operating system.
  [TimeInfo: *** Aborted at 1706587367 (unix time) try "date -d @1706587367" if you are using GNU date ***]
  [SignalInfo: *** SIGSEGV (@0x7f10594317b2) received by PID 1 (TID 0x7f17d87ff6c0) from PID 1497569202 ***]
""",
        0x7F10594317B2,
    ),
    "torch": Posted(
        "backtrace",
        "SIGSEGV",
        ("c10d::Store::wait", "_PyEval_EvalFrameDefault"),
        """\
!!!!!!! Segfault encountered !!!!!!!
  File "<unknown>", line 0, in c10d::Store::wait
  File "Python/ceval.c", line 5381, in _PyEval_EvalFrameDefault

Segmentation fault
""",
    ),
}


@pytest.mark.parametrize("name", POSTED)
def test_posted(name: str, tmp_path: Path) -> None:
    posted = POSTED[name]
    (tmp_path / "log.txt").write_text("INFO starting\n" + posted.text + "INFO the next one\n")
    evidence = read_log(tmp_path / "log.txt")
    assert evidence.kind == posted.kind
    assert (evidence.signal.name if evidence.signal else None) == posted.signal
    assert (evidence.signal.address if evidence.signal else None) == posted.address
    assert len(evidence.threads) == posted.threads
    assert functions(evidence) == list(posted.frames)


def test_an_exception_of_c10_is_no_crash_by_itself(tmp_path: Path) -> None:
    text = "frame #0: c10::Error::Error(c10::SourceLocation) + 0x57 (0x7f12 in /t/libc10.so)\nframe #1: <unknown function> + 0xe48 (0x7f13 in /t/libtorch.so)\n"
    (tmp_path / "log.txt").write_text("Segmentation fault (core dumped)\n" + text)
    evidence = read_log(tmp_path / "log.txt")
    assert functions(evidence) == ["c10::Error::Error(c10::SourceLocation)", None]
    assert evidence.stacks is None


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("Segmentation fault\n", "SIGSEGV"),
        ("Segmentation fault (core dumped)\n", "SIGSEGV"),
        ("./run.sh: line 3:  6499 Aborted                 (core dumped) python x.py\n", "SIGABRT"),
        ("srun: error: cn12: task 0: Segmentation fault (core dumped)\n", "SIGSEGV"),
        ("Process finished with exit code 139 (interrupted by signal 11: SIGSEGV)\n", "SIGSEGV"),
        ("Process finished with exit code 138 (interrupted by signal 10: SIGBUS)\n", "SIGBUS"),
        ("进程已结束，退出代码为 134 (interrupted by signal 6:SIGABRT)\n", "SIGABRT"),
        ("The command returned a non-zero code, exit code: 132\n", "SIGILL"),
        ("container exited with code 137\n", "SIGKILL"),
        ("worker failed with exit code -11\n", "SIGSEGV"),
        ("Segmentation fault: 11\n", "SIGSEGV"),
        ("Abort trap: 6\n", "SIGABRT"),
        ("Bus error: 10\n", "SIGBUS"),
        ("Killed: 9\n", "SIGKILL"),
        ("zsh: bus error  python demo.py\n", "SIGBUS"),
        ("zsh: illegal hardware instruction  python\n", "SIGILL"),
        ("[1]    123 abort      python demo.py\n", "SIGABRT"),
        ("[1]    4939 segmentation fault (core dumped)  python demo.py\n", "SIGSEGV"),
        ("fish: Job 1, 'python demo.py' terminated by signal SIGSEGV (Address boundary error)\n", "SIGSEGV"),
        ("make: *** [Makefile:12: test] Segmentation fault (core dumped)\n", "SIGSEGV"),
        ("make[1]: *** [test] Error 139\n", "SIGSEGV"),
        ("Erreur de segmentation (core dumped)\n", "SIGSEGV"),
        ("Abandon (core dumped)\n", "SIGABRT"),
        ("Speicherzugriffsfehler (Speicherabzug geschrieben)\n", "SIGSEGV"),
        ("Violación de segmento (`core' generado)\n", "SIGSEGV"),
        ("段错误 (核心已转储)\n", "SIGSEGV"),
        ("已放弃 (核心已转储)\n", "SIGABRT"),
        ("Ошибка сегментирования (стек памяти сброшен на диск)\n", "SIGSEGV"),
        ("systemd[1]: api.service: Main process exited, code=dumped, status=11/SEGV\n", "SIGSEGV"),
        ("systemd[1]: api.service: Main process exited, code=killed, status=9/KILL\n", "SIGKILL"),
        ("subprocess.CalledProcessError: Command '['python', 'x.py']' died with <Signals.SIGFPE: 8>.\n", "SIGFPE"),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGSEGV\n", "SIGSEGV"),
        ("distributed.nanny - INFO - Worker process 5678 was killed by signal 11\n", "SIGSEGV"),
        ("mpirun noticed that process rank 0 with PID 19474 on node n1 exited on signal 11 (Segmentation fault).\n", "SIGSEGV"),
        ("traps: python3[42] general protection fault ip:7f12 sp:7ffe error:0 in libc.so.6[7f00+1000]\n", "SIGSEGV"),
        ("python3[42] general protection ip:7f12 sp:7ffe error:0 in libc.so.6[7f00+1000]\n", "SIGSEGV"),
        ("traps: python3[42] trap int3 ip:7f12 sp:7ffe error:0\n", "SIGTRAP"),
        ("The kernel appears to have died: it crashed with SIGSEGV\n", "SIGSEGV"),
    ],
)
def test_ends_are_understood(text: str, signal: str, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(text)
    evidence = read_log(tmp_path / "log.txt")
    assert evidence.signal is not None and evidence.signal.name == signal


@pytest.mark.parametrize(
    "text",
    [
        "Aborted!\n",  # click, when the user pressed Ctrl-C
        "Process finished with exit code 1\n",
        "INFO installed handlers for SIGSEGV and SIGABRT\n",
        "the build was aborted by the user\n",
        "Segmentation of the image failed\n",
        "service: Main process exited, code=exited, status=1/FAILURE\n",
        "A worker stopped. This could be caused by a segmentation fault while calling the function.\n",
        "(raylet) 0 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons\n",
    ],
)
def test_these_tell_of_no_crash(text: str, tmp_path: Path) -> None:
    """Some have the words of one: nothing is concluded from them."""
    (tmp_path / "log.txt").write_text(text)
    with suppress(EvidenceError):
        found = read_log(tmp_path / "log.txt")
        assert ({line.kind for line in found.lines}, found.signal, found.process) == ({"mentioned"}, None, None)


def test_windows_faulthandler(tmp_path: Path) -> None:
    """Its threads may be unmarked, and the signal is none of Linux."""
    (tmp_path / "log.txt").write_text(
        "Windows fatal exception: access violation\n\n"
        'Thread 0x000026a8 (most recent call first):\n  File "C:\\app\\poll.py", line 93 in run\n\n'
        'Current thread 0x00001d14 (most recent call first):\n  File "C:\\app\\main.py", line 173 in extract\n'
    )
    evidence = read_log(tmp_path / "log.txt")
    assert kinds(evidence) == ["windows-exception"]
    assert evidence.signal is None
    assert [thread.crashed for thread in evidence.threads] == [False, True]


@pytest.mark.parametrize(
    ("mangled", "expected"),
    [
        ("_ZN9JPJavaEnv9NewStringEPKti", "JPJavaEnv::NewString"),
        ("_ZNSt6locale5_ImplC1Em", "std::locale::_Impl::_Impl"),
        (
            "_ZN10tensorflow15shape_inference16InferenceContext3RunERKSt8functionIFNS_6StatusEPS1_EE",
            "tensorflow::shape_inference::InferenceContext::Run",
        ),
        (
            "_ZN6cpp2py12py_converterIN5triqs9operators26many_body_operator_genericIdEEE14is_convertibleEP7_objectb",
            "cpp2py::py_converter::is_convertible",
        ),
        ("_ZN4core9panicking9panic_fmt17h0123456789abcdefE", "core::panicking::panic_fmt"),
        ("_ZN12_GLOBAL__N_11fEv", "(anonymous namespace)::f"),
        ("_ZSt9terminatev", "std::terminate"),
        ("_Znwm", "operator new"),
        ("_ZNK3c1010TensorImplD0Ev", "c10::TensorImpl::~TensorImpl"),
        ("_ZN3c10dvEii", "c10::operator/"),
        ("_ZNK4node5IndexixEm", "node::Index::operator[]"),
        ("_ZN2at6ParserC2IiEERKT_", "at::Parser::Parser"),
        ("_ZZN5torch3runEvENKUlvE_clEv", "torch::run::{lambda}::operator()"),
        # What follows the name is not understood, or was cut off.
        ("_ZN4llvm4yaml7yamlizeIhEENSt9enable_ifIXsr16has_ScalarTraitsIT_EE5valueEvE4typeERNS0_2IOE", "llvm::yaml::yamlize"),
        ("_ZN2at6native10add_kernelERNS_18TensorIter", "at::native::add_kernel"),
        ("_ZN2at6native10add_ker", "at::native"),
        ("_ZN4core3ptr42drop_in_place$LT$alloc..string..String$GT$17h0123456789abcdefE", "core::ptr::drop_in_place<alloc::string::String>"),
        ("main", "main"),
        ("_Z", "_Z"),
        ("_ZN999", "_ZN999"),
    ],
)
def test_demangled(mangled: str, expected: str) -> None:
    assert demangled(mangled) == expected


def test_a_dump_that_lost_its_header_and_its_indentation(tmp_path: Path) -> None:
    text = 'Python error: Segmentation fault\n\nCurrent thread 0x00007f1 (most recent call first):\nFile "/srv/app.py", line 3 in decode\nFile "/srv/app.py", line 9 in main\n'
    (tmp_path / "log.txt").write_text(text)
    evidence = read_log(tmp_path / "log.txt")
    assert evidence.signal is not None and evidence.signal.name == "SIGSEGV"
    assert [frame.function for frame in evidence.threads[0].pythons()] == ["decode", "main"]


def test_a_dump_of_pypy(tmp_path: Path) -> None:
    text = 'Fatal Python error: Segmentation fault\nStack (most recent call first, approximate line numbers):\n  File "/srv/app.py", line 3 in decode\n'
    (tmp_path / "log.txt").write_text(text)
    assert [frame.line for frame in read_log(tmp_path / "log.txt").threads[0].pythons()] == [3]


def test_pwndbg(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(
        "Program received signal SIGSEGV, Segmentation fault.\n\x1b[33m ► 0   0x7ffff7e4 decode+324\n   1   0x7ffff7e5 PyObject_Call+94\x1b[0m\n   2              0x0\n"
    )
    evidence = read_log(tmp_path / "log.txt")
    assert [frame.function for frame in evidence.threads[0].natives()] == ["decode", "PyObject_Call"]


def test_frames_left_out_of_gdbs_text(tmp_path: Path) -> None:
    frames = "".join(f"#{level}  0x00007f1{level} in visit () from /lib/x.so\n" for level in range(10))
    (tmp_path / "log.txt").write_text(
        f"Program received signal SIGSEGV, Segmentation fault.\n{frames}...\n#104780 0x00007f00 in main () from /bin/python\n"
    )
    (thread,) = read_log(tmp_path / "log.txt").threads
    assert [(frame.count, frame.cycle) for frame in thread.frames if isinstance(frame, ElidedFrames)] == [(104770, ("visit",))]


@pytest.mark.parametrize("first", [0, 1])
def test_the_kernels_address_counts_in_any_order(first: int, tmp_path: Path) -> None:
    texts = [
        "Segmentation fault (core dumped)\n",
        "[ 9243.86] python3[77]: segfault at 20 ip 00007f3aa1c3ad73 sp 00007ffd85b1da60 error 4 in libc.so.6[7f3aa1c00000+1000]\n",
    ]
    paths = [tmp_path / "stderr.log", tmp_path / "dmesg.log"]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    crash = analyze([paths[first], paths[1 - first]])
    assert crash.signal is not None and crash.signal.address == 0x20
    assert [finding.id for finding in crash.findings] == ["null-deref"]
