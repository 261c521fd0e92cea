"""What the supervisor hands to the process that keeps a crash."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.collect.host.core_pattern import CorePattern
from crashkit.collect.host.snapshot import ProcessSnapshot
from crashkit.collect.supervise.core_watch import CoreFile
from crashkit.crashfolder.manifest import Killed
from crashkit.crashfolder.store import Retention, Store
from crashkit.crashfolder.work import Work


class Sighting(NamedTuple):
    """A crash as the supervisor saw it."""

    when: float
    """Seconds since the epoch."""
    pid: int
    start: int
    signal: int
    """0 if only the log shows the crash."""
    core_dumped: bool
    is_command: bool
    process: Optional[ProcessSnapshot]
    core: Optional[CoreFile]
    stderr: bytes
    killed: Optional[Killed]
    notes: tuple[str, ...] = ()
    exit_status: int = 0
    """Of a command that ended by itself: a crash only if the end of its stderr is a known failure."""
    alive: Optional[str] = None
    """Why a living process was looked at; what it showed is in the folder of the run (`live_evidence`)."""
    others: tuple[Sighting, ...] = ()
    """Who died of the same cause, and who lived then: one incident, with this one at its head."""
    error_file: bytes = b""
    """What torch's `@record` wrote of the exception that ended it."""

    @property
    def rank(self) -> Optional[int]:
        """Its rank, if it is a process of a job."""
        return self.process.rank if self.process is not None else None


class RunSettings(NamedTuple):
    """Settings for the whole run."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    """The environment of the command."""
    store: Store
    pattern: CorePattern
    capture: str
    inbox: Work
    """The folder of this run, where cores arrive."""
    gpu_folder: Optional[Path]
    began: float
    """Seconds since the epoch."""
    began_monotonic: float
    limits: Mapping[str, tuple[int, int]]
    """See `all_limits`: those of the command."""
    retention: Retention
    keep_core: bool
    compress: bool
    on_crash: Optional[str]
    analyze: bool
    show_secrets: bool = False
    """Keep logs, arguments and variables as they are, and show them in the report."""
    locals: bool = True
    """Report the values of arguments and local variables."""
    on_exit: bool = True
    """Report a command that ends by itself with an error that is a known failure, such as a CUDA error."""
    history: Optional[str] = None
    """Its address, if it is not the store's own."""
    minimal: bool = False
    """Of a core that was analyzed, keep only the memory that its report needs."""
    kept: Optional[Path] = None
    """A file to which the folder of each crash is added, one a line, once its analysis has ended."""


def taken_of(pid: int) -> tuple[str, str]:
    """The files in the folder of the run that hold what a living process showed: its core, and what else it told."""
    return f"live.{pid}.core", f"live.{pid}.json"


def say(text: str) -> None:
    """Print one line on stderr, in one write; errors are ignored."""
    with contextlib.suppress(OSError):
        os.write(2, f"crashkit: {text}\n".encode(errors="replace"))


def printable(text: str) -> str:
    """Untrusted text for a message."""
    return "".join(char if char.isprintable() else "?" for char in text)
