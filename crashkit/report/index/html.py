"""`index.html`: all crashes of a run, in groups, the worst first. One file, which links to the reports beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from crashkit.report import html
from crashkit.report.index import wording
from crashkit.report.index.document import Entry, Index
from crashkit.report.wording import CONFIDENCE, plural

FILE = "index.html"


def render(index: Index) -> bytes:
    """The page."""
    kinds = Counter(entry.signal or "other" for entry in index.entries)
    page = html.document(
        "index.html",
        ("report.css", "index.css"),
        "index.js",
        index=index,
        words=wording,
        plural=plural,
        CONFIDENCE=CONFIDENCE,
        kinds=kinds.most_common(12),
        numbers={group.key: number for number, group in enumerate(index.groups)},
        programs=_programs,
    )
    return page.encode("utf-8", "replace")


def _programs(entries: Iterable[Entry]) -> Iterator[str]:
    return (wording.program(entry) for entry in entries)
