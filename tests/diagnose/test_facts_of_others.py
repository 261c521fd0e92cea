"""Facts of what waits, of a job's other processes, of a GPU and its memory: what holds, what it names, and what shows it."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from msgspec.structs import replace

from crashkit.diagnose.case import Case
from crashkit.diagnose.gpu import assertion_names, hanging, kinds, names
from crashkit.diagnose.gpu_memory_facts import GPU_MEMORY_FACTS
from crashkit.diagnose.job_facts import JOB_FACTS
from crashkit.diagnose.outcome import Outcome
from crashkit.diagnose.waiting import FACTS as WAITING
from crashkit.diagnose.waiting import ordered
from crashkit.model import (
    Address,
    Crash,
    Gpu,
    GpuException,
    GpuKernel,
    GpuMemory,
    GpuPlace,
    Job,
    JobCall,
    JobCause,
    JobCollective,
    JobPlace,
    JobProcess,
    LaunchedFrom,
    LogLine,
    NativeFrame,
    Offset,
    Process,
    PythonFrame,
    Source,
    Thread,
    Wait,
)


def told(outcome: Outcome) -> str:
    """`yes`, `no`, or what would have to be known."""
    assert outcome.holds or outcome.why
    return "yes" if outcome.holds else outcome.missing or "no"


# Jobs

FIRST = JobCause(rank=1, what="ValueError: bad", confidence="certain")
MISSING = JobCollective(problem="missing", operation="all_reduce", sequence=7, missing=(1,), group="default_pg")
NEVER = "rank 1 never reached all_reduce #7"
MISMATCH = JobCollective(problem="mismatch", sequence=7, calls=(JobCall("all_reduce", ranks=(0,)), JobCall("all_gather", ranks=(1,))))
CALLED = "at #7 rank 0 called all_reduce and rank 1 called all_gather"


OF_RANKS = {"job-cause", "job-rank-failed", "job-rank-exception", "job-rank-failed-alone"}


def of_job(fact: str, job: Optional[Job]) -> Outcome:
    return JOB_FACTS[fact](Case(Crash(job=job)))


def failed(**changes: Any) -> Job:
    return Job(root_cause=replace(FIRST, **changes))


def collective(one: JobCollective, what: str, confidence: Optional[str] = "certain") -> Job:
    return Job(root_cause=JobCause(rank=1, what=what, confidence=confidence), collectives=(one,))


@pytest.mark.parametrize(
    ("fact", "job", "expected"),
    [
        *((fact, None, "no") for fact in JOB_FACTS),
        *(
            (fact, Job(), "which process failed first")
            for fact in ("job-cause", "job-rank-failed", "job-rank-exception", "job-rank-failed-alone")
        ),
        ("job-cause", failed(), "yes"),
        ("job-cause", failed(what=None), "which process failed first"),
        ("job-cause", failed(what="SIGTERM"), "which process failed first"),
        ("job-rank-failed", failed(), "yes"),
        ("job-rank-failed", failed(confidence="likely"), "yes"),
        ("job-rank-failed", failed(confidence="possible"), "which process failed first"),
        ("job-rank-failed", collective(MISSING, NEVER), "no"),
        ("job-rank-failed", collective(MISSING, "ValueError: bad"), "yes"),
        ("job-rank-exception", failed(), "yes"),
        ("job-rank-exception", failed(what="SIGSEGV"), "no"),
        ("job-rank-exception", failed(what="exit status 1"), "no"),
        ("job-rank-failed-alone", failed(), "yes"),
        ("job-rank-failed-alone", failed(confidence="likely"), "no"),
        *(
            (fact, failed(), "no")
            for fact in ("collective-missing", "collective-missing-by-number", "collective-mismatch", "waiting-apart")
        ),
        ("collective-missing", collective(MISSING, NEVER), "yes"),
        ("collective-missing", collective(MISSING, NEVER, "possible"), "which calls the ranks differed in"),
        ("collective-missing", collective(MISMATCH, CALLED), "no"),
        ("collective-missing-by-number", collective(MISSING, NEVER), "yes"),
        (
            "collective-missing-by-number",
            collective(MISSING, NEVER, "likely"),
            "which of several ranks that waited for each other was the first",
        ),
        (
            "collective-missing-by-number",
            collective(replace(MISSING, sequence=None), "rank 1 never reached all_reduce"),
            "the sequence numbers of the collectives",
        ),
        ("collective-mismatch", collective(MISMATCH, CALLED), "yes"),
        (
            "collective-mismatch",
            collective(replace(MISMATCH, differs=("place",)), CALLED, "possible"),
            "whether the ranks waited in the same process group",
        ),
        ("waiting-apart", collective(replace(MISMATCH, differs=("place",)), CALLED, "possible"), "yes"),
        ("waiting-apart", collective(MISMATCH, CALLED), "no"),
    ],
)
def test_what_went_wrong_in_a_job(fact: str, job: Optional[Job], expected: str) -> None:
    assert told(of_job(fact, job)) == expected


def test_what_is_said_of_a_rank_that_failed() -> None:
    ranks = {0: "lost-peer", 2: "lost-peer", 3: "stopped", 4: "waited", 1: "root-cause"}
    processes = tuple(JobProcess(rank=rank, role=role) for rank, role in ranks.items())
    also = (JobCause(rank=5, what="OSError"), JobCause(rank=6, what="KeyError", attempt=0))
    found = of_job("job-rank-failed", Job(root_cause=FIRST, processes=(*processes, JobProcess(role="lost-peer")), also=also))
    assert [one.text for one in found.evidence] == ["rank 1 failed first: ValueError: bad"]
    assert found.fields == {
        "first": "Rank 1 failed first: ValueError: bad.",
        "followed": "Rank 5 also failed for a reason of its own: OSError, ranks 0 and 2 lost a peer, rank 3 was stopped by the launcher, "
        "rank 4 left no message.",
    }
    stopped = tuple(JobProcess(rank=rank, role="stopped") for rank in (2, 3))
    assert of_job("job-rank-failed", Job(root_cause=FIRST, processes=stopped)).fields["followed"] == (
        "Ranks 2 and 3 were stopped by the launcher."
    )
    assert of_job("job-rank-failed", Job(root_cause=FIRST)).fields["followed"] == ""


def test_what_is_said_of_a_collective() -> None:
    found = of_job("collective-missing", collective(MISSING, NEVER))
    assert [one.text for one in found.evidence] == [f"default_pg: {NEVER}"] and found.why == NEVER
    assert found.fields == {"happened": f"R{NEVER[1:]}.", "operation": "all_reduce", "missing": "rank 1"}
    found = of_job("collective-mismatch", collective(MISMATCH, CALLED))
    assert [one.text for one in found.evidence] == [CALLED]
    assert found.fields == {"happened": f"A{CALLED[1:]}.", "operation": "a collective", "missing": "no rank"}
    found = of_job("waiting-apart", collective(replace(MISMATCH, differs=("place",)), CALLED))
    assert ([one.text for one in found.evidence], found.fields) == ([CALLED], {"happened": f"A{CALLED[1:]}."})
    standing = JobProcess(rank=1, where=JobPlace("load", "/srv/data.py", 3))
    stood = f"{NEVER}; it was in load data.py:3"
    assert of_job("collective-missing", replace(collective(MISSING, stood), processes=(standing,))).why == stood


# Waits

LINES = {tid: PythonFrame(function=f"f{tid}", file="/srv/app.py", line=tid) for tid in (1, 2, 3)}


MAIN = Process(pid=1)


def standing(tid: int) -> Thread:
    return Thread(tid=tid, name=f"t{tid}", frames=(LINES[tid],), activity="blocked")


def waiting(*waits: Wait, threads: tuple[int | Thread, ...] = (1, 2), live: bool = False, process: Process = MAIN) -> Case:
    several = (one if isinstance(one, Thread) else standing(one) for one in threads)
    return Case(Crash(waits=waits, source=Source(path="", kind="live" if live else "core"), process=process, threads=tuple(several)))


def ring(*kinds: str) -> tuple[Wait, ...]:
    last = len(kinds)
    return tuple(
        Wait(thread=tid, kind=kind, name=f"{kind}{tid}", held_by=tid % last + 1, cycle=True) for tid, kind in enumerate(kinds, start=1)
    )


@pytest.mark.parametrize(
    ("fact", "case", "expected"),
    [
        *((f"deadlock-{which}", waiting(), "what the threads wait for") for which in ("of-locks", "with-gil", "with-import")),
        *((f"deadlock-{which}", waiting(Wait(thread=1, kind="lock")), "no") for which in ("of-locks", "with-gil", "with-import")),
        ("deadlock-of-locks", waiting(*ring("lock", "rlock")), "yes"),
        ("deadlock-of-locks", waiting(*ring("lock", "gil")), "no"),
        ("deadlock-of-locks", waiting(*ring("lock", "import")), "no"),
        ("deadlock-with-gil", waiting(*ring("mutex", "gil")), "yes"),
        ("deadlock-with-gil", waiting(*ring("lock", "lock"), Wait(thread=3, kind="gil")), "no"),
        ("deadlock-with-import", waiting(*ring("lock", "import")), "yes"),
        ("deadlock-with-import", waiting(*ring("lock", "gil")), "no"),
        ("nobody-left", waiting(), "what each thread waits for"),
        ("nobody-left", waiting(Wait(thread=1, kind="queue", inside=True)), "what each thread waits for"),
        ("nobody-left", waiting(Wait(thread=1, kind="queue", inside=True), threads=(1,)), "yes"),
        ("nobody-left", waiting(Wait(thread=1, kind="queue"), threads=(1,)), "no"),
        (
            "nobody-left",
            waiting(Wait(thread=1, kind="queue", inside=True), threads=(Thread(tid=1, processor=0.2),)),
            "no",
        ),
        (
            "nobody-left",
            waiting(Wait(thread=1, kind="queue", inside=True), threads=(Thread(tid=1, processor=0.19),)),
            "yes",
        ),
        ("may-wait-for-a-signal", waiting(), "what the main thread waits for"),
        ("may-wait-for-a-signal", waiting(Wait(thread=2, kind="event")), "what the main thread waits for"),
        ("may-wait-for-a-signal", waiting(Wait(thread=1, kind="event")), "yes"),
        ("may-wait-for-a-signal", waiting(Wait(thread=1, kind="condition")), "yes"),
        ("may-wait-for-a-signal", waiting(Wait(thread=1, kind="queue")), "no"),
        ("lost-owner", waiting(), "what the threads wait for"),
        ("lost-owner", waiting(Wait(thread=1, kind="lock")), "no"),
        ("lost-owner", waiting(Wait(thread=1, kind="lock", lost=True)), "whether the process was forked"),
        ("lost-owner", waiting(Wait(thread=1, kind="lock", lost=True), process=Process(pid=1, forked=True)), "yes"),
        ("lost-owner", waiting(Wait(thread=1, kind="lock", lost=True), process=Process(pid=1, forked=False)), "no"),
        ("waits-for-collective", waiting(), "what the threads wait for"),
        ("waits-for-collective", waiting(Wait(thread=1, kind="lock")), "no"),
        ("waits-for-collective", waiting(Wait(thread=1, kind="collective")), "yes"),
        ("waits-for-input", waiting(Wait(thread=1, kind="socket")), "what the file descriptors were"),
        *(("waits-for-input", waiting(Wait(thread=1, kind=kind), live=True), "yes") for kind in ("socket", "pipe", "file", "terminal")),
        ("waits-for-input", waiting(Wait(thread=1, kind="lock"), live=True), "no"),
        ("waits-for-input", waiting(live=True), "what the threads wait for"),
        ("waits-for-input", waiting(Wait(thread=9, kind="socket"), live=True), "no"),
        # A background thread that reads an idle pipe, such as execnet's in a worker of pytest-xdist, is not why the process hangs.
        ("waits-for-input", waiting(Wait(thread=1, kind="child"), Wait(thread=2, kind="pipe"), live=True), "no"),
        ("waits-for-input", waiting(Wait(thread=1, kind="queue"), Wait(thread=2, kind="pipe"), live=True), "yes"),
        ("waits-for-input-pipe", waiting(Wait(thread=2, kind="socket"), Wait(thread=1, kind="pipe"), live=True), "yes"),
        ("waits-for-input-socket", waiting(Wait(thread=2, kind="socket"), Wait(thread=1, kind="pipe"), live=True), "no"),
        ("waits-for-child", waiting(Wait(thread=1, kind="child"), Wait(thread=2, kind="pipe"), live=True), "yes"),
        ("waits-for-child", waiting(Wait(thread=2, kind="child"), live=True), "no"),
        ("waits-for-child", waiting(Wait(thread=1, kind="child")), "whether the child ran"),
        ("waits-for-child", waiting(live=True), "what the threads wait for"),
        ("busy", waiting(), "how much processor time the threads used"),
        ("busy", waiting(live=True), "no"),
        ("busy", waiting(live=True, threads=()), "no"),
        ("busy", waiting(live=True, threads=(Thread(tid=1, processor=0.79),)), "no"),
        ("busy", waiting(live=True, threads=(Thread(tid=1, processor=0.8),)), "yes"),
    ],
)
def test_what_threads_wait_for(fact: str, case: Case, expected: str) -> None:
    assert told(WAITING[fact](case)) == expected


def test_a_busy_thread_waits_for_nothing() -> None:
    several = (Thread(tid=1, activity="blocked"), Thread(tid=2, activity="busy"))
    assert not WAITING["waits-for-input"](waiting(Wait(thread=1, kind="socket"), live=True, threads=several)).holds


def test_a_deadlock_is_told_along_its_cycle() -> None:
    """Each wait, then that of whoever it waits for."""
    one, two, three = ring("lock", "rlock", "lock")
    found = WAITING["deadlock-of-locks"](waiting(two, three, one, Wait(thread=4, kind="lock"), threads=(1, 2, 3)))
    assert [evidence.thread for evidence in found.evidence] == [2, 3, 1]
    assert found.fields["count"] == "3" and found.fields["locks"] == "rlock2, lock3, lock1" and found.fields["line"] == "f2 (app.py:2)"
    circle = found.fields["circle"].split("; ")
    assert circle == [evidence.text for evidence in found.evidence]
    assert "t2 (2) waits in f2 (app.py:2) for the RLock rlock2, held by t3 (3)" in circle[0]


def test_two_circles_are_told_one_after_the_other() -> None:
    waits = [Wait(thread=tid, kind="lock", held_by=holder, cycle=True) for tid, holder in ((1, 3), (2, 4), (3, 1), (4, 2))]
    assert [wait.thread for wait in ordered(waits)] == [1, 3, 2, 4]
    assert ordered([]) == []


def test_where_nobody_is_left_the_main_thread_is_told_first() -> None:
    """Then those that run Python."""
    native = Thread(tid=2, name="t2", frames=(NativeFrame(function="f"),))
    several = (Thread(tid=3, name="t3", frames=(LINES[3],)), native, Thread(tid=1, name="t1", frames=(LINES[1],)))
    waits = tuple(Wait(thread=tid, kind="queue", inside=True) for tid in (2, 3, 1))
    found = WAITING["nobody-left"](waiting(*waits, threads=several))
    assert [evidence.thread for evidence in found.evidence] == [1, 3, 2]
    assert found.fields["waiting"].split("; ") == [evidence.text for evidence in found.evidence]
    assert found.fields["nobody"] == "All 3 threads wait without a time limit for each other."


@pytest.mark.parametrize(
    ("kind", "name", "innermost", "expected"),
    [
        ("queue", None, PythonFrame(file="/lib/python3.12/queue.py", function="get"), "queue.get(timeout=60)"),
        ("queue", None, PythonFrame(file="/lib/python3.12/queue.py", function="put"), "queue.put(item, timeout=60)"),
        ("queue", None, PythonFrame(file="/lib/python3.12/queue.py", function="join"), "queue.task_done()"),
        ("queue", None, LINES[1], "queue.get(timeout=60)"),
        ("event", None, LINES[1], "event.wait(60)"),
        ("condition", None, LINES[1], "condition.wait(60)"),
        ("lock", "shared.guard", LINES[1], "shared.guard.acquire(timeout=60)"),
        ("lock", None, LINES[1], "lock.acquire(timeout=60)"),
        ("futex", None, LINES[1], None),
    ],
)
def test_each_kind_of_wait_has_its_own_fix(kind: str, name: str | None, innermost: PythonFrame, expected: str | None) -> None:
    threads = (Thread(tid=1, name="t1", frames=(innermost, LINES[1])),)
    found = WAITING["nobody-left"](waiting(Wait(thread=1, kind=kind, name=name, inside=True), threads=threads))
    assert found.fields.get("wait_call") == expected and found.fields["wait_line"] == "f1 (app.py:1)"


def test_the_fix_of_a_deadlock_names_the_locks_and_the_lines() -> None:
    named = [replace(wait, name=name) for wait, name in zip(ring("lock", "lock"), "ab", strict=True)]
    found = WAITING["deadlock-of-locks"](waiting(*named, threads=(1, 2)))
    assert sorted(found.fields["in_order"].split(", ")) == ["a", "b"] and "f1 (app.py:1)" in found.fields["lines"]
    assert "in_order" not in WAITING["deadlock-of-locks"](waiting(*(replace(wait, name=None) for wait in named), threads=(1, 2))).fields


def test_who_waits_and_who_is_busy() -> None:
    wait = Wait(thread=2, kind="collective", name="all_reduce")
    found = WAITING["waits-for-collective"](waiting(wait))
    assert [(evidence.thread, evidence.text) for evidence in found.evidence] == [(2, found.fields["waiting"])]
    assert found.fields["waiting"].startswith("t2 (2) waits in f2 (app.py:2)")
    signalled = WAITING["may-wait-for-a-signal"](waiting(Wait(thread=1, kind="event")))
    assert [evidence.thread for evidence in signalled.evidence] == [1] and "t1 (1) waits" in signalled.evidence[0].text
    both = WAITING["waits-for-input"](waiting(Wait(thread=2, kind="pipe"), Wait(thread=1, kind="pipe"), live=True))
    assert [evidence.thread for evidence in both.evidence] == [1, 2]
    spinner = Thread(tid=2, name="t2", frames=(LINES[2],), processor=0.987)
    busy = WAITING["busy"](waiting(live=True, threads=(Thread(tid=1, processor=0.9), spinner)))
    assert [(one.thread, one.text) for one in busy.evidence] == [(2, "t2 (2) ran for 99% of the time that it was watched")]
    assert busy.fields == {"busy": "t2 (2) was busy in f2 (app.py:2)"}


# GPUs


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, {"memory"}),
        ({"address": Address(0x10)}, {"memory", "null"}),
        ({"address": Address(1 << 40)}, {"memory"}),
        ({"space": "global", "address": Address(0)}, {"memory", "null"}),
        ({"space": "local", "address": Address(0)}, {"local", "stack"}),
        ({"space": "shared", "address": Address(0)}, {"shared"}),
    ],
)
def test_kinds_of_an_illegal_address(facts: dict[str, Any], expected: set[str]) -> None:
    assert kinds(GpuException(name="WARP_ILLEGAL_ADDRESS", **facts)) == expected


def test_a_trap_in_shared_memory_is_a_trap() -> None:
    assert "shared" not in kinds(GpuException(name="WARP_ILLEGAL_INSTRUCTION", space="shared"))


BARRIER, RUNS = GpuPlace(warps=1, waits="barrier", file="/srv/k.py", line=3), GpuPlace(warps=1, file="/srv/k.py", line=9)


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ((), {"hang"}),
        ((RUNS,), {"hang"}),
        ((BARRIER,), {"hang"}),
        ((BARRIER, RUNS), {"hang", "barrier"}),
        ((replace(BARRIER, waits="mbarrier"), RUNS), {"hang", "mbarrier"}),
        ((BARRIER, replace(RUNS, line=3)), {"hang"}),
        ((BARRIER, replace(RUNS, line=3), RUNS), {"hang", "barrier"}),
        ((replace(BARRIER, waits="sleep"), RUNS), {"hang"}),
    ],
)
def test_how_a_kernel_hangs(places: tuple[GpuPlace, ...], expected: set[str]) -> None:
    kernel = GpuKernel(name="k", warps=2, places=places)
    assert [found for _, found in hanging(Gpu(path="d", kernels=(kernel, replace(kernel, warps=0))))] == [expected]
    assert list(hanging(Gpu(path="d", kernels=(kernel,), exceptions=(GpuException(name="X"),)))) == []


STEP = PythonFrame(function="step", file="/srv/train.py", line=3)
CALLING = Thread(tid=8, frames=(NativeFrame(function="cuLaunchKernel"), STEP))


MEMORY = GpuMemory(state="freed", address=Address(0x1000), size=16, offset=Offset(4), freed=(STEP,))


def test_names_of_an_exception() -> None:
    exception = GpuException(
        name="WARP_ILLEGAL_ADDRESS",
        kernel="scatter",
        file="/srv/k.py",
        line=9,
        block_index=(1, 0, 0),
        thread_index=(64, 0, 0),
        detail="a null pointer",
        memory=MEMORY,
    )
    launched = LaunchedFrom(thread=8, frame=1, exact=True)
    gpu = Gpu(path="d", exceptions=(exception,), launched_from=launched)
    found = names(Crash(threads=(CALLING,)), gpu)
    assert found.pop("gpu_exception") and found.pop("gpu_memory")
    assert found == {
        "gpu_kernel": "scatter",
        "gpu_place": "/srv/k.py:9",
        "gpu_thread": "block (1,0,0), thread (64,0,0)",
        "gpu_address": "a null pointer",
        "gpu_freed": "/srv/train.py:3 in step",
        "gpu_launched": "/srv/train.py:3 in step",
    }
    bare = replace(exception, file=None, offset=Offset(0x30), thread_index=(), memory=replace(MEMORY, state="live"))
    noticed = replace(gpu, exceptions=(bare,), launched_from=replace(launched, exact=False))
    found = names(Crash(threads=(CALLING,)), noticed)
    assert found["gpu_place"] == "offset 0x30" and found["gpu_noticed"] == "/srv/train.py:3 in step"
    assert not {"gpu_thread", "gpu_freed", "gpu_launched"} & found.keys()


@pytest.mark.parametrize("place", [{"frame": 0}, {"frame": 2}, {"frame": None}, {"thread": 9}])
def test_a_launch_that_is_no_python_line_has_no_name(place: dict[str, Any]) -> None:
    launched = replace(LaunchedFrom(thread=8, frame=1, exact=True), **place)
    gpu = Gpu(path="d", exceptions=(GpuException(name="WARP_ILLEGAL_ADDRESS"),), launched_from=launched)
    assert "gpu_launched" not in names(Crash(threads=(CALLING,)), gpu)


def test_names_of_a_kernel_that_hangs() -> None:
    gpu = Gpu(path="d", kernels=(GpuKernel(name="wait_for", warps=2, places=(RUNS, BARRIER)),))
    assert names(Crash(), gpu) == {"gpu_kernel": "wait_for", "gpu_waiting": "/srv/k.py:3", "gpu_running": "/srv/k.py:9"}
    assert names(Crash(), Gpu(path="d", kernels=(GpuKernel(warps=1, places=(replace(RUNS, file=None),)),))) == {}
    assert names(Crash(), Gpu(path="d")) == {}


def test_names_of_an_assertion() -> None:
    line = LogLine(text="x", kind="device-assert-line", fields={"assertion": "", "kernel": "scatter"})
    unnamed = replace(line, fields={"assertion": "", "kernel": "unknown"})
    assert assertion_names(Crash(log=(unnamed, line)))["asserted_by"] == "Kernel scatter"
    assert assertion_names(Crash(log=(unnamed,))) == {} == assertion_names(Crash())
    other = Gpu(path="d", exceptions=(GpuException(name="WARP_ILLEGAL_ADDRESS", kernel="k"),))
    assert assertion_names(Crash(log=(line,), gpu=(other,))) == {}
    asserted = Gpu(path="d", exceptions=(GpuException(name="WARP_ASSERT", kernel="k"),))
    assert assertion_names(Crash(log=(unnamed,), gpu=(asserted,)))["asserted_by"] == "Kernel k"


NOW = "Tried to allocate {tried}. Process 12 has {others} memory in use. and {unused} is reserved by PyTorch but unallocated"
BEFORE = "Tried to allocate {tried} (GPU 0; 8.00 GiB total capacity; 3.00 GiB already allocated; {reserved} reserved in total by PyTorch)"


@pytest.mark.parametrize(
    ("fact", "message", "expected"),
    [
        ("fragmented", NOW.format(tried="2.00 GiB", unused="2.00 GiB", others="1.00 MiB"), "yes"),
        ("fragmented", NOW.format(tried="2.00 GiB", unused="2047.00 MiB", others="9.00 GiB"), "no"),
        ("fragmented", NOW.format(tried="2 bytes", unused="1 bytes", others="0 bytes"), "no"),
        ("fragmented", BEFORE.format(tried="1024.00 MiB", reserved="4.00 GiB"), "yes"),
        ("fragmented", BEFORE.format(tried="1025.00 MiB", reserved="4.00 GiB"), "no"),
        ("fragmented", BEFORE.format(tried="1.00 KiB", reserved="2.00 GiB"), "no"),
        ("fragmented", "Tried to allocate 2.00 GiB", "how much memory torch's allocator held"),
        ("fragmented", "out of memory", "how much memory torch's allocator held"),
        ("used-by-others", NOW.format(tried="2.00 GiB", unused="0 bytes", others="2.00 GiB"), "yes"),
        ("used-by-others", NOW.format(tried="2.00 GiB", unused="5.00 GiB", others="1.99 GiB"), "no"),
        ("used-by-others", "Process 12 has 3.00 GiB memory in use.", "how much memory other processes held"),
    ],
)
def test_memory_of_a_gpu(fact: str, message: str, expected: str) -> None:
    other = LogLine(text=NOW.format(tried="1.00 GiB", unused="9.00 GiB", others="9.00 GiB"), kind="exception")
    found = GPU_MEMORY_FACTS[f"gpu-memory-{fact}"](Case(Crash(log=(other, LogLine(text=message, kind="cuda-oom")))))
    assert told(found) == expected
    if found.holds:
        assert [(one.text, one.log) for one in found.evidence] == [(message, 1)]
