"""`crashkit doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from crashkit.collect.doctor import Finding

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "problem": ("PROBLEM", "bold red")}


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--json", "as_json", is_flag=True, help="Print only the findings, as a JSON list.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ARG...]")
def command(as_json: bool, command: tuple[str, ...]) -> int:
    """Check whether a crash would leave evidence here, and how to fix problems.

    With COMMAND, also check the interpreter that it runs. Exits with status 1 if there is a problem.
    """
    from crashkit.collect.doctor import examine

    findings = examine(command)
    if as_json:
        import json

        click.echo(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        _show(findings)
    return 1 if any(finding.state == "problem" for finding in findings) else 0


def _show(findings: Sequence[Finding]) -> None:
    from rich.text import Text

    from crashkit.cli import terminal

    rows = []
    for finding in findings:
        said = [terminal.line(f"{finding.check}: {finding.message}")]
        if finding.mend:
            said.append(terminal.line(finding.mend))
        rows.append((Text(*_MARKS[finding.state]), Text("\n").join(said)))
    terminal.show(terminal.columns(rows))
