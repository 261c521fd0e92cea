"""The rows of the terminal's summary: which label each has, how many there are of a kind, and what the last one says of the rest."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from crashkit.model import (
    Crash,
    ElidedFrames,
    Evidence,
    Finding,
    Frame,
    Gpu,
    GpuException,
    GpuKernel,
    GpuPlace,
    Job,
    JobCall,
    JobCause,
    JobCollective,
    JobPlace,
    JobProcess,
    LaunchedFrom,
    LogLine,
    LookedFor,
    NativeFrame,
    Process,
    PythonFrame,
    Sibling,
    Signal,
    SoftError,
    Source,
    Task,
    Thread,
    Wait,
)
from crashkit.report import markdown
from crashkit.report.text import summary
from tests.report.test_shown import variants

SEGV = Signal(number=11, name="SIGSEGV")
OWN = PythonFrame(function="load", file="/srv/app.py", line=3, source="copy(x)")


def rows(crash: Crash, width: int = 120, brief: bool = True) -> list[str]:
    return list(summary(crash, None, color=False, width=width, brief=brief))


def fields(crash: Crash, width: int = 120) -> list[tuple[str, str]]:
    """The rows with a label and a value: two cells in, the label in ten."""
    return [(row[2:12].strip(), row[12:]) for row in rows(crash, width)[1:] if row.startswith("  ")]


def of(label: str, crash: Crash) -> list[str]:
    """The values below this label; rows after the first have none."""
    found, below = [], False
    for name, value in fields(crash):
        below = name == label or (below and not name)
        if below:
            found.append(value)
    return found


# Labels


def test_of_several_rows_the_first_has_the_label() -> None:
    """Of each kind."""
    cause = JobCause(
        rank=1, what="ValueError: x", confidence="certain", because="it is alone", where=JobPlace("step", "/srv/t.py", 3, "x()")
    )
    processes = tuple(JobProcess(rank=rank, role=role) for rank, role in enumerate(("lost-peer", "root-cause", "stopped")))
    job = Job(kind="torchrun", root_cause=cause, processes=processes, also=(JobCause(rank=5, what="OSError"), JobCause(rank=6)))
    assert fields(Crash(job=job)) == [
        ("line", "step /srv/t.py:3"),
        ("", "  x()"),
        ("known by", "certain: it is alone"),
        ("job", "torchrun"),
        ("also", "rank 5: OSError"),
        ("", "rank 6"),
        ("followed", "rank 0: lost a peer"),
        ("", "rank 2: stopped by the launcher"),
    ]


def test_calls_of_a_collective() -> None:
    calls = (JobCall("all_reduce", ranks=(0,), where=JobPlace("step", "/srv/t.py", 3)), JobCall(ranks=(1,)))
    collective = JobCollective(problem="mismatch", calls=calls)
    what = "rank 0 called all_reduce (t.py:3) and rank 1 called something"
    crash = Crash(job=Job(root_cause=JobCause(ranks=(0, 1), what=what), collectives=(collective,)))
    assert [(label, value.rstrip()) for label, value in fields(crash)] == [
        ("called", "rank 0: all_reduce step /srv/t.py:3"), ("", "rank 1:"), ("job", ""),
    ]  # fmt: skip
    other = replace(crash, job=Job(root_cause=JobCause(rank=0, what="ValueError"), collectives=(collective,)))
    assert [label for label, _ in fields(other)] == ["job"]


def test_a_long_answer_of_a_job_is_repeated_in_full() -> None:
    """The headline is one row."""
    long = JobCause(rank=1, what=" ".join(["word"] * 24), confidence="certain")
    headline, *others = rows(Crash(job=Job(root_cause=long)))
    assert len(headline) <= 120 and headline.endswith("…") and others[0].startswith("  failed first: word") and others[0].count("word") > 15
    short = rows(Crash(job=Job(root_cause=replace(long, what="SIGSEGV"))))
    assert short[:2] == ["rank 1  failed first: SIGSEGV", ""]


def test_where_the_warps_of_a_hanging_kernel_stand() -> None:
    places = tuple(GpuPlace(warps=number, function="f", file="/srv/k.py", line=number) for number in (4, 3, 2, 1))
    gpu = Gpu(path="d", kernels=(GpuKernel(name="k", warps=10, places=places, known_as="torch: add"),))
    found = fields(Crash(gpu=(gpu,)))
    assert found[0] == ("kernel", "k  (torch: add)") and [label for label, _ in found[1:]] == ["warps", "", ""]
    bare = replace(gpu, kernels=(replace(gpu.kernels[0], known_as=None),))
    assert fields(Crash(gpu=(bare,)))[0] == ("kernel", "k")


def test_the_line_that_launched() -> None:
    gpu = Gpu(path="d", exceptions=(GpuException(name="WARP_ILLEGAL_ADDRESS", kernel="k"),))
    launched = LaunchedFrom(thread=8, frame=0, exact=True)
    crash = Crash(gpu=(replace(gpu, launched_from=launched),), threads=(Thread(tid=8, frames=(OWN,)),))
    labels = [label for label, _ in fields(crash)]
    assert labels[0] == "kernel" and labels.count("launched") == 1 and labels[labels.index("launched") + 1 :][:2] == ["", ""]


KINDS = "long-fix short-fix no-fix log-ends next one-error two-errors more-errors looked-for".split()


@pytest.mark.parametrize(
    ("facts", "label", "count"),
    [
        ({"findings": (Finding(id="a", title="A", confidence="likely", fix=("one\n\ntwo\nthree\nfour",)),)}, "fix", 3),
        ({"findings": (Finding(id="a", title="A", confidence="likely", fix=("one",)),)}, "fix", 1),
        ({"findings": (Finding(id="a", title="A", confidence="likely", fix=()),)}, "fix", 0),
        ({"last_words": ("a", " b ", "c", "d")}, "log ends", 3),
        ({"next_steps": ("a", "b", "c", "d")}, "next", 3),
        ({"soft_errors": (SoftError(stage="x", message="a", hint="do b"),)}, "missing", 2),
        ({"soft_errors": (SoftError(stage="x", message="a"), SoftError(stage="y", message="b", hint="c"))}, "missing", 2),
        ({"soft_errors": (SoftError(stage="x", message="a"),) * 3}, "missing", 2),
        ({"looked_for": (LookedFor(id="a", title="A", verdict="contradicted", by="x"),)}, "cause", 1),
    ],
    ids=KINDS,
)
def test_how_many_rows_there_are_of_a_kind(facts: dict[str, Any], label: str, count: int) -> None:
    found = of(label, Crash(signal=SEGV, **facts))
    assert len(found) == count and [name for name, _ in fields(Crash(signal=SEGV, **facts))].count(label) == min(count, 1)


def test_what_is_not_shown_is_counted() -> None:
    errors = tuple(SoftError(stage=stage, message=stage) for stage in ("tasks", "modules", "greenlets"))
    assert of("missing", Crash(signal=SEGV, soft_errors=errors)) == ["tasks", "and 2 more in the report"], "those that count come first"
    findings = tuple(Finding(id=name, title=name, confidence="likely") for name in "abc")
    assert of("likely", Crash(signal=SEGV, findings=findings)) == ["a", "and 2 more findings in the report"]
    one = Crash(signal=SEGV, findings=findings[:1])
    assert of("likely", one) == ["a"]


ABORT, CORE = Signal(number=6, name="SIGABRT"), Source(path="core", kind="core")


@pytest.mark.parametrize(
    ("signal", "confidence", "log", "source", "shown"),
    [
        (ABORT, "certain", None, CORE, ["no heartbeat"]),
        (ABORT, "possible", None, CORE, ["no heartbeat"]),
        (SEGV, "possible", None, CORE, ["no heartbeat"]),
        (SEGV, "certain", None, CORE, []),
        (ABORT, "certain", 0, CORE, []),  # a line of the log is the reason
        (SEGV, "possible", None, Source(path="log", kind="log"), []),  # all of it has been read
    ],
)
def test_the_last_words_stand_beside_a_finding_that_leaves_the_reason_open(
    signal: Signal, confidence: str, log: int | None, source: Source, shown: list[str]
) -> None:
    """A finding that says to look at the last lines that the process printed has to show them."""
    found = Finding(id="self-abort", title="X", confidence=confidence, evidence=(Evidence(text="x", log=log),))
    crash = Crash(
        signal=signal,
        source=source,
        findings=(found,),
        log=(LogLine(text="known"),),
        last_words=("known", "no heartbeat"),
        threads=(Thread(tid=1, crashed=True),),
    )
    assert of("log ends", crash) == shown
    assert ("no heartbeat" in markdown.summary(crash)) is bool(shown)


@pytest.mark.parametrize(("fix", "shown"), [((), ["a", "b"]), (("Check it.",), [])])
def test_what_to_do_next_stands_beside_a_finding_that_says_nothing_to_do(fix: tuple[str, ...], shown: list[str]) -> None:
    found = Finding(id="null-deref", title="X", confidence="certain", fix=fix)
    crash = Crash(signal=SEGV, source=CORE, findings=(found,), next_steps=("a", "b", "c"), threads=(Thread(tid=1, crashed=True),))
    assert of("next", crash) == shown
    assert ("What to do next:" in markdown.summary(crash)) is bool(shown)


def test_the_last_words_of_a_log_are_shown_where_nothing_matched() -> None:
    assert of("log ends", Crash(signal=SEGV, last_words=("a", "b", "c", "d"))) == ["b", "c", "d"]
    answered = Job(root_cause=JobCause(rank=0, what="ValueError"))
    found = Crash(job=answered, last_words=("a",), next_steps=("b",), looked_for=(LookedFor(id="a", title="A", verdict="x", by="y"),))
    assert not {"log ends", "next", "cause"} & {label for label, _ in fields(found)}


# Waits


def waiting(*waits: Wait, **facts: Any) -> Crash:
    threads = tuple(Thread(tid=tid, name=f"t{tid}") for tid in range(1, 10))
    return Crash(**{"source": Source(path="", kind="live"), "threads": threads, "waits": waits, **facts})


@pytest.mark.parametrize(
    ("facts", "tells"),
    [
        ({}, False),
        ({"cycle": True}, True),
        ({"lost": True}, True),
        ({"held_by": 2}, True),
        ({"process": 7}, True),
        ({"kind": "lock"}, True),
        ({"kind": "rlock"}, True),
        ({"kind": "import"}, True),
    ],
)
def test_of_a_crash_only_waits_that_tell_something(facts: dict[str, Any], tells: bool) -> None:
    """Of a process that lives all of them, if none does."""
    wait = Wait(**{"thread": 1, "kind": "poll", **facts})
    idle = Wait(thread=2, kind="poll")
    label = "deadlock" if wait.cycle else "waits"
    assert bool(of(label, waiting(wait, idle, signal=SEGV))) == tells
    assert len(of(label, waiting(wait, idle))) == (1 if tells else 2)


def test_the_first_of_several_waits_has_the_label() -> None:
    circle = [Wait(thread=tid, kind="lock", held_by=3 - tid, cycle=True) for tid in (1, 2)]
    others = [Wait(thread=tid, kind="lock", held_by=1) for tid in range(3, 8)]
    crash = waiting(*circle, *others)
    assert [label for label, _ in fields(crash)].count("deadlock") == 1
    assert len(of("deadlock", crash)) == 7 and of("deadlock", crash)[-1] == "and 1 more in the report"
    assert len(of("waits", waiting(*others))) == 5 and of("deadlock", waiting(*others)) == []


def test_tasks_that_are_stuck() -> None:
    def stuck(number: int) -> Task:
        at = PythonFrame(function=f"f{number}", file="/srv/app.py", line=number)
        return Task(name=f"task-{number}", state="waiting", awaits="Future", frames=(at,))

    crash = waiting(Wait(thread=1, kind="poll"), tasks=tuple(map(stuck, range(6))))
    assert len(of("tasks", crash)) == 5 and of("tasks", crash)[-1] == "and 2 more tasks in the report"
    assert of("tasks", replace(crash, tasks=crash.tasks[:4]))[-1].startswith("task task-3 waits")
    assert of("tasks", replace(crash, waits=())) == [], "of a crash they explain nothing"


# Stacks


def stack(*frames: Frame, **facts: Any) -> list[str]:
    """The rows of the crashed thread's stack."""
    crash = Crash(signal=SEGV, threads=(Thread(**{"tid": 7, "name": "main", "crashed": True, "frames": frames, **facts}),))
    shown = rows(crash, brief=False)
    return shown[next(index for index, row in enumerate(shown) if "innermost first" in row) :]


def natives(count: int) -> tuple[NativeFrame, ...]:
    return tuple(NativeFrame(function=f"f{number}", module="/srv/a.so") for number in range(count))


def test_a_row_of_each_kind_of_frame() -> None:
    nameless = PythonFrame(file="/srv/app.py", line=9)
    assert stack(NativeFrame(function="copy", module="/srv/a.so"), OWN, nameless, ElidedFrames(count=1200), ElidedFrames(cycle=("f",))) == [
        "Stack of main (7), innermost first",
        "   0 C  copy  a.so",
        "   1 py load  /srv/app.py:3",
        "          copy(x)",
        "   2 py (no name)  /srv/app.py:9",
        "   3    ... 1,200 frames omitted",
        "   4    ... frames omitted (repeating): f",
    ]


def test_of_a_long_stack_the_ends_are_shown() -> None:
    assert len(stack(*natives(40))) == 41
    _, *shown = stack(*natives(50))
    assert [row.split()[2] for row in shown[:32]] == [f"f{number}" for number in range(32)]
    assert shown[32] == "       ... 10 frames not shown here"
    assert [row.split()[2] for row in shown[33:]] == [f"f{number}" for number in range(42, 50)]


def test_frames_of_a_cycle_count_where_they_are_not_shown() -> None:
    cycle = (NativeFrame(function="again", module="/srv/a.so"),) * 30
    (note,) = (row for row in stack(*natives(33), *cycle, *natives(9)) if "not shown" in row)
    assert note == f"       ... {33 + 30 + 9 - 32 - 8} frames not shown here"


def test_stacks_that_could_not_be_merged_have_a_title_each() -> None:
    shown = stack(*natives(1), python_frames=(OWN,))
    assert shown == [
        "Python stack of main (7), innermost first",
        "   0 py load  /srv/app.py:3",
        "          copy(x)",
        "",
        "Native stack, which could not be merged with it",
        "   0 C  f0  a.so",
    ]


def others(crash: Crash, title: str) -> list[str]:
    shown = rows(crash, brief=False)
    return shown[shown.index(title) + 1 :]


def test_other_threads() -> None:
    """Those that stand at the same line together, at most eight rows."""

    def thread(tid: int, line: int) -> Thread:
        return Thread(tid=tid, frames=(PythonFrame(function="work", file="/srv/app.py", line=line),))

    several = (thread(1, 1), thread(2, 1), *(thread(10 + line, line) for line in range(2, 11)))
    found = others(Crash(threads=several), "Threads")
    assert found[0] == "  2 threads: work /srv/app.py:1" and found[1] == "  12: work /srv/app.py:2"
    assert len(found) == 9 and found[-1] == "  and 2 threads more in the report"
    assert others(Crash(threads=(Thread(tid=7, crashed=True), Thread(tid=8))), "Other threads") == ["  8: no frames"]


def test_other_processes() -> None:
    """Up to three places each; of several threads at one, how many."""

    def at(line: int, tid: int) -> Thread:
        return Thread(tid=tid, frames=(PythonFrame(function="work", file="/srv/app.py", line=line),))

    busy = Sibling(pid=7, argv=("/usr/bin/python3", "a.py"), threads=(at(1, 1), at(1, 2), at(2, 3), at(3, 4), at(4, 5), at(5, 6)))
    crash = Crash(siblings=(busy, Sibling(pid=8, threads=(Thread(tid=8),)), *(Sibling(pid=100 + number) for number in range(16))))
    found = others(crash, "Other processes")
    whole = " ".join(" ".join(found).split())
    assert "2 threads in work /srv/app.py:1; work /srv/app.py:2; work /srv/app.py:3; and 2 other stacks" in whole
    assert "no Python frame" in whole and found[-1] == "  and 2 more in the report"
    assert "more in the report" not in " ".join(others(replace(crash, siblings=crash.siblings[:16]), "Other processes"))


def test_long_values_end_in_a_mark() -> None:
    """In the last of the rows that they may take."""
    words = " ".join(f"word{number}" for number in range(100))
    finding = Finding(id="a", title="A", confidence="likely", summary=words)
    first, second = of("likely", Crash(signal=SEGV, findings=(finding,)))[1:]
    assert first.startswith("word0 ") and second.split()[0] == f"word{len(first.split())}" and second.endswith("…")
    assert all(len(row) <= 108 for row in (first, second))


def test_values_stand_below_each_other() -> None:
    crash = Crash(signal=SEGV, process=Process(pid=7, argv=("app",)), threads=(Thread(tid=7, crashed=True, frames=(OWN,)),))
    found = fields(crash)
    assert [label for label, _ in found][-4:] == ["thread", "python", "", "process"]


LABELS = """
access also beside cause deadlock evidence fix followed forward handler handling job kernel launched likely line log masked memory message
missing native next pending process python thread threads warps
""".split()


def test_the_labels_that_there_are() -> None:
    """Of a crash that has every fact, and of its variants with fewer."""
    found = {label for crash in variants() for label, _ in fields(crash)}
    assert {label for label in found if not label.startswith("w8")} == {*LABELS, "fuses", "known by", "log ends", "unwritten", ""}


def test_a_failure_on_a_gpu_is_told_with_its_thread_on_the_cpu() -> None:
    exception = GpuException(name="WARP_ILLEGAL_ADDRESS", kernel="k")
    gpu = Gpu(path="d", exceptions=(exception,), launched_from=LaunchedFrom(thread=8, frame=0, exact=True))
    driver = Thread(tid=7, crashed=True, frames=natives(1))
    shown = rows(Crash(gpu=(gpu,), threads=(driver, Thread(tid=8, name="main", frames=(OWN,)))), brief=False)
    assert shown[0] == "GPU  illegal address in kernel k"
    assert shown[shown.index("Stack of main (8), innermost first") + 1] == "   0 py load  /srv/app.py:3"


def test_a_process_with_as_many_places_as_are_shown() -> None:
    three = tuple(Thread(tid=tid, frames=(PythonFrame(function="work", file="/srv/app.py", line=tid),)) for tid in (1, 2, 3))
    (found,) = others(Crash(siblings=(Sibling(pid=7, threads=three),)), "Other processes")
    assert found == "  7: work /srv/app.py:1; work /srv/app.py:2; work /srv/app.py:3"
