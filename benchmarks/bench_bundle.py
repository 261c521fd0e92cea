"""How large bundles are, and how long it takes to make one and to analyze it, against the core.

    python -m benchmarks.bench_bundle [--write] [--only CASE,CASE]

The goals are ratios. `--write` puts the table into docs/performance.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Optional

from benchmarks.bench_analyze import PYTHON, Row, made, measure, ratio, report, show
from tests.crashes import CRASHERS

_MIB = 1 << 20


def rows(folder: Path, name: str, script: Path, most: float, rounds: int) -> Iterator[Row]:
    core = made(folder, name, script)
    bundle = core.with_name("x.tar.zst")
    making = measure([PYTHON, "-m", "crashkit", "bundle", core, "-o", bundle, "--force"], rounds)
    size, packed = core.stat().st_size, bundle.stat().st_size
    yield Row(f"{name}: core, bundle", f"{size / _MIB:.0f} MiB, {packed / _MIB:.0f} MiB", "", True)
    yield ratio(f"{name}: size of the bundle against the core", packed, size, most)
    directly = measure([PYTHON, "-m", "crashkit", "analyze", core, "--out", core.with_name("report")], rounds)
    unpacked = measure([PYTHON, "-m", "crashkit", "analyze", bundle, "--out", core.with_name("report")], rounds)
    yield Row(f"{name}: making, analyzing the bundle, the core", ", ".join(map(show, (making, unpacked, directly))), "", True)
    yield ratio(f"{name}: memory of making it against analyzing the core", making.memory, directly.memory, 2.5)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Measure crashkit bundle.")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="threads,torch")
    options, _ = parser.parse_known_args(arguments)
    cases = {"threads": (CRASHERS / "threads.py", 0.5), "torch": (CRASHERS / "torch_lstm.py", 1.0)}
    measured = {name: partial(rows, name=name, script=script, most=most, rounds=options.rounds) for name, (script, most) in cases.items()}
    return report("bundle", measured, options)


if __name__ == "__main__":
    sys.exit(main())
