"""How long `crashkit ci` takes for many cores of one program, and whether its memory stays flat.

    python -m benchmarks.bench_ci [--cores N]

The goal is 200 cores of a torch process on two processors in 100 s. A few are measured and the rest is computed: from the time of the
processors, which another load does not change, and not from the wall's.
"""

from __future__ import annotations

import argparse
import re
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from crashkit.batch.job import Job, Task
from crashkit.batch.pool import pooled
from crashkit.pipeline import Options
from tests.crashes import CRASHERS, crash

GOAL = 100.0
MANY = 200
PROCESSORS = 2
GROWTH = 32
"""MiB that a worker may grow by from the first third of its crashes to the last."""


def memory(pid: int) -> int:
    """MiB that the process holds now."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmRSS:\s+(\d+)", text)
    return int(found[1]) >> 10 if found else 0


def processor_time() -> float:
    """Seconds of all children that were waited for: workers, and the debuggers that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Measure crashkit ci.")
    parser.add_argument("--cores", type=int, default=24, help="how many are measured")
    options, _ = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory(prefix="crashkit-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        (folder / "torch").mkdir()
        core = crash([sys.executable, CRASHERS / "torch_lstm.py"], folder / "torch", {"PYTHONFAULTHANDLER": "1"}).core
        # The same one again and again: it is analyzed each time.
        jobs = [Job(number=number, paths=(core,), shown=("core",)) for number in range(1, options.cores + 1)]
        sizes: list[int] = []
        pids: set[int] = set()
        began, used = time.monotonic(), processor_time()
        (folder / "indexes").mkdir()
        task = Task(options=Options(indexes=folder / "indexes"), out=folder / "out")
        for done in pooled(jobs, task, PROCESSORS, lambda job, pid: pids.add(pid)):
            assert not done.entry.failed, done.entry.failed
            sizes.append(max(map(memory, pids)))
        wall, used = time.monotonic() - began, processor_time() - used
    seconds = used / options.cores * MANY / PROCESSORS
    third = max(1, len(sizes) // 3)
    growth = max(sizes[-third:]) - max(sizes[:third])
    print(f"{options.cores} torch cores: {wall:.1f} s, {used / options.cores:.2f} s of processor time each")
    print(f"{MANY} of them on {PROCESSORS} processors: {seconds:.0f} s (goal: under {GOAL:.0f} s){'' if seconds < GOAL else ' MISSED'}")
    print(f"a worker: {max(sizes)} MiB, grown by {growth} MiB (goal: under {GROWTH}){'' if growth < GROWTH else ' MISSED'}")
    return 0 if seconds < GOAL and growth < GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
