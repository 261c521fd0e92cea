"""A real Dask cluster of processes: the results of the pool, and a lost worker loses no crash."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import pytest

from crashkit.batch.cluster import on_cluster
from crashkit.batch.job import Done, Job
from crashkit.batch.pool import pooled
from crashkit.errors import CrashkitError
from tests.batch.test_pool import LOG, jobs, task

distributed: Any = pytest.importorskip("distributed", reason="Dask is not installed: pip install '.[dask]'")

T = TypeVar("T")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", host="127.0.0.1", silence_logs=50
    ) as running:
        yield running


def told(results: dict[int, Done]) -> dict[int, tuple[object, ...]]:
    return {number: (one.entry.what, one.entry.stack, one.entry.evidence, one.entry.failed) for number, one in results.items()}


def test_the_results_are_those_of_the_pool(cluster: Any, tmp_path: Path) -> None:
    """Also of what cannot be analyzed."""
    made = jobs(tmp_path, 4)
    made[1].paths[0].write_text("nothing")
    on_it = {done.number: done for done in on_cluster(made, task(tmp_path), cluster.scheduler_address)}
    here = {done.number: done for done in pooled(made, task(tmp_path), 2)}
    assert sorted(on_it) == [1, 2, 3, 4] and told(on_it) == told(here)
    assert [number for number, one in on_it.items() if one.entry.failed] == [2]
    assert all((tmp_path / "out" / (one.entry.report or "")).exists() for one in on_it.values())


def test_a_lost_worker_loses_no_crash(cluster: Any, tmp_path: Path) -> None:
    """It is killed while it reads a crash; another one reads it again."""
    made = jobs(tmp_path, 3)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    made.append(Job(number=4, paths=(fifo,), shown=("shown/fifo",)))
    results: dict[int, Done] = {}
    thread = threading.Thread(
        target=lambda: results.update({done.number: done for done in on_cluster(made, task(tmp_path), cluster.scheduler_address)})
    )
    thread.start()
    with fifo.open("wb"):
        killed = reader_of(fifo)
        os.kill(worker_of(killed), signal.SIGKILL)
        os.kill(killed, signal.SIGKILL)
    # Open for both: what is written stays there until it is read.
    with fifo.open("r+b", buffering=0) as file:
        reader_of(fifo, killed)
        file.write(LOG.format(0x7F0000123000, 7).encode())
        until(lambda: not unread(file))
    thread.join(120)
    assert sorted(results) == [1, 2, 3, 4] and not any(one.entry.failed for one in results.values())
    assert results[4].entry.stack[0].line == 7


def reader_of(fifo: Path, former: int = 0) -> int:
    """The process that has it open, but for ours and a former one, once there is one: it is opened more than once."""
    found = until(lambda: next((pid for pid in readers(fifo) if pid != former), None))
    assert found is not None
    return found


def readers(fifo: Path) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*/fd"):
        pid = int(folder.parent.name)
        try:
            if pid != os.getpid() and any(one.readlink() == fifo for one in folder.iterdir()):
                yield pid
        except OSError:
            continue


def until(told: Callable[[], T]) -> T:
    """What is told, once it is something. The kernel tells of no open and no read."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        if found := told():
            return found
    raise AssertionError("nobody reads it")


def unread(fifo: IO[bytes]) -> int:
    return int.from_bytes(fcntl.ioctl(fifo, termios.FIONREAD, bytes(4)), sys.byteorder)


def worker_of(pid: int) -> int:
    """The worker of Dask that started the process which analyzes."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_cluster_that_is_away_is_told() -> None:
    made = [Job(number=1, paths=(Path("/x"),), shown=("x",))]
    with pytest.raises(CrashkitError, match="scheduler at nonsense://x cannot be reached"):
        list(on_cluster(made, task(Path("/tmp")), "nonsense://x"))


def test_a_cluster_without_workers_is_told(tmp_path: Path) -> None:
    with (
        distributed.LocalCluster(n_workers=0, processes=True, dashboard_address=":0", host="127.0.0.1", silence_logs=50) as empty,
        pytest.raises(CrashkitError, match="has no workers"),
    ):
        list(on_cluster(jobs(tmp_path, 1), task(tmp_path), empty.scheduler_address))
