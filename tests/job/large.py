"""Jobs of as many ranks as wanted, made from the recorded ones: every other rank does what a real rank did that only waited."""

from __future__ import annotations

import pickle
from pathlib import Path

JOBS = Path(__file__).parents[2] / "fixtures" / "jobs"


def one_log(path: Path, ranks: int, culprit: int) -> None:
    """The output of torchrun: `culprit` raises, all others lose their connection, and the launcher sums it up."""
    text = (JOBS / "raise-8/job.log").read_text()
    rows = text.splitlines()
    failed = [row.removeprefix("[rank5]: ") for row in rows if row.startswith("[rank5]")]
    lost = [row.removeprefix("[rank4]: ") for row in rows if row.startswith("[rank4]")]
    said = [f"[rank{rank}]: {row}" for rank in range(ranks) if rank != culprit for row in lost]
    said[len(said) // 2 : len(said) // 2] = [f"[rank{culprit}]: {row}" for row in failed]
    agent = "15104 torch/distributed/elastic/multiprocessing/api.py"
    stops = [
        f"W1121 21:30:56.900000 {agent}:1028] Sending process {20_000 + rank} closing signal SIGTERM"
        for rank in range(ranks)
        if rank != culprit
    ]
    ended = (
        f"E1121 21:30:57.000000 {agent}:1002] failed (exitcode: 1) local_rank: {culprit} "
        f"(pid: {20_000 + culprit}) of binary: /opt/venv/bin/python"
    )
    entries = [_entry(rank, -15) for rank in range(ranks) if rank != culprit]
    head = ["=" * 60, "train.py FAILED", "-" * 60, "Failures:"]
    last = ["-" * 60, "Root Cause (first observed failure):", _entry(culprit, 1), "=" * 60]
    path.write_text("\n".join([*said, *stops, ended, *head, *entries, *last]) + "\n")


def _entry(rank: int, status: int) -> str:
    pid = 20_000 + rank
    return (
        f"[{rank}]:\n  time      : 2026-11-21_21:30:57\n  host      : localhost\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {status} (pid: {pid})\n  error_file: <N/A>\n  traceback : Signal 15 (SIGTERM) received by PID {pid}"
    )


def dumps(folder: Path, ranks: int, culprit: int, entries: int) -> None:
    """Flight recorders of all ranks, each with this many collectives; `culprit` did not come to the last one."""
    folder.mkdir()
    real = pickle.loads((JOBS / "fr-missed/fr_0").read_bytes())
    real["pg_config"] = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    done, waiting = real["entries"][0], real["entries"][-1]
    several = [{**done, "collective_seq_id": number, "record_id": number - 1} for number in range(1, entries)]
    last = {**waiting, "collective_seq_id": entries, "record_id": entries - 1}
    came = pickle.dumps({**real, "entries": [*several, last]}, protocol=2)
    absent = pickle.dumps({**real, "entries": several}, protocol=2)
    for rank in range(ranks):
        (folder / f"fr_{rank}").write_bytes(absent if rank == culprit else came)
