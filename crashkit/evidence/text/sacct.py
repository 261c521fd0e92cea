"""`sacct`, SLURM's list of jobs and their steps, also with --parsable.

Sources: sacct(1) (State, ExitCode: `status:signal`), the states of slurm.h (`job_states`). Where the column is too narrow, it ends in `+`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from crashkit.evidence.text.listing import Ended, Listing, format_of, of_shell

_JOB = re.compile(r"^ *(?P<job>\d{1,10}(?:[_+]\d{1,7})?)(?:\.\w{1,20}\+?)?[ |]")
_STATE = re.compile(
    r"(?<=[ |])(?P<state>OUT_OF_ME(?:MORY|\+)|BOOT_FAIL|COMPLETED|DEADLINE|FAILED|NODE_FAIL|PREEMPTED|TIMEOUT|RUNNING|CANCELLED)(?=[ |+])"
)
_CODE = re.compile(r"(?<=[ |])(?P<status>\d{1,3}):(?P<signal>\d{1,3})(?![^ |])")
_NO_SIGNAL = 125
"""What slurmstepd says of a step that the kernel ended for its memory: 0:125."""


def _read(lines: Iterable[str]) -> Iterator[Ended]:
    """One for each job: of its steps the one that tells most."""
    jobs: dict[str, list[Ended]] = {}
    for row, line in enumerate(lines):
        job, state, code = _JOB.match(line), _STATE.search(line), _CODE.search(line)
        if job is None or state is None or code is None:
            continue
        out_of_memory = state["state"].startswith("OUT_OF_ME")
        signal, status = int(code["signal"]), int(code["status"])
        runs = state["state"] == "RUNNING"
        ended = None if runs or signal == _NO_SIGNAL else -signal if signal else of_shell(status)
        jobs.setdefault(job["job"], []).append(Ended(job["job"], line.strip(), ended, out_of_memory, runs, row))
    for steps in jobs.values():
        # What the launcher of the batch script ended with follows from its steps.
        yield max(reversed(steps), key=lambda one: (one.out_of_memory, one.crashed, bool(one.status)))


SACCT = Listing(
    "slurm",
    ("JobID",),
    re.compile(r"^ *JobID(?:Raw)?[ |].{0,1000}\bState\b.{0,1000}\bExitCode\b"),
    re.compile(r"^ *(?:\d{1,10}[._+ |\d]|-{3,} )"),
    _read,
)
FORMAT = format_of(SACCT)
