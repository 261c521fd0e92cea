"""`crashkit rm`."""

from __future__ import annotations

import sys
from typing import Optional

import click

from crashkit.cli.completion import stored_ids


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=stored_ids)
@click.option("--all", "everything", is_flag=True, help="Remove every crash.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before removing all.")
@click.option("--older-than", metavar="AGE", help="Remove crashes older than AGE, such as 12h or 30d.")
def command(ids: tuple[str, ...], everything: bool, yes: bool, older_than: Optional[str]) -> None:
    """Remove crashes from the store.

    ID may be a unique part of an id, a pid, or `last`.
    """
    import time

    from crashkit.cli.list import parse_since, size
    from crashkit.crashfolder.store import Store
    from crashkit.errors import CollectError

    if not ids and not everything and not older_than:
        raise click.UsageError("Pass ID..., --older-than AGE or --all.")
    store = Store()
    if everything:
        chosen = store.crashes()
    else:
        chosen = [store.find(text) for text in ids]
        if older_than:
            oldest = parse_since(older_than, time.time())
            chosen += [crash for crash in store.crashes() if crash.when < oldest and crash not in chosen]
    if everything and chosen and not yes and sys.stdin.isatty():
        number = f"{len(chosen)} crash{'es' if len(chosen) > 1 else ''}"
        if not click.confirm(f"Remove {number} ({size(sum(crash.size for crash in chosen))})?", err=True):
            raise CollectError("nothing was removed", "To remove some of them: crashkit rm ID, or crashkit rm --older-than 7d.")
    total = 0
    for crash in {crash.id: crash for crash in chosen}.values():
        total += crash.size
        store.remove(crash)
        click.echo(f"removed {crash.id}")
    click.echo(f"{size(total)} freed", err=True)
