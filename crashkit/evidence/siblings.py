"""Other processes of the run whose end is analyzed: what `crashkit run` took of them while they lived."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from crashkit.attempt import failed
from crashkit.crashfolder.manifest import OTHERS, Manifest, read_manifest
from crashkit.errors import EvidenceError
from crashkit.evidence.core.core import Core, open_core
from crashkit.evidence.input import Input, open_input
from crashkit.evidence.job.survey import core_of
from crashkit.model import Crash, PythonFrame, Sibling, SoftError, Thread

MOST = 64
"""A few tenths of a second each."""
_MOST_THREADS = 100

Preview = Callable[[Core, Input], Crash]
"""Reads the Python stacks of a core; what reads memory is above this package."""


class Found(NamedTuple):
    """The other processes, and what could not be read of them."""

    siblings: tuple[Sibling, ...]
    soft_errors: tuple[SoftError, ...]


def of_folder(folder: Path, manifest: Manifest, preview: Preview) -> Found:
    """Those in a crash folder. Processes that died have a report of their own, or are in that of their job."""
    siblings: list[Sibling] = []
    errors: list[SoftError] = []
    names = manifest.get("others", [])
    for name in names[:MOST]:
        own = read_manifest(folder / OTHERS / name)
        if own is None or not own.get("alive"):
            continue
        try:
            threads = _threads(folder / OTHERS / name, preview)
        except EvidenceError:
            threads = ()  # nothing could be taken of it: its manifest says why
        except Exception as error:
            errors.append(failed("siblings", f"the reader of {OTHERS}/{name}", error))
            threads = ()
        siblings.append(
            Sibling(
                pid=own.get("namespace_pid") or own.get("pid"),
                argv=tuple(own.get("argv", ())),
                why=own["alive"],
                folder=f"{OTHERS}/{name}",
                threads=threads,
            )
        )
    if len(names) > MOST:
        errors.append(SoftError(stage="siblings", message=f"{len(names) - MOST} more processes were left out"))
    return Found(tuple(siblings), tuple(errors))


def _threads(folder: Path, preview: Preview) -> tuple[Thread, ...]:
    """Raises EvidenceError if there is no core."""
    path = core_of(folder)
    with open_input(path) as source:
        core = open_core(source.file, path, source.size)
        if core is None:
            raise EvidenceError(f"{path} is not a core", "The process could not be examined.")
        crash = preview(core, source)
    pid = crash.process.pid if crash.process is not None else None
    running = [thread for thread in crash.threads if thread.python_frames]
    running.sort(key=lambda thread: thread.tid != pid)
    kept = running[:_MOST_THREADS]
    return tuple(Thread(tid=thread.tid, name=thread.name, python_frames=tuple(map(_bare, thread.python_frames))) for thread in kept)


def _bare(frame: PythonFrame) -> PythonFrame:
    return replace(frame, locals={}, args=())
