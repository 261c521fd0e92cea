"""The contract of multi-line text formats: between `log`, which reads the file, and one module per format.

A format is a `Format` in the list of `formats`. For each text that its `opens` recognises there is one `Reader`, which is
fed the lines of one process. At the end of the log, `tells` summarises all texts of the format.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, Literal, NamedTuple, Optional, TypeVar

from crashkit.model import PythonRuntime, SoftError, Thread

Stacks = Literal["native", "python"]
"""native: stacks of the process's threads, to which Python frames can be added; python: such Python frames, by pthread identifier."""


class Note(NamedTuple):
    """A significant line that summarises a multi-line text."""

    text: str
    kind: str
    fields: Mapping[str, str] = {}
    classified: bool = False
    """True if the table of log lines may give it a more specific kind and more fields."""
    behind: int = 0
    """At which line of the text it stands, counted from the first one; only of readers that quote lines (`Reader.quotes`)."""


class Reader(ABC):
    """Reads one multi-line text."""

    ended = False
    """True once the last line of the text was fed."""
    quotes = False
    """Whether its notes stand at lines of their own (`Note.behind`), and not at the first one of the text."""

    @property
    def process(self) -> Optional[int]:
        """The number of the only process that the text is about, where it is all that tells of its crash: a text with another one, too."""
        return None

    @property
    def crashed_threads(self) -> frozenset[int]:
        """Identifiers of the threads in a text that a dying process printed; they differ from process to process."""
        return frozenset()

    @property
    def crashed_stack(self) -> tuple[tuple[Optional[str], Optional[int]], ...]:
        """File and line of each Python frame of the thread that crashed, in such a text."""
        return ()

    @abstractmethod
    def feed(self, text: str) -> bool:
        """Take the next line of the process, without prefixes and indentation; return False if it is not part of this text."""

    def finish(self) -> Optional[Iterable[Note]]:
        """Called after the last line: the notes to keep, or None to discard the text."""
        return ()


class Telling(IntEnum):
    """How informative stacks are: of several formats in one log, the highest one is shown."""

    NOTHING = 0
    EXCEPTION = 1
    """The stack of an exception that did not necessarily end the process."""
    FATAL_MESSAGE = 2
    """A fatal error without a stack."""
    THREADS = 3
    """Thread stacks of a process that did not necessarily die."""
    REPORT = 4
    """The stack of an error that a sanitizer found."""
    FATAL_THREADS = 5
    """The stacks of a process that died."""
    NATIVE_THREADS = 6
    """Thread stacks from a debugger, native frames included."""


class Account(NamedTuple):
    """Summary of all the texts of one format in one log."""

    telling: Telling = Telling.NOTHING
    threads: tuple[Thread, ...] = ()
    stacks: Optional[Stacks] = None
    signal: Optional[int] = None
    """The signal that ended the process."""
    python: Optional[PythonRuntime] = None
    is_evidence: bool = False
    """True if the texts show a crash even if no single line is significant."""
    soft_errors: tuple[SoftError, ...] = ()


def threads_left_out(count: int) -> tuple[SoftError, ...]:
    """The soft error for a text with more threads than are read."""
    return (SoftError(stage="log", message=f"{count:,} more threads of the text were left out"),) if count else ()


_R = TypeVar("_R", bound=Reader)


class Body(NamedTuple):
    """What a text of a format is known by, in a short text, where its head was cut off."""

    frame: re.Pattern[str]
    """One of its frames, at the beginning of a line (re.MULTILINE)."""
    head: str
    """What stands above the frames of every whole one."""
    reader: Callable[[], Reader]
    """A reader that has taken a head."""


def _nothing(texts: Sequence[object]) -> Account:
    return Account()


@dataclass(frozen=True)
class Format(Generic[_R]):
    """One format of multi-line text."""

    openers: tuple[str, ...]
    """Every first line contains one of these texts; this makes searching gigabytes fast."""
    opens: Callable[[str], Optional[_R]]
    """Returns a reader that has taken this first line; None if the line is not of this format."""
    tells: Callable[[Sequence[tuple[str, _R]]], Account] = _nothing
    """Summarises the texts, each with its process ("" if the prefixes name none), in the order in which they ended."""
    source: str = "log"
    """`Source.kind` of a log whose most informative stacks are of this format."""
    kinds: frozenset[str] = frozenset()
    """Kinds of its notes that are not in the table of log lines."""
    body: Optional[Body] = None
    """How to read one without a head; None where it is not known by its frames, or where these are read as they are."""
    classifies_opener: bool = False
    """True if the first line may also be significant by itself."""
