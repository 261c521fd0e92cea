"""`index.html`: all crashes of a run, in groups, the worst first. One file, which links to the reports beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from crashkit.report import html
from crashkit.report.index import wording
from crashkit.report.index.document import Entry, Index
from crashkit.report.sparkline import heights
from crashkit.report.wording import CONFIDENCE, is_prose, plural, short_path

FILE = "index.html"


def render(index: Index) -> bytes:
    """The page."""
    kinds = Counter(entry.signal or "other" for entry in index.entries)
    page = html.document(
        "index.html",
        ("report.css", "index.css"),
        ("page.js", "index.js"),
        index=index,
        words=wording,
        plural=plural,
        CONFIDENCE=CONFIDENCE,
        kinds=kinds.most_common(12),
        numbers={group.key: number for number, group in enumerate(index.groups)},
        programs=_programs,
        filled=_filled,
        cell=_cell,
        is_prose=is_prose,
        short_path=short_path,
        heights=heights,
    )
    return page.encode("utf-8", "replace")


_COLUMNS: dict[str, Callable[[Entry], str]] = {
    "Time": lambda entry: (entry.time or "").replace("T", " ").removesuffix("Z"),
    "Test": lambda entry: entry.test or "",
    "Process": lambda entry: f"{wording.program(entry)} {'' if entry.pid is None else entry.pid}".strip(),
    "Python": lambda entry: entry.python or "",
}


def _cell(entry: Entry, column: str) -> str:
    return _COLUMNS[column](entry)


def _filled(entries: Sequence[Entry]) -> list[str]:
    """The columns that say something of any of these crashes."""
    return [name for name, value in _COLUMNS.items() if any(map(value, entries))]


def _programs(entries: Iterable[Entry]) -> Iterator[str]:
    return (wording.program(entry) for entry in entries)
