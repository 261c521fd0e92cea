"""How long the history takes with 10,000 crashes: `crashkit groups` as a command, and to record one more crash.

    python -m benchmarks.bench_history [--index URL]

Without --index, SQLite in a temporary folder, and PostgreSQL where a server program is installed. Goal: the groups in under a second.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from crashkit.history.record import record
from tests import postgres
from tests.history.conftest import entry

CRASHES = 10_000
GROUPS = 100
GOAL = 1.0
"""Seconds for `crashkit groups`, start to end."""
_TRIES = 5


def measured(kind: str, address: str, store: Path) -> bool:
    now = time.time()
    entries = [
        entry(at, at % GROUPS, seen=now - at * 200, cause="A null pointer was used", where=f"f{at % GROUPS} (app.py:1)")
        for at in range(CRASHES)
    ]
    began = time.perf_counter()
    record(address, entries, store)
    writing = time.perf_counter() - began
    began = time.perf_counter()
    record(address, [entry(CRASHES, 0)], store)
    one = time.perf_counter() - began
    environment = {**os.environ, "CRASHKIT_HOME": str(store), "CRASHKIT_INDEX": address}
    times = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "crashkit", "groups"], env=environment, capture_output=True, text=True, check=True)
        times.append(time.perf_counter() - began)
        assert len(done.stdout.splitlines()) == 51, done.stdout
    best = min(times)
    print(f"| {kind} | {best:.2f} | {one:.3f} | {writing:.2f} | {'met' if best < GOAL else 'MISSED'} |")
    return best < GOAL


def main(arguments: Sequence[str] = ()) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--index", help="another history, which must be empty")
    index = options.parse_known_args(arguments)[0].index
    print("| history | `crashkit groups`, s | one more crash, s | all 10,000 crashes, s | under 1 s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="crashkit-bench-") as name:
        store = Path(name)
        if index:
            return 0 if measured("as given", index, store) else 1
        good = measured("SQLite", str(store / "history.sqlite"), store)
        try:
            with postgres.server() as running:
                good = measured("PostgreSQL", running.emptied(), store) and good
        except pytest.skip.Exception as reason:
            print(f"no PostgreSQL: {reason}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
