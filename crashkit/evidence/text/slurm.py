"""What SLURM lists of its jobs: `sacct`, also with --parsable, `scontrol show job`, also with -o, and the file of jobcomp/filetxt.

Sources: sacct(1) (State, ExitCode: `status:signal`), the states of slurm.h (`job_states`), and what 22.05.8 printed
(fixtures/jobs/slurm-lists). Where sacct's column is too narrow, it ends in `+`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from crashkit.evidence.text.listing import Ended, Listing, format_of, of_shell

_JOB = re.compile(r"^ *(?P<job>\d{1,10}(?:[_+]\d{1,7})?)(?:\.\w{1,20}\+?)?[ |]")
_STOPPED = {
    "BOOT_FAIL": "job-cancelled",
    "CANCELLED": None,
    "DEADLINE": "job-time-limit",
    "NODE_FAIL": "job-cancelled",
    "PREEMPTED": "job-cancelled",
    "TIMEOUT": "job-time-limit",
}
"""States of jobs that SLURM ended, whatever their processes made of it, and the kind of log line that tells the same."""
_STATES = rf"(?P<state>OUT_OF_ME(?:MORY|\+)|COMPLETED|FAILED|RUNNING|{'|'.join(_STOPPED)})"
_STATE = re.compile(rf"(?<=[ |]){_STATES}(?=[ |+])")
_CODE = re.compile(r"(?<=[ |])(?P<status>\d{1,3}):(?P<signal>\d{1,3})(?![^ |])")
_NO_SIGNAL = 125
"""What slurmstepd says of a step that the kernel ended for its memory: 0:125."""
_REDUCED = frozenset({6, 7, 9, 11, 15})
"""sacct prints a status above 128 without those 128 (src/sacct/print.c): it shows the 139 of a shell, which is SIGSEGV, as 11."""

_BEGIN = re.compile(r"^JobId=(?P<job>\d{1,10}) ")
_FIELD_STATE = re.compile(rf"(?<![^ ])JobState={_STATES}\b")
_FIELD_CODE = re.compile(r"(?<![^ ])ExitCode=(?P<status>\d{1,3}):(?P<signal>\d{1,3})(?![^ ])")


def _ended(job: str, line: str, row: int, state: str, code: re.Match[str], reduced: bool) -> Ended:
    signal, status = int(code["signal"]), int(code["status"])
    if state == "RUNNING":
        return Ended(job, line, runs=True, row=row)
    unsure = reduced and not signal and status in _REDUCED
    ended = None if signal == _NO_SIGNAL else -signal if signal else -status if unsure else of_shell(status)
    out_of_memory = state.startswith("OUT_OF_ME")
    return Ended(job, line, ended, out_of_memory, row=row, stopped=state in _STOPPED, why=_STOPPED.get(state), unsure=unsure)


def _read(lines: Iterable[str]) -> Iterator[Ended]:
    """One for each job: of its steps the one that tells most."""
    jobs: dict[str, list[Ended]] = {}
    for row, line in enumerate(lines):
        job, state, code = _JOB.match(line), _STATE.search(line), _CODE.search(line)
        if job is not None and state is not None and code is not None:
            jobs.setdefault(job["job"], []).append(_ended(job["job"], line.strip(), row, state["state"], code, reduced=True))
    for steps in jobs.values():
        # What the launcher of the batch script ended with follows from its steps. A step may be cancelled because a task of it failed.
        if steps[0].stopped:
            yield steps[0]
        else:
            yield max(reversed(steps), key=lambda one: (one.out_of_memory, one.crashed, not one.stopped, bool(one.status)))


def _read_records(lines: Iterable[str]) -> Iterator[Ended]:
    """`scontrol show job`: a job has many lines, or one."""
    job = state = None
    for row, line in enumerate(lines):
        if match := _BEGIN.match(line):
            job, state = match["job"], None
        state = _FIELD_STATE.search(line) or state
        code = _FIELD_CODE.search(line)
        if job is not None and state is not None and code is not None:
            yield _ended(job, f"JobId={job} {state[0]} {code[0]}", row, state["state"], code, reduced=False)
            job = None


SACCT = Listing(
    "slurm",
    ("JobID",),
    re.compile(r"^ *JobID(?:Raw)?[ |].{0,1000}\bState\b.{0,1000}\bExitCode\b"),
    re.compile(r"^ *(?:\d{1,10}[._+ |\d]|-{3,} )"),
    _read,
)
SCONTROL = Listing("slurm", ("JobId=",), _BEGIN, re.compile(r"^(?:JobId=\d| {0,8}[A-Z][\w/:]{1,40}=| *$)"), _read_records, head_tells=True)
FORMATS = (format_of(SACCT), format_of(SCONTROL))
