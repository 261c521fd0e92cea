"""How long `crashkit analyze` takes and how much memory, against gdb and PyStack on the same cores in the same run.

    python -m benchmarks.bench_analyze [--write] [--rounds N] [--heaps 0.1,2,8] [--only CASE,CASE]

Goals are ratios, because machines differ and drift; only what somebody waits for is in seconds. `--write` puts the table into
docs/performance.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional

from tests.crashes import CRASHERS, crash

ROOT = Path(__file__).parent.parent
PERFORMANCE = ROOT / "docs" / "performance.md"
PYTHON = sys.executable
PROGRAM = Path(sys.executable).resolve()
GIB = 1 << 30

HEAP = """
import ctypes, mmap, sys
heap = mmap.mmap(-1, int(float(sys.argv[1]) * (1 << 30)))
for page in range(0, len(heap), mmap.PAGESIZE):
    heap[page] = 1 + page % 255
ctypes.string_at(16)
"""

THREADS = """
import ctypes, sys, threading
threading.stack_size(256 << 10)
arrived, never = threading.Semaphore(0), threading.Event()
def work(depth):
    if depth:
        return work(depth - 1)
    arrived.release()
    never.wait()
for _ in range(int(sys.argv[1])):
    threading.Thread(target=work, args=(10,), daemon=True).start()
for _ in range(int(sys.argv[1])):
    arrived.acquire()
ctypes.string_at(16)
"""


class Cost(NamedTuple):
    seconds: float
    memory: int
    """Peak of the largest process, in bytes."""
    answer: Optional[float] = None
    """Seconds to the first line on stderr or stdout that names the signal."""


@dataclass(frozen=True)
class Row:
    what: str
    value: str
    goal: str
    met: bool


def measure(command: Sequence[str | Path], rounds: int) -> Cost:
    return best([run(command) for _ in range(rounds)])


def best(costs: Sequence[Cost]) -> Cost:
    """The fastest of several runs; the memory of the leanest."""
    answers = [cost.answer for cost in costs if cost.answer is not None]
    return Cost(min(cost.seconds for cost in costs), min(cost.memory for cost in costs), min(answers) if answers else None)


def run(command: Sequence[str | Path], environment: Optional[Mapping[str, str]] = None) -> Cost:
    """One run, output read as it comes; `environment` adds variables. Raises RuntimeError where it fails."""
    variables = {**os.environ, **(environment or {})}
    started = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, env=variables)
    assert process.stdout
    answer = None
    output = b""
    while piece := os.read(process.stdout.fileno(), 1 << 16):
        output = (output + piece)[-1_000_000:]
        if answer is None and b"SIG" in output:
            answer = time.perf_counter() - started
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode:
        raise RuntimeError(
            f"{' '.join(map(str, command))} ended with status {process.returncode}: {output[-2000:].decode(errors='replace')}"
        )
    # Of the process and of all that it waited for, the largest.
    return Cost(seconds, usage.ru_maxrss * 1024, answer)


def crashkit(core: Path) -> list[str | Path]:
    return [PYTHON, "-m", "crashkit", "analyze", core, "--out", core.with_name("report")]


def gdb(core: Path) -> list[str | Path]:
    options = ["-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no"]
    return [shutil.which("gdb") or "gdb", *options, "-ex", "thread apply all bt", PROGRAM, core]


def pystack(core: Path) -> list[str | Path]:
    return [PYTHON, "-m", "pystack", "core", core, PROGRAM, "--native-all", "--locals"]


def made(folder: Path, name: str, script: str | Path, *arguments: str) -> Path:
    """The core of a script's crash."""
    place = folder / name
    place.mkdir()
    path = script if isinstance(script, Path) else place / "crash.py"
    if isinstance(script, str):
        path.write_text(script)
    core = crash([PYTHON, path, *arguments], place, {"PYTHONFAULTHANDLER": "1"}, PROGRAM).core
    os.sync()  # or the disk is busy writing it while it is read
    return core


def ratio(what: str, ours: float, theirs: float, most: float) -> Row:
    return Row(what, f"{ours / theirs:.2f}", f"at most {most}", ours <= most * theirs)


def show(cost: Cost) -> str:
    return f"{cost.seconds:.2f} s, {cost.memory / (1 << 20):.0f} MiB"


def torch_rows(folder: Path, rounds: int) -> Iterator[Row]:
    """Five threads of PyTorch on the CPU: half a million symbols."""
    core = made(folder, "torch", CRASHERS / "torch_lstm.py")
    # Taken in turns, so that a busy moment of the machine hits all alike.
    turns = [[run(command(core)) for command in (crashkit, gdb, pystack)] for _ in range(2 * rounds)]
    costs = {name: best([turn[index] for turn in turns]) for index, name in enumerate(("crashkit", "gdb", "PyStack"))}
    yield Row(
        f"torch core, {core.stat().st_size / (1 << 20):.0f} MiB",
        "; ".join(f"{name} {show(cost)}" for name, cost in costs.items()),
        "",
        True,
    )
    ours, theirs, pystacks = costs["crashkit"], costs["gdb"], costs["PyStack"]
    yield ratio("wall against gdb", ours.seconds, theirs.seconds, 0.25)
    yield ratio("peak memory of the largest process against gdb", ours.memory, theirs.memory, 0.25)
    yield ratio("wall against PyStack", ours.seconds, pystacks.seconds, 1.0)
    answer = ours.answer if ours.answer is not None else ours.seconds
    yield Row("first line of the answer", f"{answer:.2f} s", "at most 0.25 s", answer <= 0.25)
    # What gdb computed is kept from one analysis to the next: the first one on a machine has none of it.
    firsts = [run(crashkit(core), {"XDG_CACHE_HOME": str(folder / f"cache-{number}")}) for number in range(rounds)]
    yield Row("the first analysis, nothing kept yet", show(best(firsts)), "", True)


def heap_rows(folder: Path, rounds: int, heaps: Sequence[float]) -> Iterator[Row]:
    """Time and memory must not depend on the size of the core."""
    costs: dict[float, Cost] = {}
    for size in heaps:
        if shutil.disk_usage(folder).free < (size + 2) * GIB:
            yield Row(f"{size} GiB heap", "no room on the disk", "", False)
            continue
        core = made(folder, f"heap-{size}", HEAP, str(size))
        try:
            run(crashkit(core))  # the kernel may have given the file's pages away
            costs[size] = measure(crashkit(core), 2 * rounds)
            yield Row(f"{size} GiB heap", f"{show(costs[size])}; gdb {show(measure(gdb(core), 1))}", "", True)
        finally:
            core.unlink()
    if len(costs) > 1:
        least, most = costs[min(costs)], costs[max(costs)]
        yield ratio(f"wall, {max(costs)} against {min(costs)} GiB", most.seconds, least.seconds, 1.3)
        yield ratio(f"peak memory, {max(costs)} against {min(costs)} GiB", most.memory, least.memory, 1.3)


def thread_rows(folder: Path, rounds: int) -> Iterator[Row]:
    core = made(folder, "threads", THREADS, "500")
    cost = measure(crashkit(core), rounds)
    others = f"gdb {show(measure(gdb(core), 1))}; PyStack {show(measure(pystack(core), 1))}"
    yield Row("500 threads", f"{show(cost)}; {others}", "under 3 s", cost.seconds < 3)


def help_rows(folder: Path, rounds: int) -> Iterator[Row]:
    cost = measure([PYTHON, "-m", "crashkit", "--help"], rounds + 2)
    yield Row("`crashkit --help`", f"{cost.seconds:.3f} s", "under 0.2 s", cost.seconds < 0.2)


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    version = subprocess.run(["gdb", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    gdb_version = re.sub(r"\(.*\) ", "", version)
    system = f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}, {gdb_version}"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {system}"


def table(rows: Sequence[Row]) -> str:
    lines = ["| what | measured | goal | |", "|---|---|---|---|"]
    lines += [f"| {row.what} | {row.value} | {row.goal} | {'' if not row.goal else 'met' if row.met else '**missed**'} |" for row in rows]
    return "\n".join(lines)


def write(rows: Sequence[Row], section: str) -> None:
    """Put the table into docs/performance.md, between that section's marks."""
    text = PERFORMANCE.read_text()
    start, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    today = datetime.datetime.now(datetime.timezone.utc).date()
    fresh = f"{start}\nMeasured {today} on {machine()}.\n\n{table(rows)}\n{end}"
    PERFORMANCE.write_text(text[: text.index(start)] + fresh + text[text.index(end) + len(end) :])


def report(section: str, cases: Mapping[str, Callable[[Path], Iterator[Row]]], options: argparse.Namespace) -> int:
    """Measure those of the cases that the options select, print and perhaps write each row; the exit status."""
    rows: list[Row] = []
    # Cores of gigabytes do not belong into a /tmp that is memory.
    with tempfile.TemporaryDirectory(prefix="crashkit-bench-", dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        for name in options.only.split(","):
            for row in cases[name](Path(folder)):
                print(f"{row.what}: {row.value} {f'(goal: {row.goal})' if row.goal else ''}{'' if row.met else ' MISSED'}", flush=True)
                rows.append(row)
    if options.write:
        write(rows, section)
    return 0 if all(row.met for row in rows) else 1


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Measure crashkit analyze.")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--heaps", default="0.1,2,8", help="sizes in GiB")
    parser.add_argument("--only", default="help,torch,threads,heap")
    options, _ = parser.parse_known_args(arguments)
    heaps = [float(size) for size in options.heaps.split(",")]
    cases: dict[str, Callable[[Path], Iterator[Row]]] = {
        "help": lambda folder: help_rows(folder, options.rounds),
        "torch": lambda folder: torch_rows(folder, options.rounds),
        "threads": lambda folder: thread_rows(folder, options.rounds),
        "heap": lambda folder: heap_rows(folder, options.rounds, heaps),
    }
    return report("analyze", cases, options)


if __name__ == "__main__":
    sys.exit(main())
