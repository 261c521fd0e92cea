"""Takes what a living process shows into the folder of a run, for a report that is written later, when the process may be gone."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crashkit.collect import gpu_request
from crashkit.collect.live_core import take_core
from crashkit.collect.living import Watch, living
from crashkit.collect.supervise.sighting import taken_of
from crashkit.crashfolder.work import Work
from crashkit.errors import CrashkitError
from crashkit.stacks.living import as_json

_AT_ONCE = 8


def take(pids: Sequence[int], inbox: Work, prepare: bool) -> None:
    """Take the cores of these processes, all of them at nearly the same moment. What cannot be had is left out.

    `prepare`: see take_core.
    """
    _each(pids, lambda pid: _take(pid, inbox, prepare))


def take_gpu(pids: Sequence[int], folder: Path) -> None:
    """Have CUDA's driver write the GPU cores of these processes into the run's folder for them: they end of that."""
    _each(pids, lambda pid: gpu_request.ask(folder, pid))


def _each(pids: Sequence[int], do: Callable[[int], None]) -> None:
    """Do it for all of them at nearly the same moment.

    Each has a process of its own for that: of threads, one would wait for the other while both of theirs are stopped.
    """
    running: set[int] = set()
    for pid in pids:
        if len(running) >= _AT_ONCE:
            running.discard(os.wait()[0])
        child = os.fork()
        if child:
            running.add(child)
            continue
        try:
            do(pid)
        finally:
            os._exit(0)
    with contextlib.suppress(ChildProcessError):
        while running:
            running.discard(os.wait()[0])


def _take(pid: int, inbox: Work, prepare: bool) -> None:
    core, told = taken_of(pid)
    try:
        watch = Watch(pid)
        taken = take_core(pid, inbox.path / core, prepare=prepare)
        found: dict[str, Any] = as_json(living(pid, watch, taken.stopped_seconds))
        found["stopped"] = round(taken.stopped_seconds, 3)
        if taken.left_out:
            found["left_out"] = taken.left_out
    except (CrashkitError, OSError) as error:
        found = {"problem": str(error)}
    inbox.write(told, json.dumps(found).encode())
