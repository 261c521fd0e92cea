"""What a shell completes: the ids of stored crashes and of signatures, the pids of processes."""

from __future__ import annotations

import os
import re

import click
from click.shell_completion import CompletionItem, FishComplete, add_completion_class

_INTERPRETER = re.compile(r"/(?:lib)?python\d[^/\n]*$", re.MULTILINE)
"""The path of an interpreter or its library, in /proc/PID/maps: of another user's process that cannot be read."""
_LONGEST_COMMAND = 200


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


def python_pids(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The pids of this user's processes with Python in them that begin so, with their command lines."""
    from crashkit.collect.host.proc import numbers, text_of

    found = []
    for pid in numbers("/proc"):
        if str(pid).startswith(incomplete) and pid != os.getpid() and _INTERPRETER.search(text_of(f"/proc/{pid}/maps")):
            command = " ".join(text_of(f"/proc/{pid}/cmdline", _LONGEST_COMMAND).split("\0")).strip()
            found.append(CompletionItem(str(pid), help="".join(filter(str.isprintable, command))))
    return found


@add_completion_class
class Fish(FishComplete):
    """click's, but a description does not end at its first comma."""

    source_template = FishComplete.source_template.replace('(string split "," $completion)', '(string split --max 1 "," $completion)')
