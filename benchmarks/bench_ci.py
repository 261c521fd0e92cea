"""How long `crashkit ci` takes for many cores of one program, and whether its memory stays flat.

    python -m benchmarks.bench_ci [--crashes N] [--cores M]

The goal is 200 cores of a torch process on two processors in 100 s: `--crashes 200`. By default fewer are measured, and the rest is
computed from the time of the processors, which another load on the machine does not change much, unlike the wall's.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Optional

from msgspec.structs import replace

from crashkit.batch.job import Done, Task
from crashkit.batch.run import analyzed, plan
from crashkit.pipeline import Options
from tests.crashes import CRASHERS, cores_land_in_cwd

GOAL = 100.0
MANY = 200
PROCESSORS = 2
KINDS = 4
"""Different crashes that torch_many.py makes."""
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


def workers() -> list[int]:
    """The processes that this one has started and not waited for."""
    return [int(pid) for pid in Path("/proc/self/task").joinpath(str(Path("/proc/self").resolve().name), "children").read_text().split()]


def processor_time() -> tuple[float, float]:
    """Seconds in user and in system mode, of this process and of all children that were waited for: workers, and their debuggers."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime for one in used), sum(one.ru_stime for one in used)


def make_crashes(folder: Path, count: int) -> None:
    """So many processes of one program die, each in a folder of its own."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    with cores_land_in_cwd():
        subprocess.run(
            [sys.executable, CRASHERS / "torch_many.py", str(count)],
            cwd=folder,
            check=True,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
        )


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Measure crashkit ci.")
    parser.add_argument("--crashes", type=int, default=24, help="how many are analyzed")
    parser.add_argument(
        "--cores", type=int, default=KINDS, help="of how many cores; each takes 200 MiB of disk, and is analyzed again and again"
    )
    options, _ = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory(prefix="crashkit-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        for part in ("artefacts", "scratch", "out"):
            (folder / part).mkdir()
        make_crashes(folder / "artefacts", options.cores)
        sizes: list[int] = []

        def done(result: Done) -> None:
            assert not result.entry.failed, result.entry.failed
            sizes.append(max(map(memory, workers()), default=0))

        began, before = time.monotonic(), processor_time()
        work = plan([(folder / "artefacts", "artefacts")], folder / "scratch")
        assert len(work.jobs) == options.cores, "each core is a crash of its own"
        again = islice(cycle(work.jobs), options.crashes)
        work = work._replace(jobs=tuple(replace(job, number=number) for number, job in enumerate(again, 1)))
        index = analyzed(work, Task(options=Options(), out=folder / "out"), PROCESSORS, done)
        wall = time.monotonic() - began
    user, system = (after - then for after, then in zip(processor_time(), before, strict=True))
    each = (user + system) / options.crashes
    seconds = each * MANY / PROCESSORS
    third = max(1, len(sizes) // 3)
    growth = max(sizes[-third:]) - max(sizes[:third])
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    print(f"{options.crashes} crashes of torch, {options.cores} cores, {len(index.groups)} groups: {wall:.1f} s")
    print(f"processor time, gdb's included: {user:.1f} s user, {system:.1f} s system, {each:.2f} s a crash")
    print(f"{MANY} of them on {PROCESSORS} processors: {seconds:.0f} s (goal: under {GOAL:.0f} s){'' if seconds < GOAL else ' MISSED'}")
    print(f"a worker: {max(sizes)} MiB, grown by {growth} MiB (goal: under {GROWTH}){'' if growth < GROWTH else ' MISSED'}; ", end="")
    print(f"the largest process: {peak} MiB")
    return 0 if seconds < GOAL and growth < GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
