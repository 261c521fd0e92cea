"""`crashkit signatures`."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import click

from crashkit.cli.completion import signature_ids
from crashkit.cli.options import EvidencePath

if TYPE_CHECKING:
    from crashkit.diagnose import Catalog
    from crashkit.diagnose.signature import Signature
    from crashkit.model import Crash

_MORE = click.option("--signatures", "more", multiple=True, type=click.Path(path_type=Path), help="A folder with your own signatures.")


@click.group()
def command() -> None:
    """List, show and test the known failures.

    \b
    crashkit signatures list
    crashkit signatures show cuda-concurrent-launch
    crashkit signatures test report.json
    """


@command.command("list")
@_MORE
def list_(more: tuple[Path, ...]) -> None:
    """List the known failures, by family."""
    from rich.text import Text

    from crashkit.cli import terminal

    signatures = _load(more).signatures
    width = max(len(signature.id) for signature in signatures)
    for file, family in groupby(signatures, key=lambda signature: signature.file):
        rows = [(terminal.line(f"{signature.id:<{width}}"), terminal.line(signature.title)) for signature in family]
        terminal.show(Text(Path(file).stem, style="bold"), terminal.columns(rows, indent=2))


@command.command()
@click.argument("identity", metavar="ID", shell_complete=signature_ids)
@_MORE
def show(identity: str, more: tuple[Path, ...]) -> None:
    """Show one known failure: its cause, its fix and how it is recognised."""
    from crashkit.cli import terminal
    from crashkit.diagnose.page import of_signature

    for row in of_signature(_load(more).find(identity)).split("\n"):
        terminal.show(terminal.paragraph(row))


@command.command()
@click.argument("path", type=EvidencePath(), metavar="FILE")
@click.option("--only", metavar="ID", shell_complete=signature_ids, help="Explain only this signature, matched or not.")
@click.option("--all", "everything", is_flag=True, help="Explain every signature, even those with no match at all.")
@click.option("--exe", type=click.Path(path_type=Path), help="The executable that crashed, if FILE is a core.")
@_MORE
def test(path: Path, only: Optional[str], everything: bool, exe: Optional[Path], more: tuple[Path, ...]) -> None:
    """Explain why each known failure matched FILE or not.

    FILE is a report.json, a core, a log or a crash folder. By default, signatures that matched or came close are explained.
    """
    from crashkit.cli import terminal
    from crashkit.diagnose import diagnose

    catalog = _load(more)
    chosen = catalog.find(only) if only else None
    crash = diagnose(_crash(path, exe, more), catalog)
    found = {finding.id: finding for finding in crash.findings}
    if chosen is None:
        for rank, finding in enumerate(crash.findings, 1):
            terminal.show(terminal.line(f"{rank}. {finding.id} ({finding.confidence}): {finding.title}"))
        if not found:
            click.echo("No signature matched.")
        click.echo()
    for signature in [chosen] if chosen is not None else catalog.signatures:
        if chosen is not None or everything or signature.id in found or signature.id in {one.id for one in crash.looked_for}:
            _explain(signature, crash)


def _explain(signature: Signature, crash: Crash) -> None:
    from crashkit.cli import terminal
    from crashkit.diagnose.case import Case
    from crashkit.diagnose.engine import judge, match_signature
    from crashkit.diagnose.explain import explain
    from crashkit.report.wording import verdict

    case = Case(crash)
    match = match_signature(signature, case)
    told = f"matched ({match.confidence})" if match is not None else verdict(judge(signature, case))
    terminal.show(terminal.line(f"{signature.id}: {told}", style="bold"))
    for row in explain(signature, case):
        terminal.show(terminal.paragraph(f"  {row}", style="dim" if row.lstrip().startswith(("-", "?")) and match is None else ""))
    if match is not None and not any(finding.id == signature.id for finding in crash.findings):
        terminal.show(terminal.paragraph("  omitted from the findings: it is a consequence of a finding above"))
    click.echo()


def _load(more: tuple[Path, ...]) -> Catalog:
    from crashkit.diagnose import load_catalog
    from crashkit.diagnose.catalog import configured

    return load_catalog((*configured(os.environ), *more))


def _crash(path: Path, exe: Optional[Path], more: tuple[Path, ...]) -> Crash:
    """Read a report; analyze anything else."""
    if path.suffix == ".json" and path.is_file():
        from crashkit.report.json import decode
        from crashkit.secrets.crash import masked

        return masked(decode(path.read_bytes()))
    from crashkit.pipeline import Options, analyze

    return analyze(path, options=Options(exe=exe, signatures=more))
