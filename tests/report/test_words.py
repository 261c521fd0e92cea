"""What the formats say of one fact, in the words that they share. Each row is a fact and its words."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from msgspec.structs import replace

from crashkit.model import (
    Address,
    Crash,
    Finding,
    Gpu,
    GpuException,
    GpuKernel,
    GpuMemory,
    GpuPlace,
    LaunchedFrom,
    LogLine,
    LookedFor,
    Mapping,
    Module,
    NativeFrame,
    Offset,
    PendingSignal,
    Process,
    PythonFrame,
    Raised,
    Sibling,
    Signal,
    Source,
    Thread,
)
from crashkit.report import gpu_wording, one_line, wording
from crashkit.report.address_space import AddressSpace

AT = PythonFrame(function="step", file="/srv/train.py", line=3, source="x.item()")
SEGV = Signal(number=11, name="SIGSEGV")

# GPUs

FAILED = GpuException(name="WARP_ILLEGAL_ADDRESS", kernel="k")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, ""),
        ({"block_index": (1, 0, 0)}, "block (1,0,0)"),
        ({"block_index": (1, 0, 0), "thread_index": (64, 0, 0), "lanes": 1}, "block (1,0,0), thread (64,0,0)"),
        ({"thread_index": (64, 0, 0), "lanes": 2000}, "thread (64,0,0), first of 2,000"),
        ({"block_index": (1, 0, 0), "inferred": True}, "block (1,0,0) (by the warp that is missing)"),
        ({"inferred": True, "grid": (4, 1, 1), "block": (128, 1, 1)}, "grid (4,1,1) of blocks (128,1,1)"),
        ({"thread_index": (1,), "grid": (4, 1, 1), "block": (128, 1, 1)}, "thread (1); grid (4,1,1) of blocks (128,1,1)"),
    ],
)
def test_threads_of_a_kernel(facts: dict[str, Any], words: str) -> None:
    assert gpu_wording.threads(replace(FAILED, **facts)) == words


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, None),
        ({"access": "read"}, "read of memory"),
        ({"access": "write", "size": 1, "space": "global"}, "wrote 1 byte of global memory"),
        ({"access": "write", "size": 4, "space": "generic"}, "wrote 4 bytes of memory"),
        ({"access": "new", "address": Address(16), "detail": "null"}, "new of memory at 0x0000000000000010: null"),
    ],
)
def test_what_an_instruction_did(facts: dict[str, Any], words: Optional[str]) -> None:
    assert gpu_wording.access(replace(FAILED, **facts)) == words


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (GpuPlace(warps=4, waits="barrier", function="f", file="/srv/k.cu", line=44), "4 warps wait at a barrier in f, k.cu:44"),
        (GpuPlace(warps=1, waits="mbarrier"), "1 warp waits at an mbarrier"),
        (GpuPlace(warps=1, waits="sleep"), "1 warp sleeps"),
        (GpuPlace(warps=2, waits="sleep"), "2 warps sleep"),
        (GpuPlace(warps=1), "1 warp runs"),
        (GpuPlace(warps=3, file="/srv/k.cu"), "3 warps run, k.cu"),
        (GpuPlace(warps=1, waits="a moon"), "1 warp waits (a moon)"),
        (GpuPlace(warps=2, waits="a moon"), "2 warps wait (a moon)"),
        (GpuPlace(warps=2, file="c" * 40 + ".py", line=3), f"2 warps run, {'c' * 14}…{'c' * 11}.py:3"),
        (GpuPlace(warps=2, file="c" * 25 + ".py"), f"2 warps run, {'c' * 25}.py"),
    ],
)
def test_where_warps_stand(place: GpuPlace, words: str) -> None:
    assert gpu_wording.stands(place) == words


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (GpuPlace(warps=1, file="/srv/k.cu", line=3), "/srv/k.cu:3"),
        (GpuPlace(warps=1, file="/srv/k.cu"), "/srv/k.cu"),
        (replace(FAILED, offset=Offset(0x110)), "+0x110, no line table"),
        (replace(FAILED, file="/srv/k.cu", line=3, offset=Offset(0x110)), "/srv/k.cu:3"),
        (FAILED, ""),
        (GpuKernel(name="k"), ""),
    ],
)
def test_a_place_in_a_kernel(item: Any, words: str) -> None:
    assert gpu_wording.place(item) == words


def test_what_the_allocator_knew() -> None:
    found = GpuMemory(state="freed", address=Address(0x1000), size=16, offset=Offset(4), freed=(AT,), allocated=(replace(AT, source=None),))
    _, freed, allocated = gpu_wording.memory(replace(FAILED, memory=found))
    assert freed == "freed at /srv/train.py:3 in step: x.item()" and allocated == "allocated at /srv/train.py:3 in step"
    library = PythonFrame(function=None, file="/x/site-packages/torch/nn.py", line=9)
    assert gpu_wording.fused(replace(FAILED, fused_from=(library, AT))) == [
        "torch/nn.py:9 in (no name)",
        "/srv/train.py:3 in step: x.item()",
    ]
    (_, inner) = gpu_wording.memory(replace(FAILED, memory=replace(found, freed=(library, AT), allocated=())))
    assert inner == "freed at /srv/train.py:3 in step: x.item()", "the user's own line, of several"
    (_, only) = gpu_wording.memory(replace(FAILED, memory=replace(found, freed=(library,), allocated=())))
    assert only == "freed at torch/nn.py:9 in (no name)"


def test_the_addresses_of_threads() -> None:
    one, other = Address(16), Address(32)
    assert gpu_wording.spread(replace(FAILED, lowest=one, highest=other)) == (
        "the threads' addresses are 0x0000000000000010 to 0x0000000000000020"
    )
    for lowest, highest in ((one, one), (None, one), (one, None)):
        assert gpu_wording.spread(replace(FAILED, lowest=lowest, highest=highest)) is None


def on_cpu(exceptions: tuple[GpuException, ...] = (FAILED,), process: Optional[Process] = None, **facts: Any) -> Crash:
    launched = LaunchedFrom(**{"thread": 8, "frame": 0, **facts})
    threads = (Thread(tid=8, name="main", frames=(AT, replace(AT, line=9))), *(Thread(tid=tid, name=f"t{tid}") for tid in range(10, 16)))
    return Crash(gpu=(Gpu(path="d", exceptions=exceptions, launched_from=launched),), threads=threads, process=process)


BLOCKING = Process(pid=8, environment={"CUDA_LAUNCH_BLOCKING": "1"})


@pytest.mark.parametrize(
    ("crash", "label", "text"),
    [
        (on_cpu(exact=True, function="cuLaunch"), "launched", "thread main (8) launched it in cuLaunch: launches were blocking"),
        (on_cpu(exact=True), "launched", "thread main (8) launched it: launches were blocking"),
        (on_cpu((), function="cuSync"), "meanwhile", "thread main (8) was in cuSync"),
        (on_cpu(()), "meanwhile", "thread main (8)"),
        (on_cpu(line=7, source="k[grid](x)"), "noticed", "probably launched by line 7: k[grid](x)"),
        (on_cpu(line=7), "noticed", "probably launched by line 7"),
        (
            on_cpu(function="cuSync"),
            "noticed",
            "thread main (8) was in cuSync: this line or an earlier one launched it; CUDA_LAUNCH_BLOCKING=1 shows which",
        ),
        (on_cpu(process=BLOCKING), "noticed", "thread main (8): this line or an earlier one launched it"),
        *(
            (
                on_cpu(process=Process(pid=8, environment={"CUDA_LAUNCH_BLOCKING": value})),
                "noticed",
                "thread main (8): this line or an earlier one launched it; CUDA_LAUNCH_BLOCKING=1 shows which",
            )
            for value in ("0", "")
        ),
        (
            on_cpu(function="cuSync", candidates=(10,)),
            "noticed",
            "thread main (8) was in cuSync, as was t10 (10): one of them launched it, here or earlier",
        ),
        (
            on_cpu(function="cuSync", candidates=(10, 11, 12, 13), process=BLOCKING),
            "noticed",
            "thread main (8) was in cuSync, as were t10 (10), t11 (11), t12 (12), t13 (13): one of them launched it",
        ),
        (
            on_cpu(function="cuSync", candidates=(10, 11, 12, 13, 14)),
            "noticed",
            "thread main (8) was in cuSync, as were t10 (10), t11 (11), t12 (12), t13 (13), ...: one of them launched it, here or earlier",
        ),
    ],
)
def test_the_side_of_the_cpu(crash: Crash, label: str, text: str) -> None:
    found = gpu_wording.launch(crash)
    assert found is not None and (found.label, found.text, found.thread.tid, found.frame) == (label, text, 8, AT)


def test_the_frame_that_launched() -> None:
    """Else the line to look at; None where no core shows the thread."""
    for frame, line in ((1, 9), (0, 3), (2, 3), (-1, 3), (None, 3)):
        found = gpu_wording.launch(on_cpu(exact=True, frame=frame))
        assert found is not None and found.frame is not None and found.frame.line == line
    assert gpu_wording.launch(on_cpu(thread=99)) is None and gpu_wording.launch(Crash()) is None


@pytest.mark.parametrize(
    ("crash", "said"),
    [
        (on_cpu(exact=True), "Illegal address in GPU kernel k, launched from step (/srv/train.py:3)."),
        (on_cpu(), "Illegal address in GPU kernel k, noticed in step (/srv/train.py:3)."),
        (on_cpu(()), "No GPU kernel was running, and none failed, while the CPU was in step (/srv/train.py:3)."),
        (on_cpu((replace(FAILED, kernel=None),), thread=9), "Illegal address on the GPU, in a kernel that the dump does not name."),
        (on_cpu((replace(FAILED, file="/srv/k.py", line=4),), thread=9), "Illegal address in GPU kernel k (k.py:4)."),
    ],
)
def test_both_sides_in_a_sentence(crash: Crash, said: str) -> None:
    assert crash.gpu and gpu_wording.sentence(crash, crash.gpu[0]) == said


# Crashes


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (NativeFrame(file="/src/a.c", line=3, module="/lib/liba.so"), "a.c:3 in liba.so"),
        (NativeFrame(file="/src/a.c", module="/lib/liba.so"), "a.c in liba.so"),
        (NativeFrame(file="/src/a.c", line=3), "a.c:3"),
        (NativeFrame(module="/lib/liba.so", offset=Offset(16)), "liba.so+0x10"),
        (NativeFrame(module="/lib/liba.so"), "liba.so"),
        (NativeFrame(pc=Address(16)), "0x0000000000000010"),
        (NativeFrame(), ""),
    ],
)
def test_a_native_place(frame: NativeFrame, words: str) -> None:
    assert wording.native_place(frame) == words


@pytest.mark.parametrize(
    ("exception", "words"),
    [
        (Raised(), "where it was raised is not known"),
        (Raised(frames=(AT, replace(AT, line=9))), "raised in step (/srv/train.py:3)"),
        (Raised(frames=(PythonFrame(),)), "raised in (no name)"),
        (Raised(text="OSError(2)", relation="cause", frames=(AT,)), "from OSError(2), raised in step (/srv/train.py:3)"),
        (Raised(relation="context"), "while handling an exception, where it was raised is not known"),
    ],
)
def test_where_an_exception_was_raised(exception: Raised, words: str) -> None:
    assert wording.raised(exception) == words


@pytest.mark.parametrize(("count", "words"), [(1, "the only thread"), (2, "one of 2 threads")])
def test_among_how_many_threads(count: int, words: str) -> None:
    assert wording.among(Crash(threads=tuple(Thread(tid=tid) for tid in range(count)))) == words


@pytest.mark.parametrize(
    ("crash", "words"),
    [
        (Crash(signal=SEGV), "Segmentation fault"),
        (Crash(process=Process(pid=1, exit_status=0), source=Source(path="", kind="live")), "Exit status 0"),
        (Crash(process=Process(pid=1), source=Source(path="", kind="live")), "Running"),
        (Crash(), "Crash"),
    ],
)
def test_how_a_process_ended(crash: Crash, words: str) -> None:
    assert wording.ended(crash) == words


def exception(text: str, at: str = "") -> LogLine:
    return LogLine(text=text, kind="exception", fields={"reported_at": at})


SHOWN = Thread(tid=1, crashed=True, frames=(AT,))


@pytest.mark.parametrize(
    ("crash", "words"),
    [
        (Crash(signal=replace(SEGV, reason="null-pointer", access="read"), log=(exception("x"),)), "a null pointer was read"),
        (Crash(findings=(Finding(id="a", title="A", confidence="likely"),), log=(exception("x"),)), "A"),
        (Crash(log=(exception("one"), exception("two"))), "two"),
        (Crash(log=(exception("one", "/srv/train.py:3"), exception("two", "/x.py:1")), threads=(SHOWN,)), "one"),
        (Crash(log=(exception("a", "/srv/train.py:3"), exception("b", "/srv/train.py:3")), threads=(SHOWN,)), "b"),
        (Crash(log=(LogLine(text="killed", kind="signal"), LogLine(text="later", kind="x"))), "killed"),
        (Crash(log=(LogLine(text="killed", kind="signal"),), threads=(SHOWN,)), None),
        (Crash(), None),
    ],
)
def test_the_reason(crash: Crash, words: Optional[str]) -> None:
    assert wording.told(crash, crash.thread) == words


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        ((), ""),
        (("contradicted",), "1 contradicted"),
        (("open", "contradicted", "open"), "1 contradicted, 2 not decidable from this evidence"),
        (("open",), "1 not decidable from this evidence"),
    ],
)
def test_what_was_looked_for(verdicts: tuple[str, ...], words: str) -> None:
    assert wording.looked_for(Crash(looked_for=tuple(LookedFor(id="a", title="A", verdict=one) for one in verdicts))) == words


@pytest.mark.parametrize(
    ("verdict", "by", "words"),
    [
        ("contradicted", "the signal", "contradicted: the signal"),
        ("contradicted", None, "contradicted"),
        ("open", "the log", "not decidable without the log"),
        ("open", None, "not decidable"),
    ],
)
def test_a_verdict(verdict: str, by: Optional[str], words: str) -> None:
    assert wording.verdict(LookedFor(id="a", title="A", verdict=verdict, by=by)) == words


def test_an_address() -> None:
    at = replace(SEGV, address=Address(16))
    assert wording.address_of(SEGV) is None and wording.address_of(at) == "0x0000000000000010"
    assert wording.address_of(replace(at, access="read")) == "read of 0x0000000000000010"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("futex_wait", "a lock"),
        ("__pthread_cond_timedwait64", "a condition"),
        ("read", "input"),
        ("compute", None),
    ],
)
def test_what_a_thread_waits_for(function: str, words: Optional[str]) -> None:
    frames = (NativeFrame(function="syscall"), NativeFrame(function=function))
    assert wording.awaited(Thread(tid=1, frames=frames)) == words
    assert wording.awaited(Thread(tid=1, frames=frames, waits_for_gil=True)) == "the GIL"
    assert wording.awaited(Thread(tid=1, frames=(NativeFrame(function="take_gil"), *frames), waits_for_gil=False)) == words


@pytest.mark.parametrize(
    ("signal", "words"),
    [
        (PendingSignal(15, "SIGTERM"), "SIGTERM was not handled yet by its Python handler"),
        (PendingSignal(15, "SIGTERM", "stop", "/srv/a.py", 3), "SIGTERM was not handled yet by stop (/srv/a.py:3)"),
        (PendingSignal(15, "SIGTERM", "stop", "/srv/a.py"), "SIGTERM was not handled yet by stop (/srv/a.py)"),
    ],
)
def test_a_signal_that_was_not_handled_yet(signal: PendingSignal, words: str) -> None:
    assert wording.pending(signal) == words


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, None),
        ({"trust": "alone"}, "no other source read it"),
        ({"trust": "new word"}, "new word"),
        ({"trust": "confirmed", "confirmed_by": ("libpython",)}, "libpython reads the same"),
        ({"trust": "confirmed", "confirmed_by": ("libpython", "pystack")}, "libpython and pystack read the same"),
        (
            {"trust": "contradicted", "confirmed_by": ("pystack",), "contradicted_by": {"libpython": "f, line 3"}},
            "libpython reads f, line 3; pystack reads the same",
        ),
    ],
)
def test_what_other_sources_read(facts: dict[str, Any], words: Optional[str]) -> None:
    assert wording.python_trust(replace(AT, **facts)) == words


@pytest.mark.parametrize(
    ("sibling", "words"),
    [
        (Sibling(pid=7, argv=("/usr/bin/python3", "/srv/app/server.py", "--port", "80")), "7 python3 server.py --port"),
        (Sibling(pid=0), "0"),
        (Sibling(argv=("a/b", "c" * 80)), f"? a/b {'c' * 36}"),
    ],
)
def test_another_process(sibling: Sibling, words: str) -> None:
    assert wording.sibling_label(sibling) == words


def test_modules_whose_symbols_are_missing_come_first() -> None:
    order = ["mismatch", "missing", "none", "exports", "table", "full", None, "not-needed"]
    modules = tuple(Module(path=str(one), symbols=one) for one in reversed(order))
    assert [module.symbols for _, module in wording.ordered_modules(modules)] == [
        "mismatch", "missing", "none", "exports", "full", "table", None, "not-needed",
    ]  # fmt: skip
    assert [index for index, _ in wording.ordered_modules(modules)] == [7, 6, 5, 4, 2, 3, 1, 0]


# Lists

NATIVE = NativeFrame(function="memcpy", module="/lib/libc.so.6")


@pytest.mark.parametrize(
    ("crash", "words"),
    [
        (Crash(), ""),
        (Crash(signal=SEGV, threads=(replace(SHOWN, frames=(NATIVE, AT)),)), "step (train.py:3)"),
        (Crash(signal=SEGV, threads=(Thread(tid=1, crashed=True, frames=(PythonFrame(),)),)), "(no name)"),
        (Crash(signal=SEGV, threads=(Thread(tid=1, crashed=True, frames=(NATIVE,)),)), "memcpy"),
        (Crash(threads=(Thread(tid=1, frames=(AT,)),)), "step (train.py:3)"),
        (Crash(threads=(Thread(tid=1, frames=(AT,)), Thread(tid=2, frames=(AT,)))), ""),
        (Crash(gpu=(Gpu(path="d", exceptions=(replace(FAILED, file="/srv/k.py", line=3),)),)), "k (k.py:3)"),
        (Crash(gpu=(Gpu(path="d", exceptions=(replace(FAILED, file="/srv/k.py"),)),)), "k"),
    ],
)
def test_where_it_happened_in_a_list(crash: Crash, words: str) -> None:
    assert one_line.where(crash) == words


@pytest.mark.parametrize(
    ("crash", "words"),
    [
        (Crash(findings=(Finding(id="a", title="A", confidence="possible"),)), "A?"),
        (Crash(findings=(Finding(id="a", title="A", confidence="likely"),)), "A"),
        (Crash(findings=(Finding(id="a", title="A" * 300, confidence="likely"),)), "A" * 200),
        (Crash(signal=replace(SEGV, reason="abort")), "the process aborted itself"),
        (Crash(), ""),
    ],
)
def test_why_it_happened_in_a_list(crash: Crash, words: str) -> None:
    assert one_line.cause(crash) == words


# What is around an address


def around(address: int) -> list[tuple[int, int, str, bool]]:
    mappings = (Mapping(Address(0x1000), Address(0x2000), "r--", "/lib/a.so"), Mapping(Address(0x3000), Address(0x4000), "rw-", None))
    return [(cell.start, cell.end, cell.name, cell.hit) for cell in AddressSpace(mappings, ()).around(address)]


LIBRARY, HEAP = "a.so r--", "anonymous memory rw-"


@pytest.mark.parametrize(
    ("address", "cells"),
    [
        (0x10, [(0, 0x1000, "", True), (0x1000, 0x2000, LIBRARY, False)]),
        (0x1000, [(0x1000, 0x2000, LIBRARY, True), (0x2000, 0x3000, "", False), (0x3000, 0x4000, HEAP, False)]),
        (0x1FFF, [(0x1000, 0x2000, LIBRARY, True), (0x2000, 0x3000, "", False), (0x3000, 0x4000, HEAP, False)]),
        (0x2000, [(0x1000, 0x2000, LIBRARY, False), (0x2000, 0x3000, "", True), (0x3000, 0x4000, HEAP, False)]),
        (0x3000, [(0x1000, 0x2000, LIBRARY, False), (0x2000, 0x3000, "", False), (0x3000, 0x4000, HEAP, True)]),
        (0x4000, [(0x3000, 0x4000, HEAP, False), (0x4000, 1 << 64, "", True)]),
    ],
)
def test_what_is_around_an_address(address: int, cells: list[tuple[int, int, str, bool]]) -> None:
    """The mapping or gap that has it, and its neighbours, in order and without holes."""
    assert around(address) == cells


def test_without_mappings_nothing_is_known() -> None:
    assert AddressSpace((), ()).around(16) == []
