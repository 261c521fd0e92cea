"""`crashkit doctor`."""

from __future__ import annotations

import sys

import click

_MARKS = {"ok": "ok     ", "warning": "warning", "problem": "PROBLEM"}


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON list and nothing else.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ARG...]")
def command(as_json: bool, command: tuple[str, ...]) -> None:
    """Check whether a crash would leave evidence here, and say what to mend.

    With COMMAND, the interpreter that it runs is looked at too. Exits with status 1 where there is a problem.
    """
    from crashkit.collect.doctor import examine
    from crashkit.report import safe

    findings = examine(command)
    if as_json:
        import json

        click.echo(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        for finding in findings:
            click.echo(safe.line(f"{_MARKS[finding.state]}  {finding.check}: {finding.message}"))
            if finding.mend:
                click.echo(safe.line(f"         {finding.mend}"))
    sys.exit(1 if any(finding.state == "problem" for finding in findings) else 0)
