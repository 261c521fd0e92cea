"""`summary.md`: for a job's summary or a comment on a pull request (GitHub-flavoured Markdown)."""

from __future__ import annotations

from crashkit.report import safe
from crashkit.report.index import wording
from crashkit.report.index.document import Group, Index
from crashkit.report.markdown import escaped, fenced
from crashkit.report.wording import is_prose, plural, short_path

FILE = "summary.md"

_MOST = 60_000
"""Characters: GitHub takes 65,536 of a comment."""
_ROWS = 50
_FRAMES = 8
_PROBLEMS = 10


def render(index: Index) -> bytes:
    """The summary: a table of the groups, then each of them, folded, as far as there is room."""
    parts = [f"## {escaped(wording.counts(index))}"]
    if index.groups:
        parts.append(_table(index))
    parts += _rest(index)
    room = _MOST - sum(map(len, parts))
    for shown, group in enumerate(index.groups):
        part = _group(index, group)
        room -= len(part)
        if room < 0:
            parts.append(f"{plural(len(index.groups) - shown, 'more group')} in index.html.")
            break
        parts.insert(2 + shown, part)
    return ("\n\n".join(parts) + "\n").encode()


def _table(index: Index) -> str:
    rows = ["| crashes | signal | where | cause | tests |", "|---:|---|---|---|---|"]
    for group in index.groups[:_ROWS]:
        entries = index.members(group)
        trend = wording.trend(group)
        cells = (
            f"{len(entries):,}" + (f" ({trend})" if trend else ""),
            entries[0].signal or "",
            wording.at(entries[0]),
            entries[0].cause or "",
            wording.several((entry.test for entry in entries), 2),
        )
        rows.append(f"| {' | '.join(escaped(cell) for cell in cells)} |")
    if len(index.groups) > _ROWS:
        rows.append(f"| | | and {len(index.groups) - _ROWS:,} more groups | | |")
    return "\n".join(rows)


def _group(index: Index, group: Group) -> str:
    entries = index.members(group)
    first = entries[0]
    lines = [f"<details><summary>{_html(first.what)}</summary>", ""]
    if first.failed:
        lines += [escaped(first.failed), ""]
    if first.cause:
        lines += [
            f"**{escaped((first.confidence or '').capitalize())}: {escaped(first.cause)}**"
            + (f" ({escaped(first.finding)})" if first.finding else ""),
            "",
        ]
    if first.fix:
        lines += ["What to do:", "", escaped(first.fix) if is_prose(first.fix) else fenced(safe.line(first.fix)), ""]
    if first.stack:
        lines += [fenced("\n".join(safe.line(f"{one.function or '(no name)'}  {wording.place(one)}") for one in first.stack[:_FRAMES])), ""]
    lines += [f"- {escaped(near)}" for near in _near(index, group)]
    lines += [f"- Evidence: {escaped(wording.several(short_path(path) for entry in entries for path in entry.evidence))}"]
    if first.fingerprint:
        lines.append(f"- Fingerprint: {first.fingerprint}")
    return "\n".join([*lines, "", "</details>"])


def _near(index: Index, group: Group) -> list[str]:
    firsts = {one.key: index.entry(one.crashes[0]) for one in index.groups}
    return [
        f"Almost the same as “{firsts[near.group].what}” ({'; '.join(near.differs[:3])})" for near in group.near[:2] if near.group in firsts
    ]


def _rest(index: Index) -> list[str]:
    parts = []
    if index.gone:
        parts.append(f"No longer seen: {'; '.join(escaped(gone.what) for gone in index.gone[:5])}")
    if index.soft_errors:
        rows = [f"- {escaped(error.message)}" for error in index.soft_errors[:_PROBLEMS]]
        rows += [f"- and {len(index.soft_errors) - _PROBLEMS} more"] if len(index.soft_errors) > _PROBLEMS else []
        parts.append("Left out:\n\n" + "\n".join(rows))
    return parts


def _html(text: str) -> str:
    from markupsafe import escape

    return str(escape(escaped(text).replace("\\", "")))
