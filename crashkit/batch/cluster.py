"""Analyzes crashes on a Dask cluster, with the results of the pool: one for every job, whatever happens to the workers.

The workers must see the evidence and the folder of the reports under the same paths, and have the same crashkit. A job is sent as one
line and answered by one, as between the pool and its workers. A worker of Dask analyzes in a process of its own, which is the pool of one
that every machine has: a crash that kills it, or that hangs, costs neither the worker nor the other crashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from crashkit.batch.job import Done, Job, Task, decode_done, decode_job, decode_task, encode
from crashkit.batch.one import failed
from crashkit.errors import CrashkitError

_CONNECT_SECONDS = 20
_INSTALL = "pip install 'crashkit[dask]', here and where the workers are."


def on_cluster(jobs: Iterable[Job], task: Task, address: str) -> Iterator[Done]:
    """Do the jobs on the cluster of the scheduler at `address`; yields each result as it comes. Raises CrashkitError if it is away."""
    waiting = {job.number: job for job in jobs}
    if not waiting:
        return
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise CrashkitError("--scheduler needs Dask, which is not installed", _INSTALL) from error
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
    # OSError, ValueError for an address that is none, and what its transports raise.
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise CrashkitError(f"the Dask scheduler at {address} cannot be reached: {words[:300]}", "Check the address.") from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise CrashkitError(f"the Dask scheduler at {address} has no workers", "Start some: dask worker ADDRESS")
        line = encode(task)
        futures = {client.submit(_answer, line, encode(job), pure=False, retries=0): job for job in waiting.values()}
        for future in as_completed(futures, loop=client.loop):  # type: ignore[no-untyped-call]
            job = waiting.pop(futures[future].number)
            yield _result(future, job, task)
    for job in waiting.values():
        yield failed(job, task, "the Dask cluster is gone. Analyze it alone: crashkit analyze")


def _result(future: Any, job: Job, task: Task) -> Done:
    """What the worker answered, or what became of it."""
    try:
        return decode_done(future.result())
    # KilledWorker, CancelledError where the scheduler is gone, and whatever the worker's own installation raises.
    except Exception as error:
        words = " ".join(str(error).split())[:300]
        why = f"the Dask cluster could not analyze it ({type(error).__name__}: {words}). Analyze it alone: crashkit analyze"
        return failed(job, task, why)


def _answer(task: bytes, job: bytes) -> bytes:
    """On a worker: the job done, by a process of its own."""
    from crashkit.batch.pool import pooled

    (done,) = pooled([decode_job(job)], decode_task(task), 1)
    return encode(done)
