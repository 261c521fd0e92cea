"""`crashkit groups`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

import click

from crashkit.cli.index_option import checked_index
from crashkit.report.sparkline import sparkline

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from crashkit.history.query import Group, Occurrence

_TREND = 30 * 86400.0
"""Seconds that the trend shows where `--since` says nothing else."""
_ROWS = 50
_HEADS = ("GROUP", "COUNT", "FIRST", "LAST", "TREND", "HOSTS", "SIGNAL", "WHERE", "CAUSE")
_DISPENSABLE = (5, 2, 4, 6, 3)
"""Columns that a narrow terminal does without, in this order."""
_LEAST = 16
_SHORTEST_COMMIT = 7
_SHORT = 12
"""Characters of a group's name in the list, which `groups NAME` takes."""


@click.command()
@click.argument("group", required=False)
@click.option(
    "--index",
    envvar="CRASHKIT_INDEX",
    callback=checked_index,
    metavar="URL",
    help="The history: a file, or postgresql://...  [default: the one in the crash store]",
)
@click.option(
    "--since",
    metavar="WHEN",
    help="Only groups that are new since WHEN: an age such as 2d, a date, a release, or a commit of this working copy.",
)
@click.option("--limit", type=click.IntRange(1), default=_ROWS, show_default=True, help="Maximum number of rows.")
@click.option("--json", "as_json", is_flag=True, help="Print only the groups, or the crashes of GROUP, as a JSON list.")
@click.option("--forget", metavar="AGE", help="First remove crashes older than AGE, such as 90d, from the history.")
@click.option("--upgrade", is_flag=True, help="First upgrade the tables of a shared history to this version of crashkit.")
def command(
    group: Optional[str], index: Optional[str], since: Optional[str], limit: int, as_json: bool, forget: Optional[str], upgrade: bool
) -> None:
    """List equal crashes in groups, from the history.

    The most frequent group first. With GROUP, the name of a group or its beginning, show that group and its crashes, newest first.
    """
    from crashkit.crashfolder.store import home
    from crashkit.history.address import default
    from crashkit.history.index import connect
    from crashkit.history.record import record

    if group and since:
        raise click.UsageError("--since selects groups: omit it to see the crashes of one group.")
    address = index or default(home())
    now = time.time()
    if upgrade:
        with connect(address, write=True, upgrade=True):
            click.echo("The tables are up to date.", err=True)
    if arrived := record(address, ()).arrived:
        click.echo(
            f"crashkit: {arrived} {_crashes(arrived)} that had waited for the history {'is' if arrived == 1 else 'are'} recorded now",
            err=True,
        )
    if forget:
        _forget(address, forget, now)
    with connect(address) as connection:
        if group:
            _show_group(connection, group, limit, as_json, now)
        else:
            _list(connection, since, limit, as_json, now)


def _forget(address: str, age: str, now: float) -> None:
    from crashkit.cli.list import parse_since
    from crashkit.history.index import connect

    before = parse_since(age, now, "--forget")
    with connect(address, write=True) as connection:
        from crashkit.history.write import forget

        gone = forget(connection, before)
    click.echo(f"removed {gone} {_crashes(gone)} from the history", err=True)


def _list(connection: Connection, since: Optional[str], limit: int, as_json: bool, now: float) -> None:
    from crashkit.history.query import groups_since

    begin = _begin(connection, since, now) if since else None
    found = groups_since(connection, begin or 0.0, now - _TREND if begin is None else begin, now, limit)
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps(list(map(asdict, found)), indent=1))
    elif found:
        _print_groups(found, now)
    else:
        click.echo(f"Nothing is new since {since}." if since else "The history is empty.", err=True)


def _begin(connection: Connection, since: str, now: float) -> float:
    """The time that --since means: that of an age or a date, of the first crash of a release, or of a commit."""
    from pathlib import Path

    from crashkit.cli.list import parse_since
    from crashkit.errors import CrashkitError
    from crashkit.history.commits import commit_time
    from crashkit.history.query import first_of_release

    looks_like_commit = len(since) >= _SHORTEST_COMMIT and set(since) <= set("0123456789abcdef")  # such as 1234567d, which is no age
    if not looks_like_commit:
        with contextlib.suppress(click.BadParameter):
            return parse_since(since, now)
    made = commit_time(since, Path.cwd())
    found = first_of_release(connection, since) if made is None else made
    if found is None:
        raise CrashkitError(
            f"{since!r} is not an age, a date, a commit of this working copy or a release in the history",
            "Pass an age such as 2d or a date such as 2026-11-20, or run this inside the repository.",
        )
    return found


def _show_group(connection: Connection, text: str, limit: int, as_json: bool, now: float) -> None:
    from crashkit.history.query import find_group, groups_since, occurrences

    key = find_group(connection, text)
    crashes = occurrences(connection, key, limit)
    if as_json:
        import json

        click.echo(json.dumps([one._asdict() for one in crashes], indent=1))
        return
    for group in groups_since(connection, 0.0, now - _TREND, now, only=key):
        _print_group(group, crashes, now)


def _print_groups(groups: Sequence[Group], now: float) -> None:
    """One line per group, two on a narrow terminal."""
    from rich.text import Text

    from crashkit.cli import terminal

    rows, whole = ([[Text(head, style="bold") for head in _HEADS]] for _ in range(2))
    for group in groups:
        texts = (group.key[:_SHORT], str(group.count), *_ages(group, now), sparkline(group.trend), str(group.hosts), group.signal or "-")
        for shown_in, share in ((rows, 3), (whole, 1)):
            shown_in.append([*map(terminal.line, texts), terminal.place(group.where or "-", share), terminal.line(group.cause or "-")])
    terminal.show_rows(rows, _DISPENSABLE, _LEAST, whole=whole)


def _print_group(group: Group, crashes: Sequence[Occurrence], now: float) -> None:
    from rich.text import Text

    from crashkit.cli import terminal

    first, last = _ages(group, now)
    releases = sorted({crash.release for crash in crashes if crash.release})
    ran = [{"python": crash.python, **crash.versions} for crash in crashes]
    versions = sorted({f"{name} {version}" for one in ran for name, version in one.items() if version})
    facts = (
        ("group", group.key),
        ("signal", group.signal),
        ("where", group.where),
        ("cause", group.cause),
        ("frames", ", ".join(group.frames)),
        ("count", f"{group.count} on {group.hosts} {'host' if group.hosts == 1 else 'hosts'}  {sparkline(group.trend)}"),
        ("seen", f"first {first} ago{f' in {group.first_release}' if group.first_release else ''}, last {last} ago"),
        ("releases", ", ".join(releases)),
        ("versions", ", ".join(versions)),
        ("hosts", ", ".join(sorted({crash.host for crash in crashes}))),
    )
    terminal.show(terminal.columns([(terminal.line(f"{name}:"), terminal.line(value)) for name, value in facts if value]))
    rows = [[Text(head, style="bold") for head in ("AGE", "HOST", "RELEASE", "ID", "PLACE")]]
    for crash in crashes:
        texts = (_age(now - crash.seen), crash.host, crash.release[:_SHORT] or "-", crash.id, crash.place)
        rows.append([terminal.line(text) for text in texts])
    terminal.show(Text(""))
    terminal.show_rows(rows, (2, 1), _LEAST)


def _ages(group: Group, now: float) -> tuple[str, str]:
    return _age(now - group.first_seen), _age(now - group.last_seen)


def _age(seconds: float) -> str:
    from crashkit.cli.list import age

    return age(seconds)


def _crashes(number: int) -> str:
    return "crash" if number == 1 else "crashes"
