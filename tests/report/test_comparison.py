"""What differs between two crashes is found, and nothing that always differs."""

from __future__ import annotations

from msgspec.structs import replace

from crashkit.model import Address, Crash, Fingerprint, Module, NativeFrame, Process, PythonFrame, PythonRuntime, Signal, Thread
from crashkit.report.comparison import Difference, differences, same_crash

FRAMES = (NativeFrame(function="memcpy", module="/lib/libc.so.6", pc=Address(1)), PythonFrame(function="load", file="/srv/app.py", line=3))
CRASH = Crash(
    signal=Signal(number=11, name="SIGSEGV", reason="null-pointer", address=Address(16)),
    process=Process(pid=1, argv=("python", "app.py"), versions={"torch": "2.1"}, environment={"OMP_NUM_THREADS": "4"}),
    threads=(Thread(tid=1, crashed=True, frames=FRAMES),),
    modules=(Module(path="/lib/libc.so.6", build_id="aa"),),
    fingerprint=Fingerprint(hash="1", version=2),
)


def test_process_ids_and_addresses_are_no_differences() -> None:
    other = replace(
        CRASH,
        signal=replace(CRASH.signal, address=Address(32)),
        process=replace(CRASH.process, pid=2),
        threads=(Thread(tid=2, crashed=True, frames=(replace(FRAMES[0], pc=Address(9)), FRAMES[1])),),
    )
    assert differences(CRASH, other) == [] and same_crash(CRASH, other) is True


def test_differences() -> None:
    other = replace(
        CRASH,
        signal=Signal(number=6, name="SIGABRT", reason="abort"),
        process=replace(CRASH.process, versions={"torch": "2.2", "numpy": "2.0"}, environment={}),
        threads=(Thread(tid=1, crashed=True, frames=(FRAMES[0], replace(FRAMES[1], function="save", line=9))),),
        modules=(Module(path="/lib/libc.so.6", build_id="bb"), Module(path="/lib/libm.so.6")),
        fingerprint=Fingerprint(hash="2", version=2),
    )
    assert same_crash(CRASH, other) is False
    assert differences(CRASH, other) == [
        Difference("signal", "SIGSEGV", "SIGABRT"),
        Difference("reason", "a null pointer was accessed", "the process aborted itself"),
        Difference("your code", "load /srv/app.py:3", "save /srv/app.py:9"),
        Difference("frame 1", "load", "save"),
        Difference("numpy", "", "2.0"),
        Difference("torch", "2.1", "2.2"),
        Difference("env OMP_NUM_THREADS", "4", ""),
        Difference("module /lib/libc.so.6", "aa", "bb"),
        Difference("module /lib/libm.so.6", "", "present"),
    ]


def test_a_handler_that_raised_the_signal_again_is_no_difference() -> None:
    """Whether faulthandler was on depends on how the process was started."""
    handler = tuple(NativeFrame(function=name) for name in ("raise", "faulthandler_fatal_error", "<signal handler called>"))
    other = replace(CRASH, threads=(Thread(tid=1, crashed=True, frames=(*handler, *FRAMES)),))
    assert differences(CRASH, other) == []


def test_the_version_of_python_is_compared_once() -> None:
    """What the host says of it, and what the core does, may differ in their length."""
    theirs = replace(CRASH, python=PythonRuntime(version="3.11.7"))
    ours = replace(theirs, process=replace(CRASH.process, versions={"torch": "2.1", "python": "3.11"}))
    assert differences(ours, theirs) == []
    newer = replace(theirs, python=PythonRuntime(version="3.12.1"))
    assert differences(ours, newer) == [Difference("python", "3.11.7", "3.12.1")]


def test_fingerprints_of_different_algorithms_are_not_compared() -> None:
    assert same_crash(CRASH, replace(CRASH, fingerprint=Fingerprint(hash="1", version=3))) is None
    assert same_crash(CRASH, Crash()) is None and differences(Crash(), Crash()) == []
