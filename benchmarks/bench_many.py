"""What `crashkit analyze` costs where a process has much of something: greenlets, asyncio tasks, threads of PyTorch, memory of JAX.

    python -m benchmarks.bench_many [--write] [--rounds N] [--only CASE,CASE]

Goals are ratios: against gdb and PyStack on the same core in the same run or, for greenlets and tasks, which neither sees, against the
same program with ten of them. `--write` puts the table into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Optional

import pytest

from benchmarks.bench_analyze import PROGRAM, Cost, Row, best, crashkit, gdb, made, measure, pystack, ratio, report, run, show
from tests.crashes import Interpreter
from tests.packages import folder_with

GREENLETS = """
import ctypes, sys
sys.path.insert(0, sys.argv[2])
import greenlet
def deep(depth, target):
    return deep(depth - 1, target) if depth else target.switch()
main = greenlet.getcurrent()
kept = [greenlet.greenlet(deep) for _ in range(int(sys.argv[1]))]
for one in kept:
    one.switch(10, main)
ctypes.string_at(16)
"""

TASKS = """
import asyncio, ctypes, sys
async def fetch(number, gate):
    await parse(gate)
async def parse(gate):
    await gate.wait()
async def main(count):
    gate = asyncio.Event()
    tasks = [asyncio.create_task(fetch(number, gate)) for number in range(count)]
    await asyncio.sleep(0)
    ctypes.string_at(16)
asyncio.run(main(int(sys.argv[1])))
"""

TORCH = """
import ctypes, sys, threading
import torch
torch.set_num_threads(1)
arrived, never = threading.Semaphore(0), threading.Event()
class Waits(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        return values.clone()
    @staticmethod
    def backward(ctx, gradient):
        arrived.release()
        never.wait()
def work():
    values = torch.ones(8, requires_grad=True)
    Waits.apply(values * 2).sum().backward()
for _ in range(int(sys.argv[1])):
    threading.Thread(target=work, daemon=True).start()
for _ in range(int(sys.argv[1])):
    arrived.acquire()
ctypes.string_at(16)
"""
"""Threads that wait in Python below the autograd engine: their stacks go through libtorch."""

JAX = """
import ctypes, sys, threading
sys.path.insert(0, sys.argv[2])
import jax, jax.numpy
kept = [jax.numpy.full((64 << 20,), number, dtype="float32").block_until_ready() for number in range(1, 4 * int(sys.argv[3]) + 1)]
total = jax.jit(lambda values: (values * 2).sum())
arrived, never = threading.Semaphore(0), threading.Event()
def work():
    total(kept[0][:1024]).block_until_ready()
    arrived.release()
    never.wait()
for _ in range(int(sys.argv[1])):
    threading.Thread(target=work, daemon=True).start()
for _ in range(int(sys.argv[1])):
    arrived.acquire()
ctypes.string_at(16)
"""

FEW = 10
MOST_TO_TEN = 5.0
"""How much longer a thousand or ten thousand may take than ten: all of them are in the report."""


def of_package(name: str) -> Optional[Path]:
    """Where the package is installed for this interpreter, or nothing where it cannot be had."""
    try:
        return folder_with(Interpreter(PROGRAM, sys.version_info[:3], has_debug_info=True), name)
    except pytest.skip.Exception:
        return None


def grown_rows(folder: Path, rounds: int, what: str, script: str, many: int, arguments: Sequence[str] = ()) -> Iterator[Row]:
    """The same program with ten of them and with many."""
    costs: dict[int, Cost] = {}
    for count in (FEW, many):
        core = made(folder, f"{what}-{count}", script, str(count), *arguments)
        costs[count] = measure(crashkit(core), rounds)
        told = json.loads((core.with_name("report") / "report.json").read_bytes())
        shown, late = len(told.get(what, ())), [one for one in told.get("soft_errors", ()) if "took too long" in one["message"]]
        text = f"{show(costs[count])}, {shown:,} in the report; gdb {show(measure(gdb(core), 1))}; PyStack {tried(pystack(core))}"
        yield Row(f"{count:,} {what}, core of {core.stat().st_size / (1 << 20):.0f} MiB", text, "all of them", shown > count and not late)
        core.unlink()
    yield ratio(f"wall, {many:,} against {FEW} {what}", costs[many].seconds, costs[FEW].seconds, MOST_TO_TEN)
    yield ratio(f"peak memory, {many:,} against {FEW} {what}", costs[many].memory, costs[FEW].memory, 3)


def greenlet_rows(folder: Path, rounds: int) -> Iterator[Row]:
    package = of_package("greenlet")
    if package is None:
        yield Row("1,000 greenlets", "greenlet cannot be installed", "", False)
        return
    yield from grown_rows(folder, rounds, "greenlets", GREENLETS, 1000, [str(package)])


def against_rows(core: Path, what: str, rounds: int, wall: float, memory: float) -> Iterator[Row]:
    turns = [(run(crashkit(core)), run(gdb(core))) for _ in range(rounds)]
    ours, theirs = best([one for one, _ in turns]), best([other for _, other in turns])
    size = f"{core.stat().st_size / (1 << 20):,.0f} MiB"
    yield Row(f"{what}, {size}", f"crashkit {show(ours)}; gdb {show(theirs)}; PyStack {tried(pystack(core))}", "", True)
    yield ratio(f"{what}: wall against gdb", ours.seconds, theirs.seconds, wall)
    yield ratio(f"{what}: peak memory of the largest process against gdb", ours.memory, theirs.memory, memory)


def torch_rows(folder: Path, rounds: int) -> Iterator[Row]:
    core = made(folder, "torch-64", TORCH, "64")
    yield from against_rows(core, "torch, 64 threads", rounds, 0.8, 0.25)


def jax_rows(folder: Path, rounds: int) -> Iterator[Row]:
    package = of_package("jax")
    if package is None:
        yield Row("JAX, 5 GiB, 80 threads", "jax cannot be installed", "", False)
        return
    core = made(folder, "jax", JAX, "80", str(package), "5")
    run(crashkit(core))  # the kernel may have given the file's pages away
    yield from against_rows(core, "JAX, 80 threads", rounds, 0.5, 0.25)


def tried(command: Sequence[str | Path]) -> str:
    """What it cost, or that it failed: PyStack does on some cores."""
    try:
        return show(run(command))
    except RuntimeError:
        return "fails"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Measure crashkit analyze on processes with many greenlets, tasks or threads.")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="greenlets,tasks,torch,jax")
    options, _ = parser.parse_known_args(arguments)
    cases: dict[str, Callable[[Path], Iterator[Row]]] = {
        "greenlets": partial(greenlet_rows, rounds=options.rounds),
        "tasks": partial(grown_rows, rounds=options.rounds, what="tasks", script=TASKS, many=10_000),
        "torch": partial(torch_rows, rounds=options.rounds),
        "jax": partial(jax_rows, rounds=options.rounds),
    }
    return report("many", cases, options)


if __name__ == "__main__":
    sys.exit(main())
