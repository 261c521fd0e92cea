"""Facts of a job of several processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

from crashkit.diagnose.case import Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.job.sentences import failed_first, ranks, what_happened, who
from crashkit.job.word import LISTINGS
from crashkit.model import Evidence, Job, JobCollective
from crashkit.naming.exceptions import is_of_own_code

_STOPPED = "SIGTERM"


def job_cause(case: Case) -> Outcome:
    """It is known what failed first in the job, and that is more than a signal to stop."""
    job = case.crash.job
    if job is None:
        return no("no job of several processes")
    cause = job.root_cause
    if cause is None or cause.what is None or cause.what.startswith(_STOPPED):
        return unknown("which process failed first")
    return Outcome(True, (Evidence(text=failed_first(cause)),), {}, "what failed first is known")


def job_rank_failed(case: Case) -> Outcome:
    """One process failed for a reason of its own, and others followed."""
    known = job_cause(case)
    job = case.crash.job
    if not known.holds or job is None or job.root_cause is None:
        return known
    if _first_collective(job) is not None:
        return no("the ranks disagreed about a collective")
    if job.kind in LISTINGS and job.root_cause.rank is None:
        return no("a list of processes does not show which failed first, nor whether they belong together")
    if job.root_cause.confidence == "possible":
        return unknown("which process failed first")
    return Outcome(True, known.evidence, {"first": _sentence(failed_first(job.root_cause)), "followed": _followed(job)}, known.why)


def job_rank_exception(case: Case) -> Outcome:
    """What failed first is a Python exception: what aborted the process on its way out comes after it."""
    found = job_rank_failed(case)
    job = case.crash.job
    if found.holds and job is not None and job.root_cause is not None and (job.root_cause.what or "").startswith(("SIG", "exit status")):
        return no("a signal or an exit")
    return found


def job_rank_own_exception(case: Case) -> Outcome:
    """What failed first is an exception of the program's own: what other ranks say of the network or of a collective follows from it."""
    found = job_rank_failed(case)
    job = case.crash.job
    if found.holds and job is not None and job.root_cause is not None and is_of_own_code((job.root_cause.what or "").partition(":")[0]):
        return found
    return no("no exception of the program's own is known to have come first")


def job_rank_failed_alone(case: Case) -> Outcome:
    """As `job_rank_failed`, and no other one failed for a reason of its own."""
    found = job_rank_failed(case)
    job = case.crash.job
    if found.holds and job is not None and job.root_cause is not None and job.root_cause.confidence != "certain":
        return no("more than one process failed by itself, or only its end is known")
    return found


def _problem(problem: str, numbered: bool) -> Callable[[Case], Outcome]:
    def fact(case: Case) -> Outcome:
        job = case.crash.job
        if job is None:
            return no("no job of several processes")
        one = _first_collective(job)
        if one is None or one.problem != problem:
            return no("no such collective")
        if numbered and one.sequence is None:
            return unknown("the sequence numbers of the collectives")
        confidence = job.root_cause.confidence if job.root_cause is not None else None
        if confidence == "possible" and one.differs != ("place",):
            return unknown("which calls the ranks differed in")
        if numbered and confidence != "certain":
            return unknown("which of several ranks that waited for each other was the first")
        if one.differs == ("place",):
            return unknown("whether the ranks waited in the same process group")
        text = what_happened(one, job.processes)
        evidence = Evidence(text=f"{one.group}: {text}" if one.group else text)
        fields = {"happened": _sentence(text), "operation": one.operation or "a collective", "missing": ranks(one.missing)}
        return Outcome(True, (evidence,), fields, text)

    return fact


def waiting_apart(case: Case) -> Outcome:
    """Ranks waited at different lines: in different groups, or in the same one with different data."""
    job = case.crash.job
    one = _first_collective(job) if job is not None else None
    if job is None or one is None or one.differs != ("place",):
        return no("no ranks that waited at different lines")
    text = what_happened(one, job.processes)
    return Outcome(True, (Evidence(text=text),), {"happened": _sentence(text)}, text)


def _first_collective(job: Job) -> Optional[JobCollective]:
    """The collective that is the job's root cause; None if a process failed by itself."""
    one = next(iter(job.collectives), None)
    is_cause = one is not None and job.root_cause is not None and job.root_cause.what == what_happened(one, job.processes)
    return one if is_cause else None


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _followed(job: Job) -> str:
    parts = [f"{who(cause)} also failed for a reason of its own: {cause.what}" for cause in job.also[:2] if cause.attempt is None]
    for role, said in (("lost-peer", "lost a peer"), ("stopped", "stopped by the launcher"), ("waited", "left no message")):
        several = [process.rank for process in job.processes if process.role == role and process.rank is not None]
        if several:
            was = "" if role != "stopped" else "was " if len(several) == 1 else "were "
            parts.append(f"{ranks(several)} {was}{said}")
    return _sentence(", ".join(parts)) if parts else ""


JOB_FACTS: dict[str, Callable[[Case], Outcome]] = {
    "job-cause": job_cause,
    "job-rank-failed": job_rank_failed,
    "job-rank-exception": job_rank_exception,
    "job-rank-failed-alone": job_rank_failed_alone,
    "job-rank-own-exception": job_rank_own_exception,
    "collective-missing": _problem("missing", numbered=False),
    "collective-missing-by-number": _problem("missing", numbered=True),
    "collective-mismatch": _problem("mismatch", numbered=False),
    "waiting-apart": waiting_apart,
    "collective-mismatch-by-number": _problem("mismatch", numbered=True),
}
