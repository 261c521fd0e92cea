"""Attaches to a live process: takes its core, lets it run on, and analyses what was taken."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Optional

from msgspec.structs import replace

from crashkit.collect.live_core import take_core
from crashkit.collect.living import Watch, living
from crashkit.errors import CollectError, EvidenceError
from crashkit.model import Crash, SoftError
from crashkit.pipeline import Options, analyze
from crashkit.scratch import Scratch


def attach(pid: int, options: Options, keep: Optional[Path] = None) -> Crash:
    """The report of a running process. `keep`: a new file for the core that is taken of it.

    Raises EvidenceError if there is no such process or looking at it is not permitted, CollectError if the core cannot be written.
    """
    if pid == os.getpid():
        raise EvidenceError("a process cannot attach to itself", "Run `crashkit attach` from another process.")
    watch = Watch(pid)
    with Scratch("attach") as folder:
        path = keep if keep is not None else folder / f"core.{pid}"
        try:
            taken = take_core(pid, path)
        except OSError as error:
            raise CollectError(
                f"cannot write a core to {path}: {error.strerror}", "Choose a new file on a disk with enough space."
            ) from error
        seen = living(pid, watch, taken.stopped_seconds)
        crash = analyze(path, options=replace(options, sysroot=options.sysroot or _root(pid)), living=seen)
    notes = [SoftError(stage="attach", message=message, hint=hint) for message, hint in _missing(taken.left_out, taken.unstopped)]
    seconds = {"stopped": round(taken.stopped_seconds, 3), **crash.seconds}
    return replace(crash, soft_errors=(*notes, *crash.soft_errors), seconds=seconds)


def _missing(left_out: int, unstopped: tuple[int, ...]) -> list[tuple[str, str]]:
    found = []
    if left_out:
        message = f"{left_out >> 20:,} MiB of the process's memory were not copied, so as not to stop the process for longer"
        found.append((message, "To get it all, run gcore PID, which stops the process until the core is written."))
    if unstopped:
        tids = ", ".join(map(str, unstopped[:5]))
        found.append(
            (
                f"threads that could not be stopped, because they are in system calls of a disk or a driver: {tids}",
                "As root, run: cat /proc/PID/task/TID/stack",
            )
        )
    return found


def _root(pid: int) -> Optional[Path]:
    """The root folder of the process if it sees other files than we do, as in a container."""
    root = Path(f"/proc/{pid}/root")
    with suppress(OSError):
        if not root.samefile("/") or os.stat(f"/proc/{pid}/ns/mnt").st_ino != os.stat("/proc/self/ns/mnt").st_ino:
            return root
    return None
