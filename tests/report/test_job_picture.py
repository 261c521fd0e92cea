"""A job's picture and its words, of jobs that are made up: what is drawn where, and what each bar and each sentence names.

tests/job/test_picture.py draws real ones, tests/report/test_report_browser.py looks at them in a browser.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Optional

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from crashkit.job.sentences import what_happened
from crashkit.model import Crash, Gpu, GpuException, Job, JobCall, JobCause, JobCollective, JobPlace, JobProcess, Process, Signal, Source
from crashkit.report import job_wording as wording
from crashkit.report.job_wording import WIDTH, Picture, bands, pictures
from crashkit.report.text import summary

MARGIN = 20
"""Right of the longest bar: room for the ring around what failed first."""
CHARACTER = 7
"""Pixels of one in the axis's font, at most (0.75rem)."""
processes = st.lists(
    st.builds(
        JobProcess,
        rank=st.none() | st.integers(0, 200),
        pid=st.none() | st.integers(1, 99),
        attempt=st.none() | st.integers(0, 3),
        role=st.sampled_from([*wording.ROLES, None, "unheard of"]),
        what=st.none() | st.text(max_size=200),
        at=st.none() | st.floats(0, 4e9) | st.floats(allow_nan=True, allow_infinity=True),
        sequence=st.none() | st.integers(0, 300) | st.integers(-(1 << 63), 1 << 63),
    ),
    min_size=1,
    max_size=90,
)


def drawn(*several: JobProcess) -> Picture:
    (one,) = pictures(Job(processes=several))
    return one


@example([JobProcess(role="root-cause", sequence=-2), JobProcess(role="root-cause", sequence=-1)])
@given(processes)
def test_all_of_it_lies_within_its_frame(several: list[JobProcess]) -> None:
    """Rows one below the other, bars within the width, marks of the axis from left to right and not over each other."""
    for one in pictures(Job(processes=tuple(several))):
        assert one.width == WIDTH and one.bars
        rows = [bar.y for bar in one.bars]
        assert rows[0] == 0 and all(below - above == one.row + 4 for above, below in pairwise(rows))
        assert one.height == rows[-1] + one.row + 4 + 22, "the axis has its own row"
        for bar in one.bars:
            assert 3 <= bar.from_ <= bar.width <= WIDTH - one.left - MARGIN
        places = [place for place, _ in one.ticks]
        assert places == sorted(set(places)) and all(one.left <= place <= WIDTH - MARGIN for place in places)


@example(first=12_345_678, longer=8)
@given(first=st.integers(0, 99_999_999), longer=st.integers(0, 5000))
def test_the_numbers_on_the_axis_do_not_run_into_each_other(first: int, longer: int) -> None:
    several = [JobProcess(rank=0, sequence=first), JobProcess(rank=1, sequence=first + longer)]
    for one in pictures(Job(processes=tuple(several))):
        for (left, text), (right, after) in pairwise(one.ticks):
            assert right - left >= CHARACTER * (len(text) + len(after)) / 2
        assert len(one.ticks) != 1


def test_bars_are_as_long_as_their_times() -> None:
    """The axis begins a quarter of the time before the first end. What failed first is at 0 s."""
    ends = {0: 110.0, 1: 100.0, 2: 140.0, 3: 120.0}
    several = [JobProcess(rank=rank, at=at, role="root-cause" if rank == 1 else "stopped", what=str(rank)) for rank, at in ends.items()]
    # Alike, so that each has a row of its own.
    several = [JobProcess(rank=2 * one.rank, at=one.at, role=one.role) for one in several if one.rank is not None]
    one = drawn(*several)
    assert [bar.label for bar in one.bars] == ["rank 0", "rank 2", "rank 4", "rank 6"]
    assert [bar.width for bar in one.bars] == [220, 110, 550, 330] and [bar.from_ for bar in one.bars] == [220, 110, 550, 330]
    assert [bar.is_first for bar in one.bars] == [False, True, False, False]
    assert one.ticks == ((150, "-10 s"), (260, "0 s"), (370, "+10 s"), (480, "+20 s"), (590, "+30 s"), (700, "+40 s"))
    assert one.left == 150


def test_without_a_first_failure_the_clock_starts_with_the_first_end() -> None:
    one = drawn(JobProcess(rank=0, at=5.5, role="stopped"), JobProcess(rank=2, at=5.0, role="root-cause"), JobProcess(rank=4))
    assert (one.bars[1].width, "0 s") in {(place - one.left, text) for place, text in one.ticks}
    other = drawn(JobProcess(rank=0, at=5.5, role="stopped"), JobProcess(rank=2, at=5.0, role="stopped"), JobProcess(rank=4))
    assert other.ticks == one.ticks
    assert one.bars[2].width == WIDTH - one.left - MARGIN, "of whom nothing is known, the end is not known either"


def test_the_first_of_several_times_and_the_last_of_them() -> None:
    """A row of several: the bar is pale from where the first of them ended."""
    one = drawn(JobProcess(rank=7, at=9.0), JobProcess(rank=0, at=6.0), JobProcess(rank=1, at=5.0), JobProcess(rank=2, at=8.0))
    assert [(bar.label, bar.from_, bar.width) for bar in one.bars] == [("rank 7", 550, 550), ("ranks 0 to 2", 110, 440)]


@pytest.mark.parametrize("apart", [0.0, 0.0009, 1.1e9, 1e308, float("inf"), float("nan")])
def test_times_that_tell_nothing_are_not_drawn(apart: float) -> None:
    """At once, or years apart: the last hostile, or of a clock that was never set."""
    one = drawn(JobProcess(rank=0, at=0.0), JobProcess(rank=1, at=apart, role="ended"))
    assert (one.axis, one.ticks) == ("how each process ended", ())
    assert {bar.width for bar in one.bars} == {550}


def test_bars_are_as_long_as_the_collectives_that_they_reached() -> None:
    """From a quarter before the first on; a process of which none is known came to none that is shown."""
    one = drawn(*(JobProcess(rank=2 * index, sequence=number) for index, number in enumerate((100, 136, 118, None))))
    assert one.axis == "the collectives that they reached"
    assert [bar.width for bar in one.bars] == [550 * 9 // 45, 550, 550 * 27 // 45, 3]
    assert one.ticks == tuple((150 + 550 * (number - 91) // 45, f"#{number}") for number in range(91, 137, 8))


@pytest.mark.parametrize(("numbers", "marks"), [((0, 3), ["#0", "#1", "#2", "#3"]), ((7, 7), ["#6", "#7"]), ((1, 2), ["#0", "#1", "#2"])])
def test_an_axis_of_few_collectives(numbers: tuple[int, int], marks: list[str]) -> None:
    one = drawn(*(JobProcess(rank=rank, sequence=number, role=str(rank)) for rank, number in enumerate(numbers)))
    assert [text for _, text in one.ticks] == marks


def test_nobody_came_to_a_collective() -> None:
    assert drawn(JobProcess(rank=0, sequence=0)).axis == "how each process ended"
    assert pictures(Job()) == []


@pytest.mark.parametrize(
    ("process", "label"),
    [
        (JobProcess(rank=3), "rank 3"),
        (JobProcess(rank=0, name="trainer"), "rank 0"),
        (JobProcess(rank=3, attempt=0), "rank 3, start 1"),
        (JobProcess(rank=3, attempt=1, pid=9), "rank 3, start 2"),
        (JobProcess(name="EngineCore", pid=9), "EngineCore"),
        (JobProcess(pid=0), "process 0"),
        (JobProcess(), "a process"),
    ],
)
def test_a_label_names_its_process(process: JobProcess, label: str) -> None:
    assert [band.label for band in bands([process])] == [label]


def test_neighbours_of_one_fate_share_a_row() -> None:
    """Of ranks in a row, and what else is shown of them is the same."""
    same = JobProcess(rank=1, role="lost-peer", what="x", attempt=1, sequence=5)

    def rows(**changes: object) -> list[str]:
        from msgspec.structs import replace

        return [band.label for band in bands([same, replace(same, **{"rank": 2, **changes})])]

    assert rows() == rows(host="other", pid=7) == ["ranks 1 to 2, start 2"]
    apart = ({"rank": 3}, {"rank": 1}, {"rank": None}, {"role": "failed"}, {"what": "y"}, {"attempt": 2}, {"sequence": 6})
    for changes in (*apart, {"where": JobPlace(file="a.py", line=1)}):
        assert len(rows(**changes)) == 2, changes
    (three,) = bands([JobProcess(rank=rank, at=at) for rank, at in ((0, 2.0), (1, None), (2, 1.0))])
    assert (three.size, three.first.rank, three.last.rank, three.ended) == (3, 0, 2, (1.0, 2.0))


@pytest.mark.parametrize(
    ("process", "text"),
    [
        (
            JobProcess(role="root-cause", what="ValueError: x", where=JobPlace("f", "/srv/a.py", 3)),
            "failed first: ValueError: x (f a.py:3)",
        ),
        (JobProcess(role="failed", what="SIGABRT"), "also failed: SIGABRT"),
        (JobProcess(role="lost-peer", what="Connection closed by peer [127.0.0.1]:30937"), "lost a peer: Connection closed by peer "),
        (JobProcess(role="lost-peer", what="Connection reset by peer [127.0.0.1]:1"), "lost a peer: Connection reset by peer "),
        (JobProcess(role="failed", what="cannot bind [127.0.0.1]:1"), "also failed: cannot bind [127.0.0.1]:1"),
        (JobProcess(role="stopped", what="SIGTERM"), "stopped by the launcher"),
        (JobProcess(role="ended", what="x"), "ended normally"),
        (JobProcess(role="failed", what="x" * 100), "also failed: " + "x" * 100),
        (JobProcess(role="failed", what="x" * 101), "also failed: " + "x" * 100 + "…"),
        (JobProcess(role="new role", what="x"), "new role"),
        (JobProcess(what="x"), ""),
    ],
)
def test_what_happened_to_a_process(process: JobProcess, text: str) -> None:
    (band,) = bands([process])
    assert band.text == text
    assert drawn(process).bars[0].text == text


def test_of_very_many_fates_those_that_failed_are_shown() -> None:
    """In their order, together with the first of the others."""
    fates = [JobProcess(rank=2 * rank, role="root-cause" if rank == 90 else "failed" if rank == 80 else "ended") for rank in range(100)]
    labels = [bar.label for bar in drawn(*fates).bars]
    assert labels == [*(f"rank {2 * rank}" for rank in range(62)), "rank 160", "rank 180"]
    assert len(drawn(*fates[:64]).bars) == 64


# Words


FIRST = JobCause(rank=1, what="ValueError: bad", where=JobPlace("step", "/srv/train.py", 7), confidence="likely", because="it says so")
MISSING = JobCollective(
    problem="missing", operation="all_reduce", sequence=7, missing=(1,), calls=(JobCall(where=JobPlace("step", "/srv/train.py", 9)),)
)
NEVER = "rank 1 never reached all_reduce #7 (step train.py:9)"
MISMATCH = JobCollective(problem="mismatch", calls=(JobCall("all_reduce", ranks=(0,)), JobCall("all_gather", ranks=(1,))))


@pytest.mark.parametrize(
    ("job", "who", "text", "sentence"),
    [
        (Job(), "JOB", "the evidence does not show which process failed first", "The evidence does not show which process failed first."),
        (
            Job(root_cause=JobCause(rank=1)),
            "JOB",
            "the evidence does not show which process failed first",
            "The evidence does not show which process failed first.",
        ),
        (
            Job(root_cause=FIRST),
            "rank 1",
            "probably failed first: ValueError: bad",
            "Rank 1 probably failed first: ValueError: bad (step train.py:7).",
        ),
        (
            Job(root_cause=JobCause(rank=1, what="SIGKILL", confidence="certain")),
            "rank 1",
            "failed first: SIGKILL",
            "Rank 1 failed first: SIGKILL.",
        ),
        (Job(root_cause=JobCause(rank=1, what="SIGKILL")), "rank 1", " failed first: SIGKILL".lstrip(), "Rank 1 failed first: SIGKILL."),
        (
            Job(root_cause=JobCause(rank=1, what="rank 1 ended before the others", confidence="possible")),
            "rank 1",
            "possibly ended before the others",
            "Rank 1 possibly ended before the others.",
        ),
        (
            Job(root_cause=JobCause(rank=1, what=NEVER, where=JobPlace("elsewhere"), confidence="certain"), collectives=(MISSING,)),
            "rank 1",
            NEVER.removeprefix("rank 1 "),
            f"R{NEVER[1:]}.",
        ),
        (
            Job(root_cause=JobCause(ranks=(0, 1), what="rank 0 called all_reduce and rank 1 called all_gather"), collectives=(MISMATCH,)),
            "JOB",
            "rank 0 called all_reduce and rank 1 called all_gather",
            "Rank 0 called all_reduce and rank 1 called all_gather.",
        ),
    ],
)
def test_the_answer_of_a_job(job: Job, who: str, text: str, sentence: str) -> None:
    assert wording.headline(job) == (who, text)
    assert wording.sentence(job) == sentence


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (Job(), ""),
        (Job(kind="torchrun", world_size=8, processes=(JobProcess(rank=0),)), "torchrun, 8 ranks"),
        (Job(kind="slurm", world_size=1024, processes=(JobProcess(rank=0),)), "SLURM, 1,024 ranks"),
        (Job(world_size=2, processes=(JobProcess(),)), "2 processes"),
        (Job(kind="mpi", attempts=2), "MPI, started twice"),
        (Job(kind="mpi", attempts=3), "MPI, started 3 times"),
    ],
)
def test_what_kind_of_job_it_was(job: Job, text: str) -> None:
    assert wording.described(job) == text


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (None, ""),
        (JobPlace(), ""),
        (JobPlace("f"), "f"),
        (JobPlace("f", "/srv/a.py"), "f /srv/a.py"),
        (JobPlace("f", "/srv/a.py", 3), "f /srv/a.py:3"),
        (JobPlace(None, "/srv/a.py", 3), "/srv/a.py:3"),
        (JobPlace("f", None, 3), "f"),
    ],
)
def test_a_place_to_open(where: Optional[JobPlace], text: str) -> None:
    assert wording.full_place(where) == text


def test_how_it_is_known() -> None:
    assert wording.known_by(FIRST) == "likely: it says so"
    assert wording.known_by(JobCause(because="it says so")) == "it says so" and wording.known_by(JobCause()) is None


def test_what_failed_besides() -> None:
    also = (FIRST, JobCause(rank=0, attempt=0, what="OSError"), JobCause(rank=2))
    assert wording.further(Job(also=also)) == ["rank 1: ValueError: bad (step train.py:7)", "start 1: rank 0: OSError", "rank 2"]


def test_what_became_of_the_others() -> None:
    """By what happened to them and where; those that failed by themselves are told elsewhere."""
    lost = JobPlace("step", "/srv/train.py", 7)
    several = (
        JobProcess(rank=0, role="root-cause"),
        JobProcess(rank=1, role="failed"),
        *(JobProcess(rank=rank, role="lost-peer", where=lost) for rank in (2, 4)),
        JobProcess(rank=3, role="lost-peer"),
        JobProcess(rank=5, role="waited"),
        JobProcess(rank=6),
        JobProcess(name="trainer", role="stopped"),
        JobProcess(rank=7, role="new role"),
    )
    assert wording.followed(Job(processes=several)) == [
        "ranks 2 and 4: lost a peer (step train.py:7)",
        "rank 3: lost a peer",
        "rank 5: left no message",
        "rank 6: ended",
        "rank 7: new role",
    ]


@pytest.mark.parametrize(
    ("crash", "answers"),
    [
        (Crash(), False),
        (Crash(job=Job()), False),
        (Crash(job=Job(root_cause=JobCause(pid=7))), True),
        (Crash(job=Job(root_cause=JobCause(pid=7)), source=Source(path="", kind="log"), process=Process(pid=7)), True),
        *((Crash(job=Job(root_cause=JobCause(pid=7)), source=Source(path="", kind=kind)), True) for kind in ("core", "folder", "gpu-core")),
        *(
            (Crash(job=Job(root_cause=JobCause(pid=7)), source=Source(path="", kind=kind), process=Process(pid=pid)), pid == 8)
            for kind in ("core", "folder", "gpu-core")
            for pid in (7, 8)
        ),
    ],
)
def test_whether_the_job_is_the_answer(crash: Crash, answers: bool) -> None:
    """A core's own fault is, where it is of the process that failed first."""
    assert wording.answers(crash) == answers


def test_who_never_came_to_a_collective_did_not_fail_by_itself() -> None:
    """NCCL's monitor aborts it later on, and its core shows no more than that."""
    missed = JobCollective(sequence=11, problem="missing", operation="all_reduce", missing=(1,))
    job = Job(root_cause=JobCause(rank=1, pid=7, what=what_happened(missed)), collectives=(missed,))
    crash = Crash(job=job, source=Source(path="", kind="folder"), process=Process(pid=7), signal=Signal(number=6, name="SIGABRT"))
    assert wording.answers(crash)
    failed = Gpu(path="", exceptions=(GpuException(name="WARP_ASSERT", kernel="k"),))
    assert not wording.answers(replace(crash, gpu=(failed,)))


def test_a_core_that_is_the_answer_says_whose_it_is() -> None:
    both = (JobProcess(rank=0), JobProcess(rank=1))
    job = Job(kind="torchrun", world_size=2, processes=both, root_cause=JobCause(rank=1, pid=7, what="SIGSEGV"))
    crash = Crash(job=job, source=Source(path="", kind="folder"), process=Process(pid=7), signal=Signal(number=11, name="SIGSEGV"))
    failed = Gpu(path="", exceptions=(GpuException(name="WARP_ASSERT", kernel="k"),))
    for one in (crash, replace(crash, gpu=(failed,))):
        assert "  job       rank 1 of torchrun, 2 ranks, failed first" in list(summary(one, None, color=False, width=100))
    assert wording.place_in_job(replace(crash, process=Process(pid=8))) is None


def test_who_called_something_else_did_not_follow() -> None:
    calls = (JobCall(operation="all_reduce", ranks=(0,)), JobCall(operation="all_gather", ranks=(1,)))
    differ = JobCollective(sequence=16, problem="mismatch", operation="all_reduce", differing=(1,), differs=("operation",), calls=calls)
    cause = JobCause(ranks=(0, 1), what=what_happened(differ))
    several = tuple(JobProcess(rank=rank, role="lost-peer") for rank in range(3))
    assert wording.followed(Job(processes=several, root_cause=cause, collectives=(differ,))) == ["rank 2: lost a peer"]
