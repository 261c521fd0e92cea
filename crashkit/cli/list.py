"""`crashkit list`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

import click

if TYPE_CHECKING:
    from crashkit.crashfolder.store import StoredCrash

_LEAST = 10
"""Cells of the command needed to tell crashes apart."""


@click.command()
@click.argument("match", required=False)
@click.option(
    "--since", metavar="WHEN", help="Only newer crashes: an age such as 90s, 30m, 6h, 2d, or a date such as 2026-11-20 or 2026-11-20T23:12."
)
@click.option("--json", "as_json", is_flag=True, help="Print only the manifests, as a JSON list.")
def command(match: Optional[str], since: Optional[str], as_json: bool) -> None:
    """List the crashes in the store, newest first.

    MATCH is a pid, part of the executable's name, a signal such as SIGSEGV or 11, or part of an id. Exits with status 1 if
    nothing matches. CORE is present, truncated or missing. REPORT is done, failed, pending (an analysis runs, or was killed and now goes
    on in the background), or none if it was not asked for.
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
                f"crashkit: {waiting} interrupted {'analyses go' if waiting > 1 else 'analysis goes'} on in the background", err=True
            )
    crashes = [crash for crash in store.crashes() if crash.when >= oldest and (match is None or crash.matches(match))] if store else []
    if as_json:
        import json

        documents = [{**crash.manifest, "id": crash.id, "path": str(crash.path), "core_state": crash.core_state} for crash in crashes]
        click.echo(json.dumps(documents, indent=1))
    if not crashes:
        if match or since:
            raise CollectError("no crash matches", "Run crashkit list to see all crashes.")
        if not as_json:
            click.echo(f"No crashes in {home()}.", err=True)
        return
    if as_json:
        return
    _show(crashes)


def _show(crashes: Sequence[StoredCrash]) -> None:
    """One line per crash, three on a narrow terminal."""
    from rich.text import Text

    from crashkit.cli import terminal

    now = time.time()
    rows = [
        (
            terminal.line(crash.id),
            terminal.line(age(now - crash.when)),
            terminal.line(crash.manifest.get("signal_name", "alive" if "alive" in crash.manifest else "-")),
            terminal.line(crash.core_state),
            terminal.line(size(crash.size)),
            terminal.line(crash.manifest.get("analysis", "-")),
            terminal.line(" ".join(crash.manifest.get("argv") or crash.manifest.get("command") or [])),
        )
        for crash in crashes
    ]
    heads = [Text(head, style="bold") for head in ("ID", "AGE", "SIGNAL", "CORE", "SIZE", "REPORT", "COMMAND")]
    if terminal.fits([heads, *rows], least=_LEAST):
        terminal.show(terminal.clipped_columns([heads, *rows]))
        return
    for first, *facts, argv in rows:
        argv.truncate(terminal.width(sys.stdout) - 2, overflow="ellipsis")
        terminal.show(terminal.stacked([(first, Text("\n").join((Text("  ").join(facts), argv)))]))


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


def parse_since(text: str, now: float) -> float:
    """The time that --since means, in seconds since the epoch. Raises click.BadParameter if it is neither an age nor a date."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
    if text[-1:] in units and text[:-1].replace(".", "", 1).isdigit():
        return now - float(text[:-1]) * units[text[-1]]
    for form in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"):
        try:
            return time.mktime(time.strptime(text, form))
        except ValueError:
            continue
    raise click.BadParameter(f"{text!r} is neither an age such as 2d nor a date such as 2026-11-20", param_hint="--since")
