"""Jobs of 1,024 ranks: the time and memory of the whole report. `python -m benchmarks.bench_job`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.job import large
from tests.job.test_large import BYTES, RANKS, SECONDS, measured


def main(_: Sequence[str] = ()) -> int:
    """Print one row for each kind of evidence; 1 if one missed the goals."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large.one_log(folder / "job.log", RANKS, 517)
        large.dumps(folder / "dumps", RANKS, 700, 60)
        evidence = {"one log": folder / "job.log", "flight recorders, 60 collectives each": folder / "dumps"}
        answers = {what: measured(path) for what, path in evidence.items()}
    print(f"| {RANKS:,} ranks | processor time | memory |\n|---|---|---|")
    for what, answer in answers.items():
        print(f"| {what} | {answer['seconds']:.1f} s | {answer['bytes'] >> 20} MiB |")
    return int(any(answer["seconds"] >= SECONDS or answer["bytes"] >= BYTES for answer in answers.values()))


if __name__ == "__main__":
    sys.exit(main())
