"""What the pool is asked, and what it answers: the messages between it and its workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Optional

import msgspec

from crashkit.history.entry import Entry as Recorded
from crashkit.pipeline import Options
from crashkit.prepared import prepared
from crashkit.report.index.document import Entry, compact


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """What a history says of each crash of a run."""

    place: str
    """The run, and with a crash's number and evidence after it, the crash."""
    host: str
    release: str = ""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for all crashes of a run."""

    options: Options
    out: Path
    """Where reports are written: one numbered folder a crash."""
    repository: Optional[Path] = None
    recording: Optional[Recording] = None
    """None: no history is asked for."""


class Node(msgspec.Struct, frozen=True):
    """A test that was running when a process died."""

    name: str
    shown: str


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One crash to analyze."""

    number: int
    paths: tuple[Path, ...]
    shown: tuple[str, ...]
    """What the user calls each path."""
    threads: tuple[int, ...] = ()
    """As `Options.threads`."""
    signal: str = ""
    """By which it ended, and below the program: as far as they are known before it is analyzed."""
    executable: str = ""
    nodes: tuple[Node, ...] = ()

    @property
    def name(self) -> str:
        """The folder of its report below `crashes`."""
        return f"{self.number:04d}"


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A job's result."""

    number: int
    entry: Entry
    recorded: Optional[Recorded] = None
    """What a history keeps of it, if one is asked for."""
    seconds: float = 0.0


def encode(message: Any) -> bytes:
    """One line."""
    return compact(message, _encode) + b"\n"


def decode_task(line: bytes) -> Task:
    """What `encode` made of a Task."""
    return msgspec.json.decode(line, type=prepared(Task), dec_hook=_decode)


def decode_job(line: bytes) -> Job:
    """What `encode` made of a Job."""
    return msgspec.json.decode(line, type=prepared(Job), dec_hook=_decode)


def decode_done(line: bytes) -> Done:
    """What `encode` made of a Done. Raises msgspec.MsgspecError."""
    return msgspec.json.decode(line, type=prepared(Done))


def _encode(value: Any) -> Any:
    if isinstance(value, Path):
        return os.fsencode(value).hex()  # a file's name may be any bytes
    raise NotImplementedError(type(value).__name__)


def _decode(kind: type, value: Any) -> Any:
    if issubclass(kind, Path):
        return Path(os.fsdecode(bytes.fromhex(value)))
    raise NotImplementedError(kind.__name__)
