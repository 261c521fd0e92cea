"""The picture of a job: its ranks against the collectives that they came to, and against time where that is known."""

from __future__ import annotations

from pathlib import Path

from crashkit.model import Job, JobProcess
from crashkit.pipeline import analyze
from crashkit.report.job_wording import WIDTH, pictures
from crashkit.report.renderer import renderer

JOBS = Path(__file__).parents[2] / "fixtures/jobs"


def job(*processes: JobProcess) -> Job:
    return Job(processes=processes)


def test_against_time() -> None:
    """Rank 1 failed first; the others lost it two seconds later. The time of the one that only waited is not known."""
    several = [JobProcess(rank=rank, at=1002.0, role="lost-peer", what="Connection closed by peer") for rank in (0, 2, 3)]
    first = JobProcess(rank=1, at=1000.0, role="root-cause", what="SIGSEGV")
    drawn = pictures(job(several[0], first, *several[1:], JobProcess(rank=4, role="waited")))
    (one,) = drawn
    assert one.axis.startswith("time")
    widths = {bar.label: bar.width for bar in one.bars}
    assert widths["rank 1"] < widths["rank 0"] == widths["ranks 2 to 3"] == widths["rank 4"]
    assert "0 s" in [text for _, text in one.ticks] and "+2 s" in [text for _, text in one.ticks]
    at_zero = next(place for place, text in one.ticks if text == "0 s")
    assert at_zero == one.left + widths["rank 1"]


def test_ranks_of_one_fate_that_ended_at_several_times() -> None:
    ranks = [JobProcess(rank=rank, at=1000.0 + rank / 100, role="stopped") for rank in range(1, 1024)]
    (one,) = pictures(job(JobProcess(rank=0, at=1000.0, role="root-cause", what="SIGKILL"), *ranks))
    assert [bar.label for bar in one.bars] == ["rank 0", "ranks 1 to 1023"]
    assert one.bars[0].from_ == one.bars[0].width <= one.bars[1].from_ < one.bars[1].width <= WIDTH - one.left
    assert one.height < 100


def test_both_and_neither() -> None:
    ranks = [JobProcess(rank=0, at=5.0, sequence=7, role="root-cause"), JobProcess(rank=1, at=9.0, sequence=9, role="lost-peer")]
    assert [one.axis.split()[0] for one in pictures(job(*ranks))] == ["the", "time,"]
    at_once = [JobProcess(rank=rank, at=5.0, role="stopped") for rank in (0, 1)]
    (one,) = pictures(job(*at_once))
    assert not one.ticks and one.axis == "how each process ended"


def test_flight_recorders_tell_times() -> None:
    """Rank 2 slept instead of coming to the collective in which the others waited."""
    crash = analyze([JOBS / "fr-missed"])
    assert crash.job is not None
    at = {one.rank: one.at for one in crash.job.processes}
    assert all(at.values()) and at[2] < min(at[0], at[1])  # type: ignore[operator, type-var]
    drawn = pictures(crash.job)
    assert [one.axis.split()[0] for one in drawn][-1] == "time,"
    page = renderer("html").render(crash).decode()
    assert page.count('<svg class="job"') == len(drawn)


def test_hosts_are_not_compared() -> None:
    from crashkit.job.join import join
    from crashkit.job.word import Who, Word

    def words(host: str) -> list[Word]:
        return [
            Word(Who(rank=0, pid=1, host="one"), "exit", number=-11, at=1000.0, launcher="box"),
            Word(Who(rank=1, pid=2, host=host), "exit", number=1, at=1003.0, launcher="box"),
        ]

    same, other = join(words("one")), join(words("two"))
    assert same is not None and [one.at for one in same.job.processes] == [1000.0, 1003.0]
    assert other is not None and [one.at for one in other.job.processes] == [None, None]
