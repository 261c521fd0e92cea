"""`crashkit show`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Optional

import click

from crashkit.cli.completion import stored_ids
from crashkit.cli.options import at_most_one
from crashkit.crashfolder.store import StoredCrash

if TYPE_CHECKING:
    from crashkit.model import Crash

MAX_REPORT = 256 << 20
_OPENERS = ("xdg-open", "sensible-browser")


@click.command()
@click.argument("identity", metavar="[ID]", default="last", shell_complete=stored_ids)
@click.option("--json", "as_json", is_flag=True, help="Print only the report as JSON, or the manifest if there is no report.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print only a summary in Markdown, for an issue.")
@click.option("--issue", "as_issue", is_flag=True, help="Print only a text for a public issue: no values, arguments, logs or folders.")
@click.option("--brief", is_flag=True, help="Print the answer without the stacks.")
@click.option("--open", "opens", is_flag=True, help="Open the HTML report in a browser.")
@click.option("--show-secrets", is_flag=True, help="Show what looks like a password, token or key, instead of masking it.")
@click.option("--path", "only_path", is_flag=True, help="Print only the path of the folder.")
def command(
    identity: str, as_json: bool, as_markdown: bool, as_issue: bool, brief: bool, opens: bool, show_secrets: bool, only_path: bool
) -> None:
    """Show one crash from the store.

    By default, the newest one. ID may be a unique part of an id, or a pid.
    """
    at_most_one(json=as_json, markdown=as_markdown, issue=as_issue, open=opens, path=only_path)
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
    document = _read(crash, "report.json")
    report = _decoded(document, show_secrets) if document is not None and not only_path else None
    if only_path:
        click.echo(str(crash.path))
    elif as_json:
        sys.stdout.buffer.write((document and _masked(document, report)) or _read(crash, "manifest.json") or b"")
    elif opens:
        _open(crash)
    elif report is None:
        _print_manifest(crash)
    else:
        _print_report(report, crash, "markdown" if as_markdown else "issue" if as_issue else None, brief)


def _open(crash: StoredCrash) -> None:
    """Open the HTML report. Raises CollectError if there is none, or no browser."""
    from crashkit import isolation
    from crashkit.errors import CollectError
    from crashkit.report import safe

    report = crash.path / "report.html"
    if not report.exists():
        raise CollectError(f"{crash.id} has no report yet", f"Run crashkit analyze {crash.path} --out {crash.path}.")
    opener = next(filter(None, map(isolation.find_program, _OPENERS)), None)
    if opener is None:
        raise CollectError(f"no program to open the report is installed ({', '.join(_OPENERS)})", f"Open {report} yourself.")
    isolation.start([opener, report.as_uri()], new_session=True)
    # The browser may be on no screen that the user sees, as over SSH.
    click.echo(safe.line(f"opening {report}"))


def _read(crash: StoredCrash, name: str) -> Optional[bytes]:
    from crashkit.crashfolder.files import open_regular

    try:
        with open_regular(crash.path / name) as file:
            return file.read(MAX_REPORT)
    except OSError:
        return None


def _decoded(document: bytes, show_secrets: bool) -> Optional[Crash]:
    """The report, masked by the rules of today; None if it cannot be read."""
    from crashkit.errors import CrashkitError
    from crashkit.report import json
    from crashkit.secrets.crash import masked

    try:
        report = json.decode(document)
    except (CrashkitError, ValueError):
        return None
    return report if show_secrets else masked(report)


def _masked(document: bytes, report: Optional[Crash]) -> bytes:
    """The document itself where it held nothing to mask: it may have fields that this version does not know."""
    from crashkit.report import json

    return document if report is None or json.decode(document) == report else json.encode(report)


def _print_report(report: Crash, crash: StoredCrash, document: Optional[str], brief: bool) -> None:
    from crashkit.cli.analyze import print_document, print_summary

    if document is not None:
        print_document(report, document)
    else:
        print_summary(report, crash.path, brief)


def _print_manifest(crash: StoredCrash) -> None:
    from crashkit.cli import terminal
    from crashkit.crashfolder.manifest import ending
    from crashkit.report import safe

    manifest = crash.manifest
    rows = [
        ("crash", crash.id),
        ("time", manifest.get("time", "unknown")),
        ("process", f"{manifest.get('name', 'unknown')} [{manifest.get('pid', '?')}]"),
        ("command", " ".join(manifest.get("argv") or manifest.get("command") or [])),
        ("signal", ending(manifest) or "unknown"),
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
