"""`python -m benchmarks [--write]`: every bench_*.py of this folder, one behind the other; fails where one missed its goals.

Each is a process of its own: the largest child that one of them had (getrusage(2)) is not the next one's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    modules = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))
    statuses: list[int] = []
    for name in modules:
        print(f"benchmarks.{name}", flush=True)
        statuses.append(subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *arguments], check=False).returncode)
    return max(map(abs, statuses), default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
