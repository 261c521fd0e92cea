"""Of real jobs, the process that failed first is named, with its line and its cause (fixtures/jobs/README.md says what happened)."""

from __future__ import annotations

import shutil
from io import BytesIO
from pathlib import Path
from typing import NamedTuple, Optional

import pytest

from crashkit.evidence.job.log_words import LogWords
from crashkit.model import Crash
from crashkit.pipeline import analyze
from crashkit.report import text
from crashkit.report.html import render
from crashkit.report.markdown import summary

JOBS = Path(__file__).parents[2] / "fixtures" / "jobs"
SCRIPT = (JOBS / "train.py").read_text().splitlines()


class Truth(NamedTuple):
    """What the program was written to do."""

    rank: Optional[int]
    what: str
    """A part of what is said of it."""
    line: Optional[str] = None
    """A part of the source line where it failed."""
    finding: str = "job-rank-failed"
    ranks: tuple[int, ...] = ()
    confidence: str = "certain"


MISSED = "never reached all_reduce"
TRUTH = {
    "segfault": Truth(1, "SIGSEGV", "ctypes.string_at(0)"),
    "tree-segfault": Truth(1, "SIGSEGV", "ctypes.string_at(0)"),
    "fr-segfault": Truth(1, "SIGSEGV", "ctypes.string_at(0)"),
    "raise": Truth(1, "ValueError: bad sample in batch 5", "raise ValueError"),
    "recorded": Truth(1, "ValueError: bad sample in batch 5", "raise ValueError"),
    "tee": Truth(1, "ValueError: bad sample in batch 5", "raise ValueError"),
    "raise-8": Truth(5, "ValueError: bad sample in batch 5", "raise ValueError"),
    "tree": Truth(2, "ValueError: bad sample in batch 5", "raise ValueError"),
    "kill": Truth(1, "SIGKILL", confidence="likely"),
    "exit": Truth(1, "SIGABRT", None, "cxx-terminate-no-exception"),
    "missed": Truth(1, MISSED, None, "collective-missing-rank", confidence="likely"),
    "missed-4": Truth(2, MISSED, None, "collective-missing-rank", confidence="likely"),
    "detail-missed": Truth(1, MISSED, None, "collective-missing-rank", confidence="likely"),
    "stood": Truth(1, "it was in load_batch train.py", "time.sleep", "collective-missing-rank", confidence="likely"),
    "fr-missed": Truth(2, "never reached all_reduce #6", None, "collective-missing-rank"),
    "barrier": Truth(1, "never reached barrier", None, "collective-missing-rank", confidence="likely"),
    "fr-barrier": Truth(1, "never reached barrier #9", None, "collective-missing-rank"),
    "mismatch": Truth(None, "rank 0 called all_reduce", None, "collective-mismatch", (0, 1), "likely"),
    "fr-mismatch": Truth(None, "at #6 rank 0 called all_reduce", None, "collective-mismatch", (0, 1)),
    "detail": Truth(None, "at #5 rank 0 called all_reduce", None, "collective-mismatch", (0, 1)),
    "ddp-broadcast": Truth(None, "rank 0 called backward (ddp.py:", None, "collective-mismatch", (0, 1), "likely"),
    "size": Truth(None, "rank 0 called all_reduce", None, "cxx-uncaught-exception", (0, 1), "possible"),
    "uneven": Truth(1, "rank 1 called barrier", "dist.barrier()", "collective-mismatch", confidence="likely"),
    "fr-uneven": Truth(1, "at #5 ranks 0 and 2 called all_reduce", "dist.barrier()", "collective-mismatch"),
    "fr-groups": Truth(3, "never reached all_reduce #2", None, "collective-missing-rank"),
    "two": Truth(2, "SIGSEGV", "ctypes.string_at(0)", confidence="likely"),
    "restart": Truth(1, "ValueError: bad sample in batch 5", "raise ValueError"),
    "accelerate-segfault": Truth(1, "SIGSEGV", "ctypes.string_at(0)"),
    "accelerate-raise": Truth(1, "ValueError: bad sample in batch 5", "raise ValueError"),
    "accelerate-missed": Truth(1, MISSED, None, "collective-missing-rank", confidence="likely"),
    "slurm-segfault": Truth(1, "SIGSEGV", "ctypes.string_at(0)"),
    "slurm-raise": Truth(1, "ValueError: bad sample in batch 5", "raise ValueError"),
    "slurm-missed": Truth(1, MISSED, None, "collective-missing-rank", confidence="likely"),
    "deepspeed-segfault": Truth(1, "SIGSEGV", "ctypes.string_at(0)"),
    "deepspeed-raise": Truth(1, "ValueError: bad sample in batch 5", "raise ValueError"),
    "deepspeed-kill": Truth(1, "SIGKILL", confidence="likely"),
    "slurm-kill": Truth(1, "SIGKILL", confidence="likely"),
    "slurm-exit": Truth(1, "exit status 3"),
    "slurm-wait": Truth(1, "ValueError: bad sample", "raise ValueError"),
    "slurm-memory": Truth(1, "the kernel was out of memory", finding="host-oom-cgroup"),
    "slurm-run-segfault": Truth(1, "SIGSEGV", "ctypes.string_at(0)"),
    "slurm-run-raise": Truth(1, "ValueError: bad sample", "raise ValueError"),
    "slurm-run-memory": Truth(1, "the kernel was out of memory", finding="host-oom-cgroup"),
}
# Nobody failed: SLURM ended the job, or somebody asked it to.
STOPPED = {
    "slurm-cancel": "slurm-job-cancelled",
    "slurm-cancel-batch": "slurm-job-cancelled",
    "slurm-cancel-killed": "slurm-job-cancelled",
    "slurm-run-cancel": "slurm-job-cancelled",
    "slurm-time": "timeout-slurm-job",
    "slurm-interrupt": None,
}
# One process below a launcher, which prints a traceback of its own behind.
SINGLE = ("accelerate-single-raise", "accelerate-single-segfault")
FROM_NOTES = {
    "nccl/missed.log": Truth(1, "never reached all_reduce #11", None, "collective-missing-rank"),
    "nccl/mismatch.log": Truth(
        None, "at #12 rank 0 called all_reduce (ddp.py:40) and rank 1 called all_gather (ddp.py:44)", None, "collective-mismatch", (0, 1)
    ),
}


@pytest.fixture(scope="module")
def crashes() -> dict[str, Crash]:
    return {name: analyze(JOBS / name) for name in (*TRUTH, *FROM_NOTES)}


def said(crash: Crash, width: int = 100) -> str:
    return "\n".join(text.summary(crash, None, color=False, width=width, brief=True))


def is_right(crash: Crash, truth: Truth) -> None:
    assert crash.job is not None and crash.job.root_cause is not None
    cause = crash.job.root_cause
    assert (cause.rank, cause.ranks, cause.confidence) == (truth.rank, truth.ranks, truth.confidence)
    assert truth.what in (cause.what or "")
    if truth.line is not None:
        assert cause.where is not None and cause.where.file is not None
        script = JOBS / Path(cause.where.file).name
        assert truth.line in script.read_text().splitlines()[(cause.where.line or 0) - 1]
    assert [finding.id for finding in crash.findings][:1] == [truth.finding]
    first = [process.rank for process in crash.job.processes if process.role == "root-cause"]
    assert first == ([truth.rank] if truth.rank is not None else [])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TRUTH, *FROM_NOTES])
def test_what_failed_first(name: str, crashes: dict[str, Crash]) -> None:
    is_right(crashes[name], {**TRUTH, **FROM_NOTES}[name])


def test_every_recorded_job_is_checked() -> None:
    # Of this one the log alone cannot tell, and the aborted rank left no dump.
    assert {path.name for path in JOBS.iterdir() if path.is_dir()} == {
        *TRUTH, *STOPPED, *SINGLE, "fr-size", "nccl", "services", "slurm-lists", "podman-lists",
    }  # fmt: skip


@pytest.mark.parametrize("name", STOPPED)
def test_who_was_stopped_did_not_fail(name: str) -> None:
    crash = analyze(JOBS / name)
    assert [finding.id for finding in crash.findings] == ([STOPPED[name]] if STOPPED[name] else [])
    assert crash.job is None or crash.job.root_cause is None
    assert crash.job is None or {process.role for process in crash.job.processes} == {"stopped"}


def test_the_launcher_of_a_single_process_is_not_to_blame() -> None:
    """accelerate prints a traceback of its own below that of the script; of a script that a signal ended there is no other."""
    raised, died = (analyze(JOBS / name) for name in SINGLE)
    assert raised.thread is not None and [frame.function for frame in raised.thread.pythons()] == ["train_step", "<module>"]
    assert said(raised).splitlines()[0] == "Python exception  ValueError: bad sample"
    assert died.signal is not None and died.signal.name == "SIGSEGV" and not died.threads
    assert "simple_launcher" not in "\n".join(said(died).splitlines()[:3])


@pytest.mark.parametrize(
    ("said_last", "function"),
    [
        ("subprocess.CalledProcessError: Command '['/usr/bin/python3', 'x.py']' returned non-zero exit status 1.", "work"),
        ("subprocess.CalledProcessError: Command '['make', 'all']' returned non-zero exit status 1.", "launch"),
        ("subprocess.CalledProcessError: Command '['/usr/bin/python3', 'x.py']' returned non-zero exit status 2.", "launch"),
        ("ValueError: Command '['/usr/bin/python3', 'x.py']' returned non-zero exit status 1.", "launch"),
    ],
)
def test_whose_exception_is_shown(said_last: str, function: str, tmp_path: Path) -> None:
    """That of the program that was started, if what started it only reports it."""
    first = 'Traceback (most recent call last):\n  File "/srv/x.py", line 3, in work\n    fail()\nKeyError: 1\n'
    last = f'Traceback (most recent call last):\n  File "/srv/all.py", line 9, in launch\n    run(check=True)\n{said_last}\n'
    (tmp_path / "stderr.log").write_text(first + last)
    thread = analyze(tmp_path / "stderr.log").thread
    assert thread is not None and [frame.function for frame in thread.pythons()] == [function]


def test_what_cannot_be_told_is_at_most_possible() -> None:
    cause = analyze(JOBS / "fr-size").job.root_cause  # type: ignore[union-attr]
    assert cause is not None and cause.confidence == "possible"


@pytest.mark.parametrize("name", [*TRUTH, *FROM_NOTES])
def test_the_first_screen_names_rank_line_and_cause(name: str, crashes: dict[str, Crash]) -> None:
    truth, shown = {**TRUTH, **FROM_NOTES}[name], said(crashes[name], 80)
    rows = shown.splitlines()
    assert len(rows) <= 24 and max(map(len, rows)) <= 80
    together = " ".join(shown.split())
    assert truth.rank is None or f"rank {truth.rank}" in together
    assert truth.what.split(":")[0].split("(")[0].split(" in ")[0][:40].strip() in together
    cause = crashes[name].job.root_cause  # type: ignore[union-attr]
    assert cause is not None
    for call in crashes[name].job.collectives[0].calls if cause.ranks else ():  # type: ignore[union-attr]
        assert call.where is not None and f":{call.where.line}" in together
    assert cause.where is None or f":{cause.where.line}" in together


def test_a_plain_exception_is_not_told_as_a_stop(crashes: dict[str, Crash]) -> None:
    for name in ("raise", "raise-8", "tree", "recorded", "tee"):
        assert crashes[name].signal is None
        assert "SIGTERM" not in said(crashes[name]) and "killed-by-sigterm" not in [one.id for one in crashes[name].findings]
        assert crashes[name].process.exit_status in (1, None)  # type: ignore[union-attr]


def test_the_stack_is_that_of_the_process_not_of_the_launcher(crashes: dict[str, Crash]) -> None:
    for crash in crashes.values():
        frames = [frame.file or "" for thread in crash.threads for frame in thread.pythons()]
        assert not any(file.endswith(("distributed/run.py", "launcher/api.py")) for file in frames)


def test_everyone_else_only_followed(crashes: dict[str, Crash]) -> None:
    roles = {process.rank: process.role for process in crashes["raise-8"].job.processes}  # type: ignore[union-attr]
    assert roles == {5: "root-cause", 4: "lost-peer", 6: "lost-peer", **dict.fromkeys((0, 1, 2, 3, 7), "stopped")}


def test_a_second_cause_is_named_too(crashes: dict[str, Crash]) -> None:
    job = crashes["two"].job
    assert job is not None and [(cause.rank, cause.what) for cause in job.also] == [(1, "ValueError: bad sample in batch 5")]
    assert "rank 1: ValueError: bad sample in batch 5 (train_step train.py:" in said(crashes["two"])


def test_a_restart_is_not_the_first_failure(crashes: dict[str, Crash]) -> None:
    job = crashes["restart"].job
    assert job is not None and job.attempts == 2 and job.root_cause is not None and job.root_cause.attempt == 0
    assert [(process.attempt, process.rank) for process in job.processes] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert "started twice" in said(crashes["restart"])


def test_launchers_blame_is_not_believed_over_who_waited(crashes: dict[str, Crash]) -> None:
    """torchrun calls rank 1 the root cause; it only waited."""
    assert "rank      : 1 " in (JOBS / "missed-4/job.log").read_text().partition("Root Cause")[2]
    assert crashes["missed-4"].job.root_cause.rank == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["raise-8", "uneven", "fr-missed", "restart"])
def test_html_and_markdown_show_it(name: str, crashes: dict[str, Crash]) -> None:
    page, plain = render(crashes[name]), summary(crashes[name])
    assert 'class="root-cause"' in page and page.count("<circle") == page.count('<svg class="job"') >= 1
    assert "**Job:** torchrun" in plain and f"ank {TRUTH[name].rank}" in plain
    assert "style=" not in page.partition("<svg")[2].partition("</svg>")[0]


# The same job in other forms


def as_ranks(folder: Path, name: str, file: str) -> None:
    """One log a rank, as srun writes them, from torchrun's tree."""
    for log in (JOBS / name / "logs").rglob("stderr.log"):
        shutil.copy(log, folder / file.format(rank=log.parent.name))


@pytest.mark.parametrize("file", ["job-{rank}.out", "rank{rank}.log", "train_rank_{rank}.err", "slurm-77-{rank}.txt"])
def test_a_log_a_rank(file: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    as_ranks(tmp_path / "logs", "tree-segfault", file)
    crash = analyze(sorted((tmp_path / "logs").iterdir()))
    assert crash.job is not None and crash.job.root_cause is not None and crash.job.root_cause.rank == 1
    assert crash.job.root_cause.where is not None and "string_at" in SCRIPT[(crash.job.root_cause.where.line or 0) - 1]
    assert analyze(tmp_path / "logs").job == crash.job


PREFIXES = {
    "[rank{rank}]: ": 2,
    "[default{rank}]:": 2,
    "{rank}: ": 2,
    "(RayTrainWorker pid={pid}, ip=10.0.0.{rank}) ": None,
    "(Worker_TP{rank} pid={pid}) ": None,
    "trainer-{rank}  | ": None,
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_one_log_with_prefixes(prefix: str, tmp_path: Path) -> None:
    """The lines of each rank of a real job, marked as other launchers do."""
    rows = []
    for log in sorted((JOBS / "tree/logs").rglob("stderr.log")):
        rank = int(log.parent.name)
        marked = prefix.format(rank=rank, pid=500 + rank)
        rows += [marked + row.removeprefix(f"[rank{rank}]: ") for row in log.read_text().splitlines()]
    path = tmp_path / "all.log"
    path.write_text("\n".join(rows) + "\n")
    crash = analyze(path)
    assert crash.job is not None and crash.job.root_cause is not None
    cause = crash.job.root_cause
    assert cause.what == "ValueError: bad sample in batch 5" and cause.confidence == "certain"
    assert cause.rank == PREFIXES[prefix]
    if cause.rank is None:
        assert cause.pid == 502 or (cause.name or "").startswith("trainer-2")


def test_error_files_alone(tmp_path: Path) -> None:
    for file in (JOBS / "tree/logs").rglob("error.json"):
        target = tmp_path / "attempt_0" / file.parent.name / "error.json"
        target.parent.mkdir(parents=True)
        shutil.copy(file, target)
    crash = analyze(tmp_path)
    assert crash.job is not None and crash.job.root_cause is not None
    assert (crash.job.root_cause.rank, crash.job.root_cause.what) == (2, "ValueError: bad sample in batch 5")
    assert crash.job.root_cause.where is not None and crash.job.root_cause.where.function == "fail"


def test_flight_recorders_alone(tmp_path: Path) -> None:
    dumps = sorted((JOBS / "fr-missed").glob("fr_*"))
    crash = analyze(dumps)
    assert crash.job is not None and crash.job.root_cause is not None and crash.job.root_cause.rank == 2
    assert crash.source is not None and crash.source.kind == "job"


def test_a_rank_without_a_dump_is_a_suspect() -> None:
    dumps = [JOBS / "fr-segfault/fr_0", JOBS / "fr-segfault/fr_2"]
    crash = analyze(dumps)
    assert crash.job is not None and crash.job.root_cause is not None
    assert (crash.job.root_cause.rank, crash.job.root_cause.confidence) == (1, "possible")


SRUN = """\
srun: error: node01: task 3: Segmentation fault (core dumped)
srun: launch/slurm: _step_signal: Terminating StepId=77.0
slurmstepd: error: *** STEP 77.0 ON node01 CANCELLED AT 2026-11-21T14:00:00 ***
srun: error: node01: task 0: Terminated
srun: error: node02: task 4: Killed
"""


def test_what_srun_says(tmp_path: Path) -> None:
    path = tmp_path / "slurm-77.out"
    path.write_text(SRUN)
    crash = analyze(path)
    assert crash.job is not None and crash.job.kind == "slurm" and crash.job.root_cause is not None
    assert (crash.job.root_cause.rank, crash.job.root_cause.what) == (3, "SIGSEGV")
    assert {process.rank: process.role for process in crash.job.processes} == {0: "stopped", 3: "root-cause", 4: "stopped"}


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        ("task 1: Exited with exit code 1", {1: 1}),
        ("tasks 0,2-4: Exited with exit code 3", {0: 3, 2: 3, 3: 3, 4: 3}),
        ("task 1: Segmentation fault (core dumped)", {1: -11}),
        ("tasks 1-2: Floating point exception", {1: -8, 2: -8}),
        ("task 0: Bus error", {0: -7}),
        ("tasks 0-1: Terminated", {0: -15, 1: -15}),
        ("task 2: Out Of Memory", {2: -9}),
        # What a shell, or crashkit run, makes of a signal.
        ("task 1: Exited with exit code 139", {1: -11}),
        ("task 1: Exited with exit code 255", {1: 255}),
        ("task 1: waiting for something", {}),
        ("tasks 5-1: Aborted", {}),
    ],
)
def test_how_tasks_ended_as_srun_says_it(said: str, ends: dict[int, int]) -> None:
    words = LogWords(Path("slurm.out")).read(BytesIO(f"srun: error: node01: {said}\n".encode()))
    assert {word.who.rank: word.number for word in words if word.kind == "exit"} == ends
    assert {word.who.rank for word in words if word.kind == "stopped"} == {rank for rank, end in ends.items() if end == -15}
    assert {word.who.rank for word in words if word.kind == "killed"} == {rank for rank, end in ends.items() if "Memory" in said}


def test_one_process_is_no_job(tmp_path: Path) -> None:
    path = tmp_path / "one.log"
    path.write_text('Traceback (most recent call last):\n  File "/srv/a.py", line 1, in f\n    g()\nValueError: no\nKilled\n')
    assert analyze(path).job is None
