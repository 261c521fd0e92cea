"""The parsers that other tests take their truth from."""

from __future__ import annotations

import pytest

from tests.crashes import an_interpreter, python_crash
from tests.truth import SIGNAL_FRAME, Line, backtrace, faulthandler, faulting_thread

DUMP = """\
serving
Fatal Python error: Segmentation fault

Thread 0x00007f2c1a7fc640 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/srv/a file, line 3 in x.py", line 12 in <lambda>

Current thread 0x00007f2c1affd640 [crasher] (most recent call first):
  <no Python frame>

Extension modules: torch._C (total: 1)
  File "not a frame of a thread", line 1 in f
"""


def test_faulthandler():
    assert faulthandler(DUMP) == {
        0x7F2C1A7FC640: [Line("wait", 324, "/usr/lib/python3.11/threading.py"), Line("<lambda>", 12, "/srv/a file, line 3 in x.py")],
        0x7F2C1AFFD640: [],
    }
    assert faulting_thread(DUMP) == 0x7F2C1AFFD640


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (
            "#0  0x00007f in __pthread_kill_implementation (threadid=<optimized out>) at ./nptl/pthread_kill.c:44",
            "__pthread_kill_implementation",
        ),
        ("#1  inlined (f=0x1) at a.c:3", "inlined"),
        ("#2  <signal handler called>", SIGNAL_FRAME),
        ("#3  0x0000000000000000 in ?? ()", "??"),
        ("#4  0x1 in at::native::(anonymous namespace)::run<int, void (*)(int)> (a=...) at x.cpp:1", None),
        (
            "#5  0x1 in std::function<void (int)>::operator()(int) const () from libtorch.so",
            "std::function<void (int)>::operator()(int) const",
        ),
        ("#6  0x1 in c10::operator<<(std::ostream&, int) () from libc10.so", "c10::operator<<(std::ostream&, int)"),
        ("#7  0x1 in main () at main.c:1", "main"),
    ],
)
def test_backtrace_line(line, name):
    name = name or "at::native::(anonymous namespace)::run<int, void (*)(int)>"
    assert backtrace(f"Thread 1 (LWP 7):\n{line}\n") == {7: [name]}


def test_backtrace_threads():
    text = 'Thread 3 (Thread 0x7f0000000640 (LWP 31) "work (1)"):\n#0  a ()\n\nThread 1 (LWP 30 (Exiting)):\n#0  b ()\n#1  c ()\n'
    assert backtrace(text) == {31: ["a"], 30: ["b", "c"]}


def test_both_speak_of_every_thread_of_a_real_crash():
    crash = python_crash("threads.py", python=an_interpreter())
    dump, native = faulthandler(crash.stderr), backtrace(crash.backtrace())
    assert len(dump) == len(native) == 7
    assert [line.function for line in dump[faulting_thread(crash.stderr)]][:2] == ["string_at", "read"]
    assert all(names for names in native.values())
    assert SIGNAL_FRAME in native[max(native, key=lambda lwp: SIGNAL_FRAME in native[lwp])]
