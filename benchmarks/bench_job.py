"""Jobs of 1,024 ranks: the time and memory of the whole report. `python -m benchmarks.bench_job`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.job import large
from tests.job.test_large import RANKS, told


def main() -> None:
    """Print one row for each kind of evidence."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large.one_log(folder / "job.log", RANKS, 517)
        large.dumps(folder / "dumps", RANKS, 700, 60)
        print("| 1,024 ranks | processor time | memory |\n|---|---|---|")
        for what, path in (("one log", folder / "job.log"), ("flight recorders, 60 collectives each", folder / "dumps")):
            answer = told(path)
            print(f"| {what} | {answer['seconds']:.1f} s | {answer['bytes'] >> 20} MiB |")


if __name__ == "__main__":
    main()
