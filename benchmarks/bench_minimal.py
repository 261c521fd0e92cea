"""How large minimal cores are against the whole ones, and what making one costs beside the analysis.

    python -m benchmarks.bench_minimal [--write] [--only CASE,CASE]

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
_LARGE = """
import ctypes, mmap

RESERVED = 0x4000
data = mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | RESERVED)
for place in range(0, 8 << 30, 64 << 20):
    data[place : place + 4096] = b"x" * 4096

def read(address):
    return ctypes.string_at(address)

read(16)
"""
"""8 GiB, of which little was ever written: the core is a sparse file."""


def rows(folder: Path, name: str, script: Path | str, most: float, rounds: int) -> Iterator[Row]:
    core = made(folder, name, script)
    small, page = core.with_name("minimal"), core.with_name("report")
    analyze: list[str | Path] = [PYTHON, "-m", "crashkit", "analyze", core, "--out", page]
    plain = measure(analyze, rounds)
    small.unlink(missing_ok=True)
    making = measure([*analyze, "--minimal-core", small], 1)
    reading = measure([PYTHON, "-m", "crashkit", "analyze", small, "--out", page], rounds)
    size, left = core.stat().st_size, small.stat().st_size
    yield Row(f"{name}: core, minimal core", f"{size / _MIB:,.1f} MiB, {left / _MIB:.2f} MiB", "", True)
    yield ratio(f"{name}: size of the minimal core against the core", left, size, most)
    yield Row(
        f"{name}: analyzing the core, and making the minimal one, analyzing that", ", ".join(map(show, (plain, making, reading))), "", True
    )
    yield ratio(f"{name}: memory of making it against analyzing the core", making.memory, plain.memory, 1.5)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Measure minimal cores.")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="plain,threads,torch,large")
    options, _ = parser.parse_known_args(arguments)
    plain = "import ctypes\n\ndef read(address):\n    return ctypes.string_at(address)\n\nread(16)\n"
    cases: dict[str, tuple[Path | str, float]] = {
        "plain": (plain, 0.05),
        "threads": (CRASHERS / "threads.py", 0.05),
        "torch": (CRASHERS / "torch_lstm.py", 0.05),
        "large": (_LARGE, 0.001),
    }
    measured = {name: partial(rows, name=name, script=script, most=most, rounds=options.rounds) for name, (script, most) in cases.items()}
    return report("minimal", measured, options)


if __name__ == "__main__":
    sys.exit(main())
