"""What a format of many-line text is: the contract between `log`, which reads the file, and one module a format.

A format is a `Format` in the list of `formats`. For each text that its `opens` recognises there is one `Reader`, which is
fed the lines of one process; when the whole log is read, `tells` sums up all texts of the format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, Literal, NamedTuple, Optional, TypeVar

from crashkit.model import PythonRuntime, SoftError, Thread

Stacks = Literal["native", "python"]
"""native: of the process's threads, to which Python frames from elsewhere can be added; python: such frames, by pthread identifier."""


class Note(NamedTuple):
    """A telling line that a many-line text comes down to."""

    text: str
    kind: str
    fields: Mapping[str, str] = {}
    classified: bool = False
    """Whether the table of log lines may give it a more telling kind, and more fields."""


class Reader(ABC):
    """One many-line text while it is read."""

    ended = False
    """Whether its last line was fed."""

    @abstractmethod
    def feed(self, text: str) -> bool:
        """Take the next line of the process, without prefixes and indentation; False where it is not of this text."""

    def finish(self) -> Optional[Iterable[Note]]:
        """The lines that it comes down to, once no more is fed; None where it told nothing and is to be forgotten."""
        return ()


class Telling(IntEnum):
    """How much stacks tell of a crash: of several formats in one log, the most telling one is shown."""

    NOTHING = 0
    EXCEPTION = 1
    """The stack of an exception, which need not have ended the process."""
    FATAL_MESSAGE = 2
    """A fatal error without a stack."""
    THREADS = 3
    """Stacks of threads of a process that need not have died."""
    REPORT = 4
    """The stack of an error that a sanitizer found."""
    FATAL_THREADS = 5
    """The stacks of a process that died."""
    NATIVE_THREADS = 6
    """Those of a debugger, native frames included."""


class Account(NamedTuple):
    """What all the texts of one format in one log tell."""

    telling: Telling = Telling.NOTHING
    threads: tuple[Thread, ...] = ()
    stacks: Optional[Stacks] = None
    signal: Optional[int] = None
    """The signal that ended the process."""
    python: Optional[PythonRuntime] = None
    is_evidence: bool = False
    """Whether a crash is told even where no line is telling by itself."""
    soft_errors: tuple[SoftError, ...] = ()


_R = TypeVar("_R", bound=Reader)


def _nothing(texts: Sequence[object]) -> Account:
    return Account()


@dataclass(frozen=True)
class Format(Generic[_R]):
    """One format of many-line text."""

    openers: tuple[str, ...]
    """Texts of which every first line holds one: by them it is found in gigabytes."""
    opens: Callable[[str], Optional[_R]]
    """A reader that has taken this first line; None where it is not of this format."""
    tells: Callable[[Sequence[tuple[str, _R]]], Account] = _nothing
    """Sums up the texts, each with the process that it is of ("" where the prefixes name none), in the order of their ends."""
    source: str = "log"
    """`Source.kind` of a log whose most telling stacks are of this format."""
    kinds: frozenset[str] = frozenset()
    """Kinds of its notes that the table of log lines does not have."""
    classifies_opener: bool = False
    """Whether the first line may be a telling line by itself, too."""
