"""One piece of evidence that a run left, with the facts by which it is joined with others of the same crash."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Optional


class Facts(NamedTuple):
    """Whatever tells whose crash this is. Empty or None: not known."""

    pids: frozenset[int] = frozenset()
    tids: frozenset[int] = frozenset()
    idents: frozenset[int] = frozenset()
    """pthread identifiers, by which faulthandler names threads."""
    signal: Optional[str] = None
    executable: Optional[str] = None
    time: Optional[float] = None
    """When the file was written, in seconds since the epoch."""
    has_stack: bool = False


class Artefact(NamedTuple):
    """A core, a GPU core, a crash folder, a bundle, or one crash of a log."""

    kind: str
    """core, gpu-core, folder, bundle, log, junit (the output of failed tests)."""
    path: Path
    """Where it can be read."""
    shown: str
    """What the user calls it: the path as given, and for a member of an archive `archive!member`."""
    facts: Facts = Facts()
    lines: Optional[tuple[int, int]] = None
    """First and last line, where a log holds several crashes."""

    @property
    def place(self) -> str:
        """The folder that it lies in, as the user calls it."""
        return self.shown.rpartition("/")[0]


class NodeId(NamedTuple):
    """A test that was running when its process died, as a log or a JUnit file names it."""

    name: str
    """Such as tests/test_io.py::TestRead::test_it[1]."""
    shown: str
    """The file that says so."""
    worker: Optional[str] = None
    """Such as gw3."""
