"""What a shell completes: the ids of stored crashes."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def stored_ids(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids in the store that begin so, newest first."""
    from crashkit.crashfolder.store import Store, home

    if not home().exists():
        return []
    return [crash.id for crash in Store().crashes() if crash.id.startswith(incomplete)]


def stored_ids_and_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The same, and then whatever files the shell finds."""
    return [*map(CompletionItem, stored_ids(context, parameter, incomplete)), CompletionItem(incomplete, type="file")]
