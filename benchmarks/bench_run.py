"""What `crashkit run` costs the command that it runs, against the bare command in the same run.

    python -m benchmarks.bench_run [--write] [--rounds N]

`--write` puts the table into docs/run.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "run.md"
START_GOAL = 0.15
"""Seconds."""
SHARE_GOAL = 0.01

# Two processes that compute, one of them with threads; each writes a line to stderr every 10 ms, as a busy server does.
WORK = """
import os, sys, threading, time
never = threading.Event()
for _ in range(20): threading.Thread(target=never.wait, daemon=True).start()
child = os.fork()
count, line = 0, time.perf_counter()
end = time.process_time() + float(sys.argv[1])
while time.process_time() < end:
    count += sum(range(2000))
    if time.perf_counter() > line:
        line += 0.01
        os.write(2, b"127.0.0.1 - - \\"GET /index.html HTTP/1.1\\" 200 -\\n")
if child: os.waitpid(child, 0)
os._exit(0)
"""


class Row(NamedTuple):
    what: str
    value: str
    goal: str
    met: bool


def run(command: list[str], home: str) -> tuple[float, float, str]:
    """Wall seconds, CPU seconds of everything, and stdout."""
    environment = {**os.environ, "CRASHKIT_HOME": home, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed crashkit is compiled
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.time()
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.time() - began, cpu, result.stdout


def starts(prefix: list[str], home: str) -> float:
    """Seconds from our call to the command's own first act: telling the time."""
    began = time.time()
    return float(run([*prefix, "date", "+%s.%N"], home)[2]) - began


def measure(rounds: int) -> list[Row]:
    ours = [sys.executable, "-m", "crashkit", "run", "--"]
    with tempfile.TemporaryDirectory(prefix="crashkit-bench-") as home:
        starts(ours, home)  # compiles
        late = min(starts(ours, home) for _ in range(rounds * 3)) - min(starts([], home) for _ in range(rounds * 3))
        whole = min(run([*ours, "true"], home)[0] for _ in range(rounds * 3)) - min(run(["true"], home)[0] for _ in range(rounds * 3))
        work = [sys.executable, "-c", WORK, "5"]
        nothing = min(run([*ours, "true"], home)[1] for _ in range(rounds)) - min(run(["true"], home)[1] for _ in range(rounds))
        pairs = [(run(work, home), run([*ours, *work], home)) for _ in range(rounds)]
    bare_cpu, ours_cpu = min(bare[1] for bare, _ in pairs), min(ours[1] for _, ours in pairs)
    share = max(0.0, ours_cpu - bare_cpu - nothing) / bare_cpu
    wall = min(ours[0] for _, ours in pairs) - whole
    bare_wall = min(bare[0] for bare, _ in pairs)
    return [
        Row("start of the command, later by", f"{late:.3f} s", f"{START_GOAL} s", late <= START_GOAL),
        Row("`true`, start to end, longer by", f"{whole:.3f} s", f"{START_GOAL} s", whole <= START_GOAL),
        Row("steady state: processor time, more by", f"{share:.2%}", f"{SHARE_GOAL:.0%}", share <= SHARE_GOAL),
        # Wall time drifts by more than a percent on a shared machine, so it is shown and not judged.
        Row("steady state: wall time, more by", f"{max(0.0, wall / bare_wall - 1):.2%}", "-", True),
    ]


def table(rows: list[Row]) -> str:
    machine = (
        f"{datetime.date.today()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    )
    lines = [f"Measured {machine}.", "", "| `crashkit run` against the bare command | | goal | |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {row.what} | {row.value} | {row.goal} | {'met' if row.met else '**missed**'} |" for row in rows)])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    options, _ = parser.parse_known_args(arguments)
    rows = measure(options.rounds)
    text = table(rows)
    print(text, flush=True)
    if options.write:
        marks = re.compile(r"(?s)(<!-- run: begin -->\n).*(<!-- run: end -->)")
        PAGE.write_text(marks.sub(lambda match: f"{match[1]}{text}\n{match[2]}", PAGE.read_text()))
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
