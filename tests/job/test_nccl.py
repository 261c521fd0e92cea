"""Real jobs on two H200: rank 1 failed at step 5, as fixtures/jobs/nccl/README.md says. No rule was written before these were recorded."""

from __future__ import annotations

import gzip
import json
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Optional

import pytest

from crashkit.model import Crash
from crashkit.pipeline import analyze
from crashkit.report import text

JOBS = Path(__file__).parents[2] / "fixtures" / "jobs" / "nccl"
SCRIPT = (JOBS / "train.py").read_text().splitlines()


class Truth(NamedTuple):
    """What this evidence shows; where it cannot show the whole truth, the confidence says so."""

    what: str
    """The whole of what is said of the cause, or its start where it ends with `...`."""
    rank: Optional[int] = 1
    ranks: tuple[int, ...] = ()
    line: Optional[str] = None
    """A part of the source line at which the rank failed or stood."""
    confidence: str = "certain"
    finding: str = "collective-missing-rank"
    collective: tuple[object, ...] = ()
    """Group, number, problem, operation, who is missing, who differs."""


NEVER_CAME = ("default_pg", 11, "missing", "all_reduce", (1,), ())
DIFFER = ("default_pg", 16, "mismatch", "all_reduce", (), (1,))
FAILED = {
    "segfault": Truth("SIGSEGV: Fatal Python error: Segmentation fault", line="ctypes.string_at(0)", finding="job-rank-failed"),
    "raise": Truth("ValueError: bad sample in batch 5", line="raise ValueError", finding="job-rank-failed"),
    "kill": Truth("SIGKILL", confidence="likely", finding="job-rank-failed"),
    "oom": Truth(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4096.00 GiB....", line="torch.empty(1 << 40", finding="cuda-oom"
    ),
    "assert": Truth("CUDA error: device-side assert triggered", line="print(table[", finding="cuda-device-assert"),
}
# Without the flight recorder, it is not known where DDP's all_reduce was called but by the stack of who waited there.
AT_BACKWARD = "rank 1 never reached all_reduce #11 (train_step train.py:58)"
HUNG = Truth("all ranks reached all_reduce #12, but it did not finish", None, confidence="possible", finding="nccl-watchdog-timeout",
             collective=("default_pg", 12, "unfinished", "all_reduce", (), ()))  # fmt: skip
HALF = Truth("all ranks reached all_reduce #16, but it did not finish: not on rank 1", line="dist.all_reduce(total)", confidence="possible",
             finding="nccl-watchdog-timeout", collective=("default_pg", 16, "unfinished", "all_reduce", (), (1,)))  # fmt: skip
LOGS = {
    **FAILED,
    "fr-segfault": FAILED["segfault"],
    "missed": Truth(AT_BACKWARD, collective=NEVER_CAME),
    "fr-missed": Truth("rank 1 never reached all_reduce #11", collective=NEVER_CAME),
    "spin": Truth(f"{AT_BACKWARD}; it was in load_batch train.py:24", line="while True", collective=NEVER_CAME),
    "fr-spin": Truth(AT_BACKWARD, collective=NEVER_CAME),
    "mismatch": Truth("at #16 rank 0 called all_reduce (train.py:52) and rank 1 called all_gather", None, (0, 1), None,
                      "certain", "collective-mismatch", DIFFER),
    "fr-mismatch": Truth("at #16 rank 0 called all_reduce (train.py:52) and rank 1 called all_gather (train.py:49)", None, (0, 1), None,
                         "certain", "collective-mismatch", DIFFER),
    "size": HALF,
    "fr-size": HALF,
    "p2p": Truth("at #11 rank 0 called recv (train.py:56) and rank 1 called all_reduce (train.py:58)", None, (0, 1), None,
                 "likely", "collective-mismatch", ("default_pg", 11, "mismatch", "recv", (), (1,))),
    # Rank 0 only warned that it uses sends and receives, and left no stack.
    "fr-p2p": Truth("at #11 rank 0 called send or recv and rank 1 called all_reduce (train.py:58)", None, (0, 1), None,
                    "possible", "nccl-watchdog-timeout", ("default_pg", 11, "mismatch", "send or recv", (), (1,))),
    # Both waited for the same collective; that another group's held it, only the flight recorder knows.
    "groups": HUNG,
    "fr-groups": HUNG,
}  # fmt: skip
SIZES = "at #16 rank 0 called all_reduce of 20 (train.py:52) and rank 1 called all_reduce of 40 (train.py:52)"
RECORDED = {
    "fr-missed": Truth("rank 1 never reached all_reduce #11", collective=NEVER_CAME),
    "fr-spin": Truth("rank 1 never reached all_reduce #11", collective=NEVER_CAME),
    "fr-mismatch": LOGS["fr-mismatch"],
    "fr-size": Truth(SIZES, None, (0, 1), None, "certain", "collective-mismatch", DIFFER),
    "fr-p2p": Truth("rank 1 never reached the send that belongs to recv 1->0 #1 (train_step train.py:56)", confidence="likely",
                    collective=("default_pg", 1, "missing", "recv 1->0", (1,), ())),
    "fr-groups": Truth("rank 1 never reached all_reduce #6 (main train.py:73)",
                       collective=("metrics", 6, "missing", "all_reduce", (1,), ())),
}  # fmt: skip
BOTH = {**RECORDED, "fr-segfault": FAILED["segfault"], "fr-spin": LOGS["fr-spin"]}


def _evidence() -> list[tuple[str, str]]:
    return [*(("log", name) for name in LOGS), *(("dumps", name) for name in RECORDED), *(("both", name) for name in BOTH)]


def _given(kind: str, name: str) -> list[Path]:
    folder = JOBS / name
    return {"log": [folder / "job.log"], "dumps": sorted(folder.glob("fr_*")), "both": [folder]}[kind]


@pytest.fixture(scope="module")
def crashes() -> dict[tuple[str, str], Crash]:
    return {(kind, name): analyze(_given(kind, name)) for kind, name in _evidence()}


def test_every_run_is_here() -> None:
    runs = {path.name for path in JOBS.iterdir() if path.is_dir()}
    assert runs == set(LOGS)
    assert {path.parent.name for path in JOBS.glob("*/fr_*")} == set(RECORDED)
    assert {name for name in runs if name.startswith("fr-")} == set(BOTH)


@pytest.mark.parametrize(("kind", "name"), _evidence())
def test_what_failed_first(kind: str, name: str, crashes: dict[tuple[str, str], Crash]) -> None:
    crash = crashes[kind, name]
    truth = {"log": LOGS, "dumps": RECORDED, "both": BOTH}[kind][name]
    assert crash.job is not None and crash.job.root_cause is not None
    cause = crash.job.root_cause
    said, whole = cause.what or "", not truth.what.endswith("...")
    assert said == truth.what if whole else said.startswith(truth.what[:-3])
    assert (cause.rank, cause.ranks, cause.confidence) == (truth.rank, truth.ranks, truth.confidence)
    line = SCRIPT[(cause.where.line or 0) - 1] if cause.where is not None else None
    assert truth.line in (line or "") if truth.line else line is None
    wrong = next(iter(crash.job.collectives), None)
    told = (wrong.group, wrong.sequence, wrong.problem, wrong.operation, wrong.missing, wrong.differing) if wrong is not None else ()
    assert told == truth.collective
    assert crash.findings[0].id == truth.finding
    if truth.finding.startswith("collective-"):
        assert crash.findings[0].confidence == truth.confidence
    roles = {process.rank: process.role for process in crash.job.processes}
    assert set(roles) == {0, 1}
    assert (roles[1] == "root-cause") == (truth.rank == 1)


@pytest.mark.parametrize(("kind", "name"), _evidence())
def test_nothing_false_is_claimed(kind: str, name: str, crashes: dict[tuple[str, str], Crash]) -> None:
    crash = crashes[kind, name]
    assert crash.job is not None
    roles = {process.rank: process.role for process in crash.job.processes}
    assert roles[0] != "root-cause", "rank 0 only ever waited"
    certain = {finding.id for finding in crash.findings if finding.confidence == "certain"}
    assert not {one for one in certain if one.startswith(("killed-by", "stopped", "sigterm"))}
    shown = "\n".join(text.summary(crash, None, color=False, width=200))
    assert "torch/distributed/run.py" not in shown and "ChildFailedError" not in shown and "launch_agent" not in shown
    assert crash.signal is None or crash.signal.name in ("SIGSEGV", "SIGKILL", "SIGABRT")
    if crash.job.collectives:
        assert crash.signal is None, "the abort followed from the time-out"


def _altered(tmp_path: Path, name: str, *changes: tuple[str, str]) -> Crash:
    log = (JOBS / name / "job.log").read_text()
    for old, new in changes:
        assert old in log
        log = log.replace(old, new)
    (tmp_path / "job.log").write_text(log)
    return analyze([tmp_path / "job.log"])


def test_sequence_numbers_of_two_groups_are_not_compared(tmp_path: Path) -> None:
    """Rank 0 waits for #6 of another group; that rank 1 came to #10 of the first one says nothing of it."""
    line = "[PG ID 0 PG GUID 0(default_pg) Rank 0]  failure detected by watchdog at work sequence id: 11"
    crash = _altered(
        tmp_path,
        "spin",
        (line, "[PG ID 1 PG GUID 1(metrics) Rank 0]  failure detected by watchdog at work sequence id: 6"),
        ("PG status: last enqueued work: 11, last completed work: 10", "PG status: last enqueued work: 6, last completed work: 5"),
        ("WorkNCCL(SeqNum=11", "WorkNCCL(SeqNum=6"),
    )
    assert crash.job is not None and crash.job.root_cause is not None
    (one,) = crash.job.collectives
    assert (one.group, one.sequence, one.problem, one.missing, one.unknown) == ("metrics", 6, "unfinished", (), (1,))
    assert crash.job.root_cause.confidence == "possible"
    assert crash.job.root_cause.what == "all_reduce #6 did not finish; it is not known whether rank 1 reached it"


def test_who_came_after_the_time_out_was_late(tmp_path: Path) -> None:
    ending = "[rank1]:[F1121 "
    later = (
        "[rank1]:[E1121 21:53:40.000000000 ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID 0(default_pg) Rank 1]  failure detected by watchdog "
        "at work sequence id: 11 PG status: last enqueued work: 11, last completed work: 10\n"
    )
    crash = _altered(tmp_path, "missed", (ending, later + ending))
    assert crash.job is not None and crash.job.root_cause is not None
    assert crash.job.root_cause.what == "rank 1 was too late for all_reduce #11 (train_step train.py:58)"


def test_a_dump_is_of_the_process_that_said_that_it_ends(tmp_path: Path) -> None:
    """faulthandler names no rank. Where two ranks abort at once, nobody can tell whose dump it is."""
    crash = analyze([JOBS / "spin" / "job.log"])
    assert crash.job is not None
    assert {one.rank: one.where.function for one in crash.job.processes if one.where} == {0: "train_step", 1: "load_batch"}
    said = "[PG ID 0 PG GUID 0(default_pg) Rank 0] Terminating the process after attempting to dump debug info"
    monitor = f"[rank0]:[F1121 21:55:28.320955959 ProcessGroupNCCL.cpp:1653] {said}\n"
    crash = _altered(tmp_path, "spin", ("[rank1]:[F1121 ", monitor + "[rank1]:[F1121 "))
    assert crash.job is not None and all(one.where is None for one in crash.job.processes)


def test_a_second_signal_while_aborting_is_no_cause(tmp_path: Path) -> None:
    """Rank 0 of this run ended with SIGSEGV while it aborted; here without the exception that says so as well."""
    gone = ("[rank0]: Traceback (most recent call last):\n", ""), ("[rank0]: torch.distributed.DistBackendError: ", "")
    crash = _altered(tmp_path, "mismatch", *gone)
    assert crash.job is not None and crash.job.root_cause is not None
    assert (crash.job.root_cause.rank, crash.job.root_cause.ranks) == (None, (0, 1))
    assert {one.rank: (one.exit, one.role) for one in crash.job.processes} == {0: (-11, "lost-peer"), 1: (-6, "lost-peer")}


@pytest.mark.parametrize("name", ["raise", "missed", "kill"])
def test_what_the_launcher_says_is_not_evidence_of_the_cause(name: str) -> None:
    """Neither the SIGTERM that it sends nor its own ChildFailedError tells why a rank failed."""
    log = JOBS / name / "job.log"
    assert "closing signal" in log.read_text() and "ChildFailedError" in log.read_text()
    crash = analyze([log])
    assert crash.job is not None
    said = [(line.kind, line.text) for line in crash.log]
    assert not [one for one in said if one[0] == "launcher-stops" or "ChildFailedError" in one[1]]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gz", "xz"])
def test_the_only_log_may_be_compressed(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    packed = tmp_path / "job.log.packed"
    packed.write_bytes(pack((JOBS / "spin" / "job.log").read_bytes()))
    crash = analyze([packed])
    assert crash.job is not None and crash.job.root_cause is not None
    assert crash.job.root_cause.what == LOGS["spin"].what
    with_dumps = analyze([packed, *(JOBS / "fr-spin").glob("fr_*")])
    assert with_dumps.job is not None and with_dumps.job.root_cause is not None
    assert with_dumps.job.root_cause.what == LOGS["spin"].what


def test_a_log_from_a_pipe(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "crashkit", "analyze", "-", "--json"]
    done = subprocess.run(command, input=(JOBS / "spin" / "job.log").read_bytes(), capture_output=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout)["job"]["root_cause"]["what"] == LOGS["spin"].what
