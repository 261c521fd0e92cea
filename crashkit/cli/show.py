"""`crashkit show`."""

from __future__ import annotations

import sys
from typing import Optional

import click

from crashkit.crashfolder.store import StoredCrash

_MAX_REPORT = 256 << 20


@click.command()
@click.argument("identity", metavar="[ID]", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print only the report as JSON, or the manifest if there is no report.")
@click.option("--path", "only_path", is_flag=True, help="Print only the path of the folder.")
def command(identity: str, as_json: bool, only_path: bool) -> None:
    """Show one crash from the store.

    By default, the newest one. ID may be a unique part of an id, or a pid.
    """
    from crashkit.collect import recover
    from crashkit.collect.enable import adopt
    from crashkit.crashfolder.store import Store
    from crashkit.report import safe

    store = Store()
    adopt(store)
    for message in recover.recover(store):
        click.echo(safe.line(f"crashkit: {message}"), err=True)
    crash = store.find(identity)
    if not only_path and crash in recover.interrupted(store):
        click.echo(f"crashkit: the analysis of {crash.id} was interrupted; analyzing it now ...", err=True)
        recover.resume(store, crash)
        crash = store.find(crash.id)
    report = _read(crash, "report.json")
    if only_path:
        click.echo(str(crash.path))
    elif as_json:
        document = report or _read(crash, "manifest.json") or b""
        sys.stdout.buffer.write(document)
    elif report is None or not _print_report(report, crash):
        _print_manifest(crash)


def _read(crash: StoredCrash, name: str) -> Optional[bytes]:
    from crashkit.crashfolder.files import open_regular

    try:
        with open_regular(crash.path / name) as file:
            return file.read(_MAX_REPORT)
    except OSError:
        return None


def _print_report(document: bytes, crash: StoredCrash) -> bool:
    """Print the summary; False if the report cannot be read."""
    from crashkit.cli.analyze import print_summary
    from crashkit.errors import CrashkitError
    from crashkit.report import json

    try:
        report = json.decode(document)
    except (CrashkitError, ValueError):
        return False
    print_summary(report, crash.path)
    return True


def _print_manifest(crash: StoredCrash) -> None:
    from crashkit.cli import terminal
    from crashkit.report import safe

    manifest = crash.manifest
    rows = [
        ("crash", crash.id),
        ("time", manifest.get("time", "unknown")),
        ("process", f"{manifest.get('name', 'unknown')} [{manifest.get('pid', '?')}]"),
        ("command", " ".join(manifest.get("argv") or manifest.get("command") or [])),
        ("signal", manifest.get("signal_name", "unknown")),
        *(("killed", line) for line in _killed(crash)),
        ("core", crash.core_state),
        *(("note", note) for note in manifest.get("notes", [])),
    ]
    terminal.show(terminal.columns([(terminal.line(f"{name}:"), terminal.line(str(value))) for name, value in rows]))
    # These are copied: the terminal alone may break them.
    click.echo(safe.line(f"folder:   {crash.path}"))
    click.echo(safe.line(f"report:   none yet; run: crashkit analyze {crash.path} --out {crash.path}"))


def _killed(crash: StoredCrash) -> list[str]:
    killed = crash.manifest.get("killed")
    if killed is None:
        return []
    by = "by the kernel, out of memory" if killed.get("by") == "oom" else "sender unknown"
    return [by, *killed.get("evidence", [])]
