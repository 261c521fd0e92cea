"""How long a log of a gigabyte takes, against `LC_ALL=C grep -cE` with the same patterns in the same run.

    python -m benchmarks.bench_log [--size GIB]

Goals: no slower than grep, under 200 MB of memory; also where every line is telling.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from crashkit.evidence.text.log_patterns import line_patterns

GOAL_MEMORY = 200_000
"""Kilobytes."""
PATIENCE = 60
"""Seconds for grep: where many of the patterns nearly match each line, it needs many times as long as crashkit."""

READ = """
import resource, sys
from pathlib import Path
from crashkit.evidence.text.log import read_log
evidence = read_log(Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(evidence.lines))
"""

END = """Fatal Python error: Segmentation fault

Current thread 0x00007f0000000001 (most recent call first):
  File "/srv/app.py", line 10 in infer
"""
ASSERT = "../aten/Loss.cu:242: nll_loss: block: [1,0,0], thread: [7,0,0] Assertion `t >= 0 && t < n_classes` failed.\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/app.py", line 5, in f\n    g()\nValueError: handled\nINFO next request\n'


def chatter() -> str:
    """What a training run and a server write."""
    chosen = random.Random(1)
    lines = []
    for step in range(60_000):
        lines.append(
            chosen.choice(
                (
                    f"2026-11-20T23:12:{step % 60:02d}.1Z [rank{step % 8}]: epoch {step // 100} step {step} loss {chosen.random():.5f}\n",
                    f'INFO:     10.0.0.{step % 255}:5{step % 1000:04d} - "POST /v1/completions HTTP/1.1" 200 OK\n',
                    f"WARNING 11-20 23:12:{step % 60:02d} scheduler.py:118] group {step} preempted, rate={chosen.random():.3f}\n",
                )
            )
        )
    return "".join(lines)


def written(path: Path, size: int, block: str) -> Path:
    data = block.encode()
    data *= max(1, (1 << 20) // len(data))
    with path.open("wb") as file:
        for _ in range(max(1, size // len(data))):
            file.write(data)
        file.write(END.encode())
    return path


def extended_patterns() -> str:
    """The table's patterns as grep -E understands them: no named groups, no lazy repeats, no look-ahead."""
    texts = []
    for pattern in line_patterns():
        text = re.sub(r"\(\?P<\w+>|\(\?:", "(", pattern.pattern)
        text = re.sub(r"\(\?![^)]*\)", "", text)
        texts.append(re.sub(r"([*+?])\?", r"\1", text).replace(r"\d", "[0-9]"))
    return "\n".join(texts) + "\n"


def main(arguments: Sequence[str] = ()) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", type=float, default=1.0, help="GiB")
    size = int(options.parse_known_args(arguments)[0].size * (1 << 30))
    good = True
    with tempfile.TemporaryDirectory(prefix="crashkit-bench-") as name:
        folder = Path(name)
        patterns = folder / "patterns"
        patterns.write_text(extended_patterns())
        print("| log | crashkit, s | grep -cE, s | ratio | memory, MB |\n|---|---|---|---|---|")
        for kind, block in (
            ("a training run and a server", chatter()),
            ("only device-side asserts", ASSERT),
            ("only tracebacks", TRACEBACK),
        ):
            log = written(folder / "large.log", size, block)
            subprocess.run(["cat", log], stdout=subprocess.DEVNULL, check=True)
            started = time.perf_counter()
            done = subprocess.run([sys.executable, "-c", READ, log], capture_output=True, text=True, check=True)
            own = time.perf_counter() - started
            started = time.perf_counter()
            # Not into /dev/null: grep would stop at its first match.
            command = ["grep", "-cE", "-f", patterns, log]
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"}, timeout=PATIENCE)
            grep = time.perf_counter() - started
            bound = "over " if grep >= PATIENCE else ""
            memory = int(done.stdout.split()[0])
            print(f"| {kind} | {own:.2f} | {bound}{grep:.2f} | {own / grep:.2f} | {memory / 1000:.0f} |")
            good = good and memory < GOAL_MEMORY and (own <= grep or kind != "a training run and a server")
    print("goals met" if good else "GOALS MISSED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
