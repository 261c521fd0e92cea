"""How long GPU cores take: real ones, one of 45 MB, and a full dump of a gigabyte.

    python -m benchmarks.bench_gpu --write

The dump of a gigabyte is a recorded full one, one of whose allocations was made as large; nothing with so much memory is recorded. That of
45 MB is a recorded one of torch, with as much code as it had before it was reduced.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from benchmarks.bench_analyze import Row, crashkit, measure, report, show
from crashkit.evidence.gpu import layout
from crashkit.stacks.launch import launched_from
from tests.gpu_cores import data, gpu, side

REAL = ("torch_embedding-blocking", "asserts-full")
JOINED = "torch_cross_entropy"
_MIB = 1 << 20
_USUAL = 45 << 20


def enlarged(path: Path, name: str, kind: int, size: int) -> None:
    """The dump with the largest of its sections of a kind grown to `size`: moved to the end of the file, with zeros behind it."""
    raw = bytearray(data(name))
    table, count = struct.unpack_from("<Q", raw, 40)[0], struct.unpack_from("<H", raw, 60)[0]
    rows = [table + 64 * number for number in range(count)]
    of_kind = (row for row in rows if struct.unpack_from("<I", raw, row + 4)[0] == kind)
    chosen = max(of_kind, key=lambda row: struct.unpack_from("<Q", raw, row + 32)[0])
    start, before = struct.unpack_from("<QQ", raw, chosen + 24)
    end = -(-len(raw) // 4096) * 4096
    struct.pack_into("<QQ", raw, chosen + 24, end, size)
    path.write_bytes(bytes(raw) + bytes(end - len(raw)) + bytes(raw[start : start + before]))
    with path.open("r+b") as file:
        file.truncate(end + size)


def one(path: Path, what: str, seconds: float, rounds: int) -> Row:
    cost = measure(crashkit(path), rounds)
    text = f"{what}, {path.stat().st_size / _MIB:,.0f} MiB"
    return Row(text, show(cost), f"under {seconds:g} s, 300 MiB", cost.seconds < seconds and cost.memory < 300 * _MIB)


def dump_rows(folder: Path, rounds: int) -> Iterator[Row]:
    for name in REAL:
        path = folder / f"{name}.nvcudmp"
        path.write_bytes(data(name))
        yield one(path, f"GPU core `{name}`", 1, rounds)
    usual = folder / "usual.nvcudmp"
    enlarged(usual, "torch_cross_entropy", layout.RELOCATED_IMAGE, _USUAL - len(data("torch_cross_entropy")))
    yield one(usual, "GPU core of torch, enlarged", 1, rounds)
    large = folder / "large.nvcudmp"
    enlarged(large, "beyond-full", layout.GLOBAL_MEMORY, 1 << 30)
    yield one(large, "full GPU core, enlarged", 5, rounds)


def join_rows() -> Iterator[Row]:
    core, crash = gpu(JOINED), side(JOINED)
    began = time.perf_counter()
    launched_from(core, crash.threads, {})
    seconds = time.perf_counter() - began
    yield Row(f"the join with {len(crash.threads)} threads of torch", f"{seconds:.4f} s", "under 0.3 s", seconds < 0.3)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Measure crashkit analyze on GPU cores.")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="dumps,join")
    options, _ = parser.parse_known_args(arguments)
    cases = {"dumps": lambda folder: dump_rows(folder, options.rounds), "join": lambda folder: join_rows()}
    return report("gpu", cases, options)


if __name__ == "__main__":
    sys.exit(main())
