"""`index.json`: the crashes of a run, in groups of equal ones. A later run takes it as its baseline.

Like those of `report.json`, any fact may be missing, and readers must accept values that they do not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import msgspec

from crashkit.errors import EvidenceError
from crashkit.model import SoftError
from crashkit.prepared import prepared
from crashkit.report.json import unicode

SCHEMA = "crashkit.index/1"
FILE = "index.json"


class _Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class Place(_Fact, frozen=True):
    """A line of Python code."""

    file: str
    """As the process knew it."""
    line: Optional[int] = None
    function: Optional[str] = None
    source: Optional[str] = None
    own: bool = False
    """Whether it is the user's own code, not a library's."""
    path: Optional[str] = None
    """Relative to the repository (--repo), if it is the repository's own."""


class Entry(_Fact, frozen=True):
    """One crash, as far as a list of crashes shows it."""

    number: int
    report: Optional[str] = None
    """Its report.html, relative to the index."""
    id: Optional[str] = None
    time: Optional[str] = None
    evidence: tuple[str, ...] = ()
    """The files that it was read from."""
    test: Optional[str] = None
    """The node id of the test that was running."""
    signal: Optional[str] = None
    what: str = "Crash"
    """What, why and where, in one sentence."""
    cause: Optional[str] = None
    """The title of the best finding."""
    finding: Optional[str] = None
    """Its id."""
    confidence: Optional[str] = None
    fix: Optional[str] = None
    """The first line of what to do."""
    pid: Optional[int] = None
    executable: Optional[str] = None
    python: Optional[str] = None
    host: Optional[str] = None
    native: Optional[str] = None
    """The native function that failed."""
    stack: tuple[Place, ...] = ()
    """The crashed thread's Python frames, innermost first, cut after some."""
    fingerprint: Optional[str] = None
    fingerprint_version: Optional[int] = None
    frames: tuple[str, ...] = ()
    """Those that the fingerprint is made of."""
    missing: int = 0
    """How many soft errors its report has."""
    failed: Optional[str] = None
    """Why there is no report."""

    @property
    def own(self) -> Optional[Place]:
        """The line to look at: the innermost one in the repository, else in the user's own code, else of all."""
        tests = (lambda place: place.path is not None, lambda place: place.own, lambda place: True)
        return next((place for test in tests for place in self.stack if test(place)), None)


class Near(_Fact, frozen=True):
    """Another group that is almost equal."""

    group: str
    differs: tuple[str, ...] = ()
    """In what, the most telling first: `frame: decode, not parse`."""


class Past(_Fact, frozen=True):
    """What the history says of a group."""

    count: int = 0
    """How many there were before this run."""
    first_seen: Optional[str] = None
    """When the first of them was, UTC, ISO 8601."""
    trend: tuple[int, ...] = ()
    """Crashes in equal parts of the last days, with those of this run, the oldest part first."""
    days: int = 0


class Group(_Fact, frozen=True):
    """Equal crashes."""

    key: str
    """The fingerprint, or one that stands for a crash without."""
    crashes: tuple[int, ...]
    """The numbers of its entries, the best-told first."""
    before: Optional[int] = None
    """How many there were in the baseline; None without a baseline."""
    past: Optional[Past] = None
    """None without a history."""
    near: tuple[Near, ...] = ()

    @property
    def new(self) -> bool:
        """Whether there was none of them before."""
        return self.known == 0

    @property
    def known(self) -> Optional[int]:
        """How many there were before, by the baseline, or else by the history; None without either."""
        return self.before if self.before is not None else self.past.count if self.past else None


class Gone(_Fact, frozen=True):
    """A group of the baseline that did not occur."""

    key: str
    what: str
    before: int = 0


class Index(_Fact, frozen=True):
    """The root object of index.json."""

    schema: str = msgspec.field(default_factory=lambda: SCHEMA)
    crashkit: Optional[str] = None
    time: Optional[str] = None
    """When it was made, UTC, ISO 8601."""
    files: int = 0
    """How many files were looked at."""
    groups: tuple[Group, ...] = ()
    """Worst first."""
    entries: tuple[Entry, ...] = ()
    gone: tuple[Gone, ...] = ()
    soft_errors: tuple[SoftError, ...] = ()

    @property
    def has_baseline(self) -> bool:
        """Whether it was compared with an earlier one."""
        return any(group.before is not None for group in self.groups) or bool(self.gone)

    @property
    def has_history(self) -> bool:
        """Whether a history told of the past of its groups."""
        return any(group.past is not None for group in self.groups)

    def entry(self, number: int) -> Entry:
        """The crash of this number. Raises KeyError."""
        for entry in self.entries[max(0, number - 1) : number] or self.entries:
            if entry.number == number:
                return entry
        return {one.number: one for one in self.entries}[number]

    def members(self, group: Group) -> list[Entry]:
        """The group's crashes, the best-told first."""
        return [self.entry(number) for number in group.crashes]


def encode(index: Index) -> bytes:
    """The document: UTF-8, indented, with a newline at the end."""
    return packed(index)


def packed(document: Any) -> bytes:
    """JSON of anything that msgspec knows, indented. What is not Unicode, such as bytes of a file's name, becomes U+FFFD."""
    return msgspec.json.format(compact(document), indent=1) + b"\n"


def compact(document: Any, enc_hook: Optional[Callable[[Any], Any]] = None) -> bytes:
    """The same on one line."""
    try:
        return msgspec.json.encode(document, enc_hook=enc_hook)
    except UnicodeEncodeError:
        return msgspec.json.encode(unicode(msgspec.to_builtins(document, enc_hook=enc_hook)))


def decode(document: bytes) -> Index:
    """What `encode` wrote. Raises EvidenceError."""
    try:
        index = msgspec.json.decode(document, type=prepared(Index))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise EvidenceError(f"not an index of crashes: {error}", "Pass the index.json of an earlier crashkit ci.") from error
    if index.schema != SCHEMA:
        raise EvidenceError(f"not a document of schema {SCHEMA}", "Pass the index.json of an earlier crashkit ci.")
    return index
