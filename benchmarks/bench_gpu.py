"""How long GPU cores take: real ones, and a full dump of a gigabyte.

    python -m benchmarks.bench_gpu

Goals: a GPU core of some ten megabytes in under 1 s and 300 MB, a full dump of 1 GiB in under 5 s, the join with the CPU side in under
0.3 s. Times are of `crashkit analyze` as a whole, with its report. The dump of a gigabyte is a recorded full one, one of whose allocations
was made as large; nothing with so much memory is recorded.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from crashkit.evidence.gpu import layout
from crashkit.stacks.launch import launched_from
from tests.gpu_cores import data, gpu, side

REAL = ("torch_embedding-blocking", "graph_replay", "asserts-full")
SIDE = "torch_cross_entropy"
MEASURE = """
import resource, sys
from pathlib import Path
from crashkit.cli import main
status = main(["analyze", sys.argv[1], "-o", sys.argv[2], "-q"], standalone_mode=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
GOAL_SECONDS, GOAL_MEMORY = 1.0, 300_000
"""Seconds, kilobytes."""
GOAL_FULL, GOAL_JOIN = 5.0, 0.3


def enlarged(path: Path, name: str, size: int) -> None:
    """The dump with the last of its sections of global memory grown to `size`: zeros at the end of the file."""
    raw = bytearray(data(name))
    table, count = struct.unpack_from("<Q", raw, 40)[0], struct.unpack_from("<H", raw, 60)[0]
    rows = [table + 64 * number for number in range(count)]
    memory = max(row for row in rows if struct.unpack_from("<I", raw, row + 4)[0] == layout.GLOBAL_MEMORY)
    end = -(-len(raw) // 4096) * 4096
    struct.pack_into("<QQ", raw, memory + 24, end, size)
    path.write_bytes(raw)
    with path.open("r+b") as file:
        file.truncate(end + size)


def measured(path: Path, folder: Path) -> tuple[float, int]:
    """Seconds and kilobytes of one analysis."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", MEASURE, path, folder / "report"], capture_output=True, text=True, check=True)
    return time.perf_counter() - began, int(done.stdout.split()[-1])


def main(arguments: Sequence[str] = ()) -> int:
    del arguments
    good = True
    print("| GPU core | size | wall | peak memory |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="crashkit-bench-") as name:
        folder = Path(name)
        for case in REAL:
            path = folder / f"{case}.nvcudmp"
            path.write_bytes(data(case))
            seconds, memory = measured(path, folder)
            print(f"| {case} | {path.stat().st_size / 1e6:.0f} MB | {seconds:.2f} s | {memory / 1000:.0f} MB |")
            good = good and seconds < GOAL_SECONDS and memory < GOAL_MEMORY
        large = folder / "large.nvcudmp"
        enlarged(large, "beyond-full", 1 << 30)
        seconds, memory = measured(large, folder)
        print(f"| beyond-full, enlarged | {large.stat().st_size / 1e6:,.0f} MB | {seconds:.2f} s | {memory / 1000:.0f} MB |")
        good = good and seconds < GOAL_FULL and memory < GOAL_MEMORY
    core, crash = gpu(SIDE), side(SIDE)
    began = time.perf_counter()
    launched_from(core, crash.threads, {})
    joined = time.perf_counter() - began
    print(f"| the join, {len(crash.threads)} threads | | {joined:.4f} s | |")
    good = good and joined < GOAL_JOIN
    print("goals met" if good else "GOALS MISSED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
