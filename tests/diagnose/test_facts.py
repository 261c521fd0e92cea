"""Facts of the catalog, one by one: a crash for which each holds, one for which it does not, one that does not tell."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from crashkit.diagnose.case import Case
from crashkit.diagnose.facts import FACTS
from crashkit.model import (
    Address,
    Crash,
    ElidedFrames,
    LogLine,
    Mapping,
    Module,
    NativeFrame,
    Process,
    PythonFrame,
    PythonRuntime,
    Signal,
    Source,
    Thread,
)

SEGV = Signal(number=11, name="SIGSEGV", reason="unmapped", code=1, address=Address(0x18))
NOWHERE = Signal(number=11, name="SIGSEGV")
PYTHON = PythonFrame(function="decode", file="/srv/app.py", line=17)


def thread(*frames: Any, **facts: Any) -> Thread:
    named = (NativeFrame(function=one, module="/usr/lib/libx.so") if isinstance(one, str) else one for one in frames)
    return Thread(**{"tid": 7, "crashed": True, "frames": tuple(named), **facts})


def crash(
    *frames: Any, signal: Signal | None = SEGV, others: tuple[Thread, ...] = (), more: dict[str, Any] | None = None, **facts: Any
) -> Crash:
    return Crash(signal=signal, threads=(thread(*frames, **facts), *others), **(more or {}))


class Told(NamedTuple):
    holds: Crash
    fails: Crash | None = None
    open: Crash | None = None
    """Which does not tell."""


EMPTY = Crash()
VARIOUS = [f"g{number}" for number in range(280)]
NAMELESS = NativeFrame(module="/lib/libpython3.11.so.1.0")
PLAIN = crash("f", "g")
IN_PYTHON = crash("f", PYTHON)
CORE = Source(path="/tmp/core", kind="core")
IN_CPYTHON = NativeFrame(function="PyThreadState_Get", module="/usr/lib/libpython3.11.so.1.0")
CALLED = (
    "_PyObject_VectorcallTstate",
    NativeFrame(function="_CallPythonObject", module="/usr/lib/_ctypes.so", args={"callable": "callable@entry=0x7f10"}),
    "ffi_closure_unix64_inner",
    "fire",
)
ON_STACK = Address(0x7FFC65CBD100)
IN_STACK = {
    "mappings": (
        Mapping(start=Address(0x7FFC65000000), end=Address(0x7FFC65010000), permissions="r-x", path="/lib/libc.so.6"),
        Mapping(start=Address(0x7FFC65CA0000), end=Address(0x7FFC65CC0000), permissions="rw-"),
        Mapping(start=Address(0x7FFC65D00000), end=Address(0x7FFC65D01000), permissions="rw-", path="/lib/libx.so"),
    )
}
AT_ARENA = Signal(number=11, name="SIGSEGV", address=Address(0x7FFC64000000))
DEEP = (PYTHON, ElidedFrames(count=3000, cycle=("decode", "g")))


def modules(*paths: str, symbols: str = "full") -> dict[str, Any]:
    return {"modules": tuple(Module(path=path, symbols=symbols) for path in paths)}


def python(**facts: Any) -> dict[str, Any]:
    return {"python": PythonRuntime(**facts)}


FACTS_TOLD = {
    "has-core": Told(Crash(source=CORE), Crash(source=Source(path="a.log", kind="log"))),
    "truncated-core": Told(Crash(source=Source(path="core", kind="core", truncated=True)), Crash(source=CORE)),
    "has-log": Told(Crash(last_words=("killed",)), EMPTY),
    "on-macos": Told(Crash(source=Source(path="a.ips", kind="apple")), Crash(source=CORE)),
    "report-of-macos": Told(Crash(source=Source(path="a.ips", kind="apple")), Crash(source=Source(path="a.log", kind="log"))),
    "on-windows": Told(Crash(log=(LogLine(text="access violation", kind="windows-exception"),)), EMPTY),
    "stored-core": Told(Crash(log=(LogLine(text="Process 7 (a) of user 0 dumped core.", fields={"core_of": "7"}),)), EMPTY),
    "only-told": Told(
        Crash(log=(LogLine(text="a crash", kind="mentioned"),)),
        Crash(log=(LogLine(text="Aborted", kind="shell"), LogLine(text="a", kind="told"))),
    ),
    "no-debug-info": Told(Crash(**python(debug_info=False)), Crash(**python(debug_info=True))),
    "missing-modules": Told(Crash(**modules("/a/b.so", symbols="missing")), Crash(**modules("/a/b.so"))),
    "has-values": Told(crash(PythonFrame(function="f", locals={"a": "1"})), IN_PYTHON),
    "raised-recursion-limit": Told(crash(*DEEP), crash(PYTHON, ElidedFrames(count=2000, cycle=("decode", "g"))), EMPTY),
    "main-thread": Told(crash("f", more={"process": Process(pid=7)}), crash("f", more={"process": Process(pid=8)}), PLAIN),
    "other-thread": Told(crash("f", more={"process": Process(pid=8)}), crash("f", more={"process": Process(pid=7)}), PLAIN),
    "python-frames": Told(IN_PYTHON, crash("f", more={"source": CORE})),
    "debugger-injected": Told(crash("<function called from gdb>"), PLAIN),
    "module-unloading": Told(crash("f", others=(thread("cuModuleUnload", tid=8, crashed=False),)), PLAIN),
    "hang": Told(Crash(), PLAIN),
    "single-thread": Told(PLAIN, crash("f", others=(thread("g", tid=8, crashed=False),)), EMPTY),
    "deep-cycle": Told(crash(*["f"] * 40, *VARIOUS), crash(*["f"] * 20, *VARIOUS), EMPTY),
    "recursion-in-c": Told(
        crash("f", ElidedFrames(count=3000, cycle=("chain_next",)), PYTHON),
        crash("f", ElidedFrames(count=3000, cycle=("decode", "f")), PYTHON),
        EMPTY,
    ),
    "recursion-in-python": Told(
        crash(*DEEP),
        crash("f", ElidedFrames(count=3000, cycle=("chain_next",)), PYTHON),
        EMPTY,
    ),
    "freed-pattern": Told(
        crash("f", registers={"rax": Address(0xDDDDDDDDDDDDDDDD)}), crash("f", registers={"rax": Address(0x10)}), crash("f", signal=None)
    ),
    "collector-ran": Told(crash("gc_collect_main", collecting=True), crash("f", collecting=False), PLAIN),
    "collector-visits": Told(crash("dict_traverse", "subtract_refs", "gc_collect_main"), PLAIN, crash(NAMELESS)),
    "in-stack-area": Told(
        crash("f", signal=Signal(number=11, name="SIGSEGV", address=Address(0x7FFC65CBD100))),
        crash("f", signal=Signal(number=11, name="SIGSEGV", address=Address(0x55AA00001000))),
        crash("f", signal=NOWHERE),
    ),
    "null-address": Told(PLAIN, crash("f", signal=Signal(number=11, name="SIGSEGV", address=Address(1 << 40))), crash("f", signal=NOWHERE)),
    # A nameless frame may be the interpreter's only where its module is: std::thread's first function has no name in a stripped libstdc++.
    "runs-python": Told(
        crash("f", holds_gil=True), crash("f", NativeFrame(module="/lib/libstdc++.so.6")), crash(NAMELESS)
    ),
    "gil-held-by-it": Told(crash("f", holds_gil=True), crash("f", holds_gil=False), PLAIN),
    "free-threaded": Told(Crash(**python(free_threaded=True)), Crash(**python(free_threaded=False)), Crash(**python(version="3.13.0"))),
    "two-llvm-openmp": Told(
        Crash(**modules("/a/libiomp5.so", "/b/libomp.so")), Crash(**modules("/a/libiomp5.so", "/b/libgomp.so.1")), EMPTY
    ),
    "two-libstdcxx": Told(Crash(**modules("/a/libstdc++.so.6", "/b/libstdc++.so.6")), Crash(**modules("/a/libstdc++.so.6")), EMPTY),
    "two-openssl": Told(Crash(**modules("/a/libssl.so.3", "/b/libssl.so.1")), Crash(**modules("/a/libssl.so.3", "/b/libcrypto.so.3"))),
    "program-counter-zero": Told(crash(NativeFrame(pc=Address(0))), crash(NativeFrame(pc=Address(0x100)))),
    "jumped-to-address": Told(
        crash(NativeFrame(pc=Address(1 << 40)), signal=Signal(number=11, name="SIGSEGV", address=Address(1 << 40))),
        crash(NativeFrame(pc=Address(16)), signal=Signal(number=11, name="SIGSEGV", address=Address(1 << 40))),
        crash(NativeFrame(pc=Address(16)), signal=NOWHERE),
    ),
    "null-thread-state": Told(crash(NativeFrame(args={"tstate": "0x0"})), crash(NativeFrame(args={"tstate": "0x10"}))),
    "null-argument": Told(
        crash(NativeFrame(function="f", args={"handle": "0x0"}), signal=NOWHERE),
        crash(NativeFrame(function="f", args={"handle": "0x0"}), signal=Signal(number=11, name="SIGSEGV", address=Address(1 << 40))),
    ),
    "went-on": Told(
        Crash(log=(LogLine(text="Assertion failed: a", kind="c-assert-part"), LogLine(text="Ran 3 tests in", kind="test-summary"))),
        Crash(log=(LogLine(text="Ran 3 tests in", kind="test-summary"), LogLine(text="Assertion failed: a", kind="c-assert-part"))),
    ),
    "task-failed-first": Told(
        Crash(log=(LogLine(text="Exited with exit code 1", kind="task-failed"), LogLine(text="CANCELLED AT", kind="job-cancelled"))),
        Crash(log=(LogLine(text="CANCELLED AT", kind="job-cancelled"), LogLine(text="Exited with exit code 1", kind="task-failed"))),
    ),
    "in-constructor": Told(crash("fill_table", "call_init", "_dl_init"), crash("f", "_dl_fini", "exit"), EMPTY),
    "foreign-abort": Told(crash("raise", "abort", "ffi_call"), crash("raise", "abort", "f", "ffi_call"), EMPTY),
    "fatal-error-words": Told(crash(NativeFrame(function="Py_FatalError", args={"msg": '0x55 "no memory"'})), PLAIN),
    "fatal-error-of-extension": Told(crash("abort", "_Py_FatalErrorFunc", "fatal"), crash("abort", "_Py_FatalErrorFunc", IN_CPYTHON)),
    "callback-freed": Told(crash("Py_DECREF", "_PyFrame_Clear", *CALLED), crash("func_dealloc", PYTHON, *CALLED)),
    "called-function-freed": Told(
        crash(NativeFrame(function="func_dealloc", args={"op": "0x7f10"}), *CALLED),
        crash(NativeFrame(function="func_dealloc", args={"op": "0x7f18"}), *CALLED),
        crash("func_dealloc", *CALLED),
    ),
    "freed-no-block": Told(
        crash("arena_for_chunk", signal=AT_ARENA, more=IN_STACK, registers={"rdi": Address(0x7FFC65CBD010)}),
        crash("unlink_chunk", "_int_free", signal=AT_ARENA, more=IN_STACK, registers={"rdi": Address(0x7FFC65CBD010)}),
        crash("arena_for_chunk", "free", signal=AT_ARENA, more=IN_STACK, registers={"rdi": Address(0x10)}),
    ),
    "user-division": Told(PLAIN, crash("_dl_init")),
    "in-interpreter": Told(crash("PyObject_GetAttr", "f"), crash(NativeFrame(module="/lib/libc.so.6"), "PyObject_GetAttr")),
    "many-streams": Told(Crash(log=(LogLine(text="x.record_stream(y)"),)), PLAIN),
    "garbage-index": Told(
        Crash(log=(LogLine(text="x", kind="device-assert-line", fields={"assertion": "index < size"}),)),
        Crash(log=(LogLine(text="x", kind="device-assert-line", fields={"assertion": "target < n_classes", "kernel": "index"}),)),
    ),
}  # fmt: skip


STREAM = PythonFrame(function="stream", file="/x/torch/cuda/streams.py", line=3)
HOLD = [
    *((fact, told.holds) for fact, told in FACTS_TOLD.items()),
    ("deep-cycle", crash(*DEEP)),
    ("user-division", EMPTY),
    ("in-interpreter", crash(NativeFrame(module="/usr/bin/python3.13"))),
    ("many-streams", crash("f", STREAM)),
]
WITHOUT_EVIDENCE = {
    "on-macos",
    "on-windows",
    "report-of-macos",
    "has-core",
    "truncated-core",
    "has-log",
    "only-told",
    "no-debug-info",
    "missing-modules",
    "has-values",
}
"""They only choose what to do next."""


@pytest.mark.parametrize(("fact", "evidence"), HOLD, ids=[f"{fact}-{number}" for number, (fact, _) in enumerate(HOLD)])
def test_a_fact_holds_and_says_what_shows_it(fact: str, evidence: Crash) -> None:
    outcome = FACTS[fact](Case(evidence))
    assert outcome.holds is True and not outcome.missing
    assert bool(outcome.evidence) is not (fact in WITHOUT_EVIDENCE or evidence == EMPTY)
    assert all(one.text for one in outcome.evidence)
    frames = evidence.threads[0].frames if evidence.threads else ()
    assert all(one.thread in (7, 8) and one.frame < len(frames) for one in outcome.evidence if one.frame is not None)


@pytest.mark.parametrize("fact", [fact for fact, told in FACTS_TOLD.items() if told.fails or told.open])
def test_a_fact_is_contradicted_or_not_known(fact: str) -> None:
    told = FACTS_TOLD[fact]
    if told.fails is not None:
        outcome = FACTS[fact](Case(told.fails))
        assert outcome.holds is False and outcome.why and not outcome.missing
    if told.open is not None:
        outcome = FACTS[fact](Case(told.open))
        assert outcome.holds is False and outcome.missing


@pytest.mark.parametrize(
    ("args", "registers", "given"),
    [
        ({}, {"rdi": 0x7FFC65CBD010, "rsp": ON_STACK + 8, "r11": 0x7FFC650000F0}, "0x7ffc65cbd020, which is in the thread's stack"),
        ({"ptr": "0x7ffc65d00010 <table+16>"}, {"rdi": 0x7FFC65CBD010}, "0x7ffc65d00020, which is in libx.so"),
        ({}, {"rdi": 0x7FFC65CBD010, "rsi": 0x7FFC65D00010}, "a pointer that is none of its blocks"),
    ],
    ids=["the only one", "as gdb shows it", "one of two"],
)
def test_where_a_freed_pointer_points(args: dict[str, str], registers: dict[str, int], given: str) -> None:
    frame = NativeFrame(function="arena_for_chunk", args=args)
    held = {name: Address(value) for name, value in registers.items()}
    outcome = FACTS["freed-no-block"](Case(crash(frame, signal=AT_ARENA, more=IN_STACK, registers=held)))
    assert outcome.fields["text"] == f"it was given {given}"


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        (("arena_for_chunk", "__libc_realloc", "f"), "realloc()"),
        (("arena_for_chunk", "__GI___libc_free", "free_all"), "free()"),
        (("musable", "__malloc_usable_size", "f", "free"), "malloc_usable_size()"),
    ],
)
def test_which_function_was_given_the_pointer(frames: tuple[str, ...], named: str) -> None:
    held = {"rdi": Address(0x7FFC65CBD010)}
    outcome = FACTS["freed-no-block"](Case(crash(*frames, signal=AT_ARENA, more=IN_STACK, registers=held)))
    assert outcome.fields["end"] == f"{named} crashed"
