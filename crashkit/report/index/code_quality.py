"""`gl-code-quality-report.json`: GitLab's code quality report, a subset of Code Climate's. It shows places in the repository only."""

from __future__ import annotations

from crashkit.report import safe
from crashkit.report.index import wording
from crashkit.report.index.document import Index, packed

FILE = "gl-code-quality-report.json"


def render(index: Index) -> bytes:
    """One issue a group that has a line in the repository."""
    issues = []
    for group in index.groups:
        entries = index.members(group)
        where = wording.first_in_repository(entries)
        if where is None:
            continue
        first = entries[0]
        issues.append(
            {
                "description": safe.line(f"{first.what} {first.cause or ''}".strip()),
                "check_name": first.finding or (first.signal or "crash").lower(),
                "fingerprint": group.key,
                "severity": "blocker",
                "location": {"path": where.path, "lines": {"begin": max(1, where.line or 1)}},
            }
        )
    return packed(issues)
