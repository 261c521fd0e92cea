"""What a shell completes: the ids of stored crashes and of signatures."""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem, FishComplete, add_completion_class


def files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Whatever files the shell finds."""
    return [CompletionItem(incomplete, type="file")]


def stored_ids(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids in the store that begin so, newest first."""
    from crashkit.crashfolder.store import Store, home

    if not home().exists():
        return []
    return [crash.id for crash in Store().crashes() if crash.id.startswith(incomplete)]


def stored_ids_and_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The same, and then whatever files the shell finds."""
    return [*map(CompletionItem, stored_ids(context, parameter, incomplete)), *files(context, parameter, incomplete)]


def signature_ids(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids of the known failures that begin so, and of the user's own that every command knows."""
    from crashkit.diagnose import load_catalog
    from crashkit.diagnose.catalog import configured

    return [signature.id for signature in load_catalog(configured(os.environ)).signatures if signature.id.startswith(incomplete)]


@add_completion_class
class Fish(FishComplete):
    """click's, but a description does not end at its first comma."""

    source_template = FishComplete.source_template.replace('(string split "," $completion)', '(string split --max 1 "," $completion)')
