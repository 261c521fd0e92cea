"""Processes that analyze crashes side by side. One that dies takes nothing with it: its crash is analyzed again, by another one."""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import IO, Optional

import msgspec

from crashkit import isolation
from crashkit.batch.job import Done, Job, Task, decode_done, encode
from crashkit.batch.one import failed

TRIES = 2
"""How often a crash is begun at most, if the worker dies with it."""
_SLACK = 60.0
"""Seconds that a crash may take beyond the debugger's time limit."""
_READ = 1 << 16
_LAST_WORDS = 300

Begun = Callable[[Job, int], None]
"""Called when a worker, of this process id, begins a job."""


def pooled(jobs: Iterable[Job], task: Task, workers: int, begun: Optional[Begun] = None) -> Iterator[Done]:
    """Do the jobs with so many workers; yields each result as it comes. Every job has one, whatever happens to its worker."""
    waiting = deque((job, 1) for job in jobs)
    pool: list[_Worker] = []
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or any(worker.job for worker in pool):
                while waiting and len(pool) < workers and len(pool) < len(waiting) + sum(worker.job is not None for worker in pool):
                    pool.append(_Worker(task))
                    selector.register(pool[-1].answers, selectors.EVENT_READ, pool[-1])
                for worker in pool:
                    if waiting and worker.job is None:
                        worker.begin(*waiting.popleft())
                        if begun and worker.job:
                            begun(worker.job, worker.pid)
                late = min((worker.ends for worker in pool if worker.job), default=0.0) - time.monotonic()
                for key, _ in selector.select(max(0.0, late)):
                    worker = key.data
                    result = worker.read()
                    if result is not None:
                        yield result
                    elif worker.ended:
                        selector.unregister(worker.answers)
                        pool.remove(worker)
                        yield from _lost(worker, waiting, task)
                for worker in pool:
                    if worker.job and time.monotonic() > worker.ends:
                        worker.kill()
        finally:
            for worker in pool:
                worker.close()


def _lost(worker: _Worker, waiting: deque[tuple[Job, int]], task: Task) -> Iterator[Done]:
    """A worker died: its job goes back, unless it has cost too many."""
    why = worker.close()
    if worker.job is None:
        return
    if worker.tries < TRIES and not worker.late:
        waiting.append((worker.job, worker.tries + 1))
        return
    yield failed(worker.job, task, why)


class _Worker:
    """One process. Raises OSError if it cannot be started."""

    def __init__(self, task: Task) -> None:
        self.job: Optional[Job] = None
        self.tries = 0
        self.ends = 0.0
        self.ended = False
        self.late = False
        self._limit = task.options.deadline + _SLACK
        self._rest = b""
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        code = f"import sys; sys.path += {isolation.module_path()!r}; from crashkit.batch.worker import main; main()"
        self._process = isolation.start(
            isolation.python("-c", code),
            keep=isolation.FOR_PYTHON,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self.answers: IO[bytes] = self._process.stdout
        self._requests: IO[bytes] = self._process.stdin
        self._send(encode(task))

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, job: Job, tries: int) -> None:
        self.job, self.tries, self.ends = job, tries, time.monotonic() + self._limit
        self._send(encode(job))

    def read(self) -> Optional[Done]:
        """The result, if all of it is there; None with `ended` set if there will be none."""
        piece = os.read(self.answers.fileno(), _READ)
        self.ended = not piece
        self._rest += piece
        if b"\n" not in self._rest:
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            result = decode_done(line)
        except msgspec.MsgspecError:
            self._process.kill()
            return None
        self.job = None
        return result

    def kill(self) -> None:
        """It takes too long; its end is read as that of one that died."""
        self.late = True
        self._process.kill()

    def close(self) -> str:
        """End the process; returns how it ended, in one sentence."""
        with suppress(OSError):
            self._requests.close()
        if self.job is not None:
            self._process.kill()
        status = self._process.wait()
        self.answers.close()
        self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, self._words.tell() - _LAST_WORDS))
        said = self._words.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        self._words.close()
        if self.late:
            return f"the analysis took more than {self._limit:.0f} s and was ended. Raise --timeout, or analyze it alone: crashkit analyze"
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return f"the analysis itself died ({how}{f': {said}' if said else ''}). Analyze it alone: crashkit analyze"

    def _send(self, line: bytes) -> None:
        # One that died shows it when its answer is read.
        with suppress(BrokenPipeError):
            self._requests.write(line)
            self._requests.flush()
