"""`crashkit list`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional

import click

if TYPE_CHECKING:
    from crashkit.crashfolder.store import StoredCrash

_HEADS = ("ID", "N", "AGE", "SIGNAL", "CORE", "SIZE", "REPORT", "COMMAND", "WHERE", "CAUSE")
_DISPENSABLE = (5, 4, 6, 7, 3)
"""Columns that a narrow terminal does without, in this order."""
_AMPLE = (80, 80, 80, 80, 56)
"""Cells of the cause beside all columns, and as they go.

SIZE, CORE and REPORT are worth less than the end of a cause; COMMAND is worth some.
"""
_LEAST = 16
"""Cells of the cause that are worth a column."""


class _Row(NamedTuple):
    """A crash, and how many the row stands for."""

    crash: StoredCrash
    group: str = ""
    """'' without a report, or without a fingerprint."""
    where: str = ""
    cause: str = ""
    told: str = ""
    """What the answer says of that line: `: size = 24, used as a pointer by memcpy`."""
    number: int = 1


@click.command()
@click.argument("match", required=False)
@click.option(
    "--since", metavar="WHEN", help="Only newer crashes: an age such as 90s, 30m, 6h, 2d, or a date such as 2026-11-20 or 2026-11-20T23:12."
)
@click.option("--all", "each", is_flag=True, help="Show every crash in its own row, even equal ones.")
@click.option("--group", metavar="GROUP", help="Only the crashes of the groups whose name begins with GROUP (see crashkit groups).")
@click.option("--json", "as_json", is_flag=True, help="Print only the manifests, as a JSON list.")
def command(match: Optional[str], since: Optional[str], each: bool, group: Optional[str], as_json: bool) -> None:
    """List the crashes in the store, newest first.

    MATCH is a pid, part of the executable's name, a signal such as SIGSEGV or 11, or part of an id. Exits with status 1 if
    nothing matches. Equal crashes share a row, which shows the newest of them; N is their number. CORE is present, truncated or missing.
    REPORT is done, failed, pending (the analysis runs, or was interrupted and continues in the background), or none if no
    report was requested. WHERE is the line to look at, CAUSE the known failure or the reason, with the values of that line.
    """
    from crashkit.collect import recover
    from crashkit.collect.enable import adopt
    from crashkit.crashfolder.store import Store, home
    from crashkit.errors import CollectError
    from crashkit.report import safe

    oldest = parse_since(since, time.time()) if since else 0.0
    store = Store() if home().exists() else None
    if store is not None:
        adopt(store)
        for message in recover.recover(store):
            click.echo(safe.line(f"crashkit: {message}"), err=True)
        if waiting := len(recover.interrupted(store)):
            recover.in_background(store)
            click.echo(
                f"crashkit: {waiting} interrupted {'analyses continue' if waiting > 1 else 'analysis continues'} in the background",
                err=True,
            )
    crashes = [crash for crash in store.crashes() if crash.when >= oldest and (match is None or crash.matches(match))] if store else []
    rows = list(map(_row, crashes))
    if group:
        rows = [row for row in rows if row.group.startswith(group) or row.group.partition("-")[2].startswith(group)]
    if as_json:
        import json

        click.echo(json.dumps(list(map(_document, rows)), indent=1))
    if not rows:
        if match or since or group:
            raise CollectError("no crash matches", "Run crashkit list to see all crashes.")
        if not as_json:
            click.echo(f"No crashes in {home()}.", err=True)
        return
    if as_json:
        return
    _show(rows if each or group else _together(rows))


def _row(crash: StoredCrash) -> _Row:
    """What its report says of a crash, without likely secrets."""
    from crashkit.cli.show import MAX_REPORT
    from crashkit.crashfolder.files import open_regular
    from crashkit.errors import CrashkitError
    from crashkit.history.entry import group_of
    from crashkit.report import answer, one_line
    from crashkit.report.json import outline
    from crashkit.secrets.text import Secrets

    try:
        with open_regular(crash.path / "report.json") as file:
            report = outline(file.read(MAX_REPORT))
    except (OSError, CrashkitError):
        return _Row(crash)
    secrets = Secrets()
    found = answer.answer(report)
    told = answer.beside(found, report.signal) if found is not None else ""
    where, cause = secrets.text(one_line.where(report)), secrets.text(one_line.cause(report))
    return _Row(crash, group_of(report) or "", where, cause, secrets.text(told))


def _document(row: _Row) -> dict[str, object]:
    told = {name: text for name, text in (("group", row.group), ("where", row.where), ("cause", row.cause)) if text}
    return {**row.crash.manifest, "id": row.crash.id, "path": str(row.crash.path), "core_state": row.crash.core_state, **told}


def _together(rows: Sequence[_Row]) -> list[_Row]:
    """One row for each group, that of the newest crash; crashes that are of no group each have one."""
    found: dict[str, _Row] = {}
    for row in rows:
        key = row.group or row.crash.id
        found[key] = found[key]._replace(number=found[key].number + 1) if key in found else row
    return list(found.values())


def _show(rows: Sequence[_Row]) -> None:
    """One line per row, three on a narrow terminal."""
    from rich.text import Text

    from crashkit.cli import terminal
    from crashkit.crashfolder.ids import shortened
    from crashkit.crashfolder.manifest import ending

    now = time.time()
    table, whole = ([[Text(head, style="bold") for head in _HEADS]] for _ in range(2))
    for row in rows:
        crash, manifest = row.crash, row.crash.manifest
        program, *arguments = manifest.get("argv") or manifest.get("command") or [""]
        argv = " ".join((program.rpartition("/")[2], *arguments))
        facts = (crash.id, str(row.number), age(now - crash.when), ending(manifest) or "-", crash.core_state, size(crash.size))
        cells = [*map(terminal.line, (*facts, manifest.get("analysis", "-")))]
        cause = row.cause or "-"
        table.append([*cells, terminal.part(argv, 5), terminal.place(row.where or "-", 4), terminal.line(cause + row.told)])
        where = terminal.line(row.where + row.told) if row.told else terminal.place(row.where or "-", 1)
        whole.append([*cells, terminal.part(argv, 1), where, terminal.line(cause)])
    ids = Counter(shortened(row.crash.id) for row in rows)
    short = [terminal.line(id if ids[id] == 1 else row.crash.id) for row in rows for id in (shortened(row.crash.id),)]
    terminal.show_rows(table, _DISPENSABLE, _LEAST, [table[0][0], *short], whole, _AMPLE)


def age(seconds: float) -> str:
    """Seconds as a short age, such as 40s, 12m, 5h or 3d."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"


def size(number: int) -> str:
    """Bytes as a short size in powers of 1024, such as 8.4M."""
    value = float(number)
    for unit in "BKMG":
        if value < 1024:
            return f"{value:.0f}{unit}" if unit == "B" or value >= 10 else f"{value:.1f}{unit}"
        value /= 1024
    return f"{value:.1f}T"


def parse_since(text: str, now: float, option: str = "--since") -> float:
    """The time that an option means, in seconds since the epoch. Raises click.BadParameter if it is neither an age nor a date."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
    if text[-1:] in units and text[:-1].replace(".", "", 1).isdigit():
        return now - float(text[:-1]) * units[text[-1]]
    for form in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"):
        try:
            return time.mktime(time.strptime(text, form))
        except ValueError:
            continue
    raise click.BadParameter(f"{text!r} is neither an age such as 2d nor a date such as 2026-11-20", param_hint=option)
