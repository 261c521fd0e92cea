"""`python -m benchmarks [--write]`: every bench_*.py of this folder, one behind the other; fails where one missed its goals."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    modules = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))
    return max([importlib.import_module(f"benchmarks.{name}").main(arguments) for name in modules], default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
