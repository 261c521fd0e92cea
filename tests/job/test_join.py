"""Who failed first, by words that are made up: each process's part in it, how sure that is, and what shows it.

Recorded jobs are in test_first.py.
"""

from __future__ import annotations

from typing import Any, Optional

import pytest

from crashkit.job.join import Joined, join
from crashkit.job.sentences import failed_first, place, ranks, what_happened, who
from crashkit.job.told import with_job
from crashkit.job.word import Who, Word
from crashkit.model import (
    Crash,
    JobCall,
    JobCause,
    JobCollective,
    JobPlace,
    JobProcess,
    LogLine,
    Process,
    PythonFrame,
    Signal,
    Source,
    Thread,
)

OWN, PEER, STOP = "ValueError: bad sample", "RuntimeError: Connection closed by peer", "SignalException: Process 99 got signal: 15"
AT = PythonFrame(function="step", file="/srv/train.py", line=7)
STACK = Thread(tid=9, frames=(AT,))


def said(rank: Optional[int], kind: str, number: Optional[int] = None, text: str = "", pid: Optional[int] = None, **facts: Any) -> Word:
    attempt = facts.pop("attempt", None)
    return Word(Who(rank=rank, pid=pid, attempt=attempt), kind, text=text, number=number, **facts)


def raised(rank: Optional[int], text: str = OWN, line: int = 0, **facts: Any) -> Word:
    return said(rank, "exception", text=text, line=line, thread=STACK, **facts)


def joined(*words: Word) -> Joined:
    found = join(words)
    assert found is not None
    return found


def cause(*words: Word) -> JobCause:
    found = joined(*words).job.root_cause
    assert found is not None
    return found


def roles(*words: Word) -> dict[int | None, str | None]:
    return {one.rank: one.role for one in joined(*words).job.processes}


LOST = raised(0, PEER)


@pytest.mark.parametrize(
    ("words", "role"),
    [
        ((raised(1),), "root-cause"),
        ((raised(1, STOP),), "stopped"),
        ((raised(1, PEER),), "lost-peer"),
        ((raised(1), said(1, "exit", 0)), "ended"),
        ((said(1, "fatal", 11),), "root-cause"),
        ((said(1, "fatal", 15), said(1, "stopped")), "stopped"),
        ((said(1, "fatal", 9), said(1, "stopped")), "stopped"),
        ((said(1, "fatal", 11), said(1, "stopped")), "root-cause"),
        ((said(1, "exit", -11),), "root-cause"),
        ((said(1, "exit", -6), said(1, "progress", 3)), "lost-peer"),
        ((said(1, "exit", -11), said(1, "progress", 3)), "root-cause"),
        ((said(1, "killed"),), "root-cause"),
        ((said(1, "exit", 0),), "ended"),
        ((said(1, "stopped"),), "stopped"),
        ((said(1, "exit", -15), said(1, "stopped")), "stopped"),
        ((said(1, "given-up"), said(1, "exit", -6)), "lost-peer"),
        ((said(1, "given-up"), said(1, "exit", -11)), "lost-peer"),
        ((said(1, "given-up"), said(1, "exit", -7)), "root-cause"),
        ((said(1, "watchdog", 3), said(1, "exit", -6)), "lost-peer"),
        ((said(1, "watchdog", 3), said(1, "exit", -11)), "root-cause"),
    ],
)
def test_the_part_of_a_process(words: tuple[Word, ...], role: str) -> None:
    """Rank 0 only lost its peer: that blames it where nobody else failed."""
    assert roles(LOST, *words)[1] == role


@pytest.mark.parametrize(
    ("words", "confidence", "because"),
    [
        ((raised(1), LOST), "certain", "it is the only one that failed by itself"),
        (
            (raised(1), LOST, said(2, "stopped"), said(3, "stopped")),
            "certain",
            "it is the only one that failed by itself; the launcher stopped 2 more",
        ),
        ((raised(1, line=5), raised(2, line=9)), "likely", "its message came first; 1 more failed for reasons of their own"),
        (
            (raised(2, line=5), raised(1, line=9), said(1, "first")),
            "likely",
            "the launcher saw it fail first; 1 more failed for reasons of their own",
        ),
        (
            (raised(2, line=5), said(2, "stopped"), raised(1, line=9)),
            "likely",
            "its message came first; 1 more failed for reasons of their own",
        ),
        ((said(1, "exit", 1), LOST), "certain", "it ended by itself without a message; the others were stopped"),
        ((said(1, "exit", -9), LOST), "likely", "it ended by itself without a message; the others were stopped"),
        ((said(1, "exit", -9), said(0, "exit", -15)), "likely", "it ended by itself without a message; the others were stopped"),
        ((said(1, "exit", 1), said(2, "exit", 1)), "likely", "it ended by itself without a message; the others were stopped"),
        (
            (raised(1, PEER), said(2, "stopped")),
            "possible",
            "it noticed first that a peer was gone or late; the evidence does not say which",
        ),
    ],
)
def test_who_failed_first_and_how_it_is_known(words: tuple[Word, ...], confidence: str, because: str) -> None:
    found = cause(*words)
    assert (found.rank, found.confidence, found.because) == (1, confidence, because)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((raised(1),), OWN),
        ((said(1, "fatal", 11),), "SIGSEGV"),
        ((said(1, "fatal", 11, "Segmentation fault"),), "SIGSEGV: Segmentation fault"),
        ((said(1, "killed"), said(1, "exit", -9)), "SIGKILL: the kernel was out of memory"),
        ((said(1, "exit", -11),), "SIGSEGV"),
        ((said(1, "exit", 3),), "exit status 3"),
        ((raised(1, "KeyError: 1"), raised(1, PEER)), "KeyError: 1"),
        ((raised(1, "KeyError: 1"), raised(1)), OWN),
        ((raised(1), said(1, "fatal", 6)), OWN),
        ((raised(1), said(1, "fatal", 6, thread=STACK)), "SIGABRT"),
        ((raised(1), said(1, "fatal", 11)), "SIGSEGV"),
    ],
)
def test_what_is_said_of_it(words: tuple[Word, ...], what: str) -> None:
    assert cause(LOST, *words).what == what


def test_what_failed_first_has_a_line_and_a_stack() -> None:
    found = joined(LOST, raised(1, pid=101))
    assert found.job.root_cause is not None and found.job.root_cause.pid == 101 and found.job.root_cause.attempt is None
    assert found.job.root_cause.where == JobPlace("step", "/srv/train.py", 7) and found.thread is STACK
    assert [word.who.rank for word in found.words] == [1]


def test_others_that_failed_are_named_too() -> None:
    found = joined(raised(0, line=3), raised(1, "KeyError: 1", line=9), said(2, "stopped")).job
    assert [(one.rank, one.what, one.confidence) for one in found.also] == [(1, "KeyError: 1", "likely")]
    assert {one.rank: one.role for one in found.processes} == {0: "root-cause", 1: "failed", 2: "stopped"}
    assert found.world_size == 3


def test_words_of_a_pid_are_those_of_its_rank() -> None:
    """Whatever told the one or the other."""
    found = joined(LOST, said(1, "exit", 1, pid=101), said(None, "exception", text=OWN, pid=101, thread=STACK)).job
    assert {(one.rank, one.pid, one.role) for one in found.processes} == {(0, None, "lost-peer"), (1, 101, "root-cause")}


def test_a_rank_without_a_pid_and_a_pid_without_a_rank_are_one() -> None:
    """Where there is one of each; of several nobody knows."""
    both = (said(0, "stopped", pid=100), raised(1, PEER), said(None, "exit", 1, pid=101))
    assert {(one.rank, one.pid) for one in joined(*both).job.processes} == {(0, 100), (1, 101)}
    more = (*both, raised(2, PEER))
    assert {(one.rank, one.pid) for one in joined(*more).job.processes} == {(0, 100), (1, None), (2, None), (None, 101)}


def test_a_dump_without_a_name_is_that_of_whose_end_fits() -> None:
    dump = Word(Who(), "fatal", text="Segmentation fault", number=11, thread=STACK)
    found = joined(said(0, "exit", -15), said(1, "exit", -11), dump)
    assert found.thread is STACK and found.job.root_cause is not None and found.job.root_cause.rank == 1
    nobody = joined(said(0, "exit", -15), said(1, "exit", 1), dump)
    assert nobody.thread is None, "neither ended by that signal"


def test_an_exception_without_a_name_is_that_of_who_failed() -> None:
    exception = Word(Who(), "exception", text=OWN, thread=STACK)
    assert joined(said(0, "stopped"), said(1, "exit", 1), exception).thread is STACK
    two = joined(said(0, "exit", 1), said(1, "exit", 1), exception, exception._replace(text="RuntimeError: Broken pipe"))
    assert two.thread is None, "either may have said either"


def test_only_what_names_a_rank_or_a_process_is_a_job() -> None:
    assert join([raised(1)]) is None and join([]) is None
    assert join([said(None, "exit", 1, pid=1), said(None, "exit", 1, pid=2)]) is None
    named = [Word(Who(name=name), "exit", number=1) for name in ("a", "b")]
    assert join(named) is not None
    assert join([raised(1), said(None, "alive", pid=7)]) is None, "a launcher that was looked at is none of the job's"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ((LOST, said(1, "exit", 1, launcher="srun")), "slurm"),
        ((LOST, said(1, "exit", 1, launcher="mpirun")), "mpi"),
        ((LOST, said(1, "exit", 1, launcher="deepspeed")), "deepspeed"),
        ((LOST, said(1, "exit", 1, launcher="box")), "torchrun"),
        ((LOST, said(1, "stopped")), "torchrun"),
        ((LOST, said(1, "watchdog", 3)), "torch"),
        ((LOST, said(1, "progress", 3)), "torch"),
        ((LOST, raised(1)), None),
    ],
)
def test_who_started_it(words: tuple[Word, ...], kind: Optional[str]) -> None:
    assert joined(*words).job.kind == kind


def test_the_last_attempt_that_tells_something_counts() -> None:
    first = (raised(1, "OSError: disk", attempt=0), said(0, "stopped", attempt=0))
    second = (raised(0, "KeyError: 1", attempt=1), raised(1, PEER, attempt=1))
    job = joined(*first, *second).job
    assert job.attempts == 2 and job.root_cause is not None
    assert (job.root_cause.rank, job.root_cause.what, job.root_cause.attempt) == (0, "KeyError: 1", 1)
    assert [(one.rank, one.what, one.attempt) for one in job.also] == [(1, "OSError: disk", 0)]
    assert {(one.rank, one.attempt, one.role) for one in job.processes} == {
        (0, 0, "stopped"), (1, 0, "failed"), (0, 1, "root-cause"), (1, 1, "lost-peer"),
    }  # fmt: skip
    suffers = (raised(0, PEER, attempt=1), raised(1, PEER, attempt=1))
    cause_of_it = joined(*first, *suffers).job.root_cause
    assert cause_of_it is not None and (cause_of_it.what, cause_of_it.attempt) == ("OSError: disk", 0)


def test_when_each_ended() -> None:
    """By one clock, and only where two are known."""
    at = {1: 1000.0, 0: 1002.0}
    words = (said(1, "fatal", 11, at=1000.0), said(0, "exit", 1, at=1002.0), said(2, "stopped"))
    assert {one.rank: one.at for one in joined(*words).job.processes} == {**at, 2: None}
    assert [one.at for one in joined(said(1, "fatal", 11, at=1000.0), LOST).job.processes] == [None, None]
    told = joined(said(1, "exit", 1, time="2026-11-22_01:04:20"), said(0, "exit", 1, time="2026-11-22_01:04:22")).job
    assert told.processes[0].at == (told.processes[1].at or 0) + 2 and told.processes[1].time == "2026-11-22_01:04:20"
    strange = joined(said(1, "exit", 1, time="yesterday"), said(0, "exit", 1, time="2026_x")).job
    assert [one.at for one in strange.processes] == [None, None]


# Collectives

WHERE = JobPlace("step", "/srv/train.py", 9)
MISSING = JobCollective(problem="missing", operation="all_reduce", sequence=7, missing=(1,), calls=(JobCall(where=WHERE),))


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (MISSING, "rank 1 never reached all_reduce #7 (step train.py:9)"),
        (JobCollective(problem="missing", missing=(0, 2)), "ranks 0 and 2 never reached collective"),
        (JobCollective(problem="missing", missing=(1,), differs=("time",), sequence=3), "rank 1 was too late for collective #3"),
        (
            JobCollective(problem="mismatch", sequence=3, calls=(JobCall("all_reduce", ranks=(0,)), JobCall(ranks=(1,)))),
            "at #3 rank 0 called all_reduce and rank 1 called something",
        ),
        (
            JobCollective(
                problem="mismatch",
                differs=("sizes", "dtypes"),
                calls=(
                    JobCall("a", sizes=((2, 3), ()), dtypes=("float", "int"), ranks=(0,), where=WHERE),
                    JobCall("b", ranks=(1,)),
                    JobCall("c", sizes=((4,),), ranks=(2,)),
                    JobCall("d", ranks=(3,)),
                ),
            ),
            "rank 0 called a of 2x3, one number of float, int (train.py:9), rank 1 called b and rank 2 called c of 4 and 1 more calls",
        ),
        (
            JobCollective(problem="mismatch", calls=(JobCall("a", sizes=((2,),), dtypes=("float",), ranks=(0,)), JobCall("b", ranks=(1,)))),
            "rank 0 called a and rank 1 called b",
        ),
        (JobCollective(problem="unfinished", operation="x"), "all ranks reached x, but it did not finish"),
        (JobCollective(problem="unfinished", differing=(1,)), "all ranks reached collective, but it did not finish: not on rank 1"),
        (JobCollective(problem="unfinished", differs=("time",), differing=(1,)), "rank 1 reached collective late, but it did not finish"),
        (JobCollective(problem="unfinished", unknown=(2,)), "collective did not finish; it is not known whether rank 2 reached it"),
    ],
)
def test_what_went_wrong_with_a_collective(one: JobCollective, words: str) -> None:
    assert what_happened(one) == words


def test_where_those_stood_that_did_not_come() -> None:
    standing = [JobProcess(rank=rank, where=JobPlace("load", "/srv/data.py", rank)) for rank in (0, 1, 2, 3)]
    assert what_happened(MISSING, standing).endswith("; it was in load data.py:1")
    several = JobCollective(problem="missing", missing=(1, 2, 3))
    assert what_happened(several, standing).endswith("collective; rank 1 was in load data.py:1; rank 2 was in load data.py:2")
    assert "stood" not in what_happened(MISSING, [JobProcess(rank=1)])


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((), "no rank"),
        ((3, 3), "rank 3"),
        ((2, 0), "ranks 0 and 2"),
        ((0, 1), "ranks 0 and 1"),
        ((0, 1, 2), "ranks 0 to 2"),
        ((0, 1, 2, 8, 9), "ranks 0 to 2, 8 and 9"),
        ((0, 2, 4, 6), "ranks 0, 2, 4 and 6"),
        ((0, 2, 4, 6, 8), "5 ranks (0, 2, 4, 6, ...)"),
    ],
)
def test_ranks(numbers: tuple[int, ...], words: str) -> None:
    assert ranks(numbers) == words


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (JobCause(rank=0, pid=7), "rank 0"),
        (JobCause(ranks=(0, 1)), "ranks 0 and 1"),
        (JobCause(name="trainer", pid=7), "trainer"),
        (JobCause(pid=0), "process 0"),
        (JobCause(), "an unnamed process"),
    ],
)
def test_who_it_is(one: JobCause, words: str) -> None:
    assert who(one) == words


def test_what_failed_first_in_a_sentence() -> None:
    assert failed_first(JobCause(rank=1, what=OWN, where=WHERE)) == f"rank 1 failed first: {OWN} (step train.py:9)"
    assert failed_first(JobCause(rank=1)) == "rank 1 failed first: the reason is unknown"
    assert failed_first(JobCause(rank=1, what="rank 1 never came", where=WHERE)) == "rank 1 never came (step train.py:9)"
    assert place(JobPlace("<module>", "/srv/a.py", 3)) == "a.py:3" and place(JobPlace("f")) == "f" and place(None) == ""
    assert place(JobPlace("f", "/srv/a.py"), function=False) == "a.py" and place(JobPlace("f"), function=False) == ""


# The report of a job is that of the process which failed first


def told(crash: Crash, *words: Word, pid: Optional[int] = None) -> Crash:
    return with_job(crash, joined(*words), pid)


def test_a_log_tells_of_the_process_that_failed_first() -> None:
    found = told(Crash(source=Source(path="a.log", kind="log")), LOST, raised(1, pid=101), said(1, "exit", 3, pid=101))
    assert found.process == Process(pid=101, exit_status=3) and found.signal is None
    assert found.crashed_thread == 9 and [(one.tid, one.crashed) for one in found.threads] == [(9, True)]
    dead = told(Crash(), LOST, said(1, "exit", -11, pid=101))
    assert dead.signal == Signal(number=11, name="SIGSEGV") and dead.process == Process(pid=101, exit_status=139)
    assert dead.threads == () and dead.crashed_thread is None


@pytest.mark.parametrize("kind", ["core", "gpu-core", "folder", "live"])
def test_a_core_stays_what_it_is(kind: str) -> None:
    crash = Crash(source=Source(path="core", kind=kind), signal=Signal(number=7, name="SIGBUS"), threads=(Thread(tid=5),))
    found = told(crash, LOST, said(1, "exit", -11))
    assert found.signal == crash.signal and found.threads == crash.threads and found.process is None and found.job is not None


def test_a_stack_of_another_process_is_left_out() -> None:
    """Unless it is known to be of the one that failed first."""
    crash = Crash(threads=(Thread(tid=5, crashed=True),), crashed_thread=5)
    words = (LOST, said(1, "exit", -11, pid=101))
    assert told(crash, *words).threads == () and told(crash, *words, pid=102).crashed_thread is None
    assert told(crash, *words, pid=101).threads == crash.threads and told(crash, *words, pid=101).crashed_thread == 5
    killed = (LOST, said(1, "exit", -9, pid=101))
    assert told(crash, *killed, pid=101).threads == () and told(crash, *killed, pid=101).crashed_thread is None, "SIGKILL leaves no stack"
    launcher = PythonFrame(function="launch_agent", file="/lib/torch/distributed/launcher/api.py", line=383)
    theirs = Crash(threads=(Thread(tid=5, crashed=True, frames=(launcher,)),), crashed_thread=5)
    assert told(theirs, *words, pid=101).threads == (), "the launcher's traceback is in the same log"
    shown = Crash(threads=(Thread(tid=9, crashed=True, frames=(AT,)), Thread(tid=10)))
    assert len(told(shown, LOST, raised(1)).threads) == 2, "the stack is there already, and other threads with it"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (LogLine(text="x", kind="nccl-timeout"), True),
        (LogLine(text="x", kind="launcher-stops"), False),
        (LogLine(text="torch...ChildFailedError: ", kind="exception"), False),
        (LogLine(text="x", kind="launcher-child", fields={"pid": "101"}), True),
        (LogLine(text="x", kind="launcher-child", fields={"pid": "100"}), False),
        (LogLine(text="x", kind="launcher-child"), True),
        (LogLine(text="x", kind="sigterm-banner"), False),
        (LogLine(text=OWN, kind="exception", process="rank1"), True),
        (LogLine(text=OWN, kind="exception", process="rank0"), False),
        (LogLine(text=PEER, kind="exception"), False),
        (LogLine(text=OWN, kind="exception"), True),
        (LogLine(text="x", kind="cuda-oom", process="rank0"), True),
    ],
)
def test_lines_that_may_tell_why(line: LogLine, kept: bool) -> None:
    found = told(Crash(log=(line,)), LOST, raised(1, pid=101))
    assert bool(found.log) == kept
