"""`crashkit compare`."""

from __future__ import annotations

import click

from crashkit.cli.completion import stored_ids_and_files
from crashkit.cli.show import MAX_REPORT
from crashkit.model import Crash

_MODULES = 8


@click.command()
@click.argument("left", metavar="ID", shell_complete=stored_ids_and_files)
@click.argument("right", metavar="ID", shell_complete=stored_ids_and_files)
def command(left: str, right: str) -> None:
    """Show what differs between two crashes.

    ID is an id, a unique part of one, or a pid, as for show; or the path of a report.json or of its folder.
    """
    from crashkit.cli import terminal
    from crashkit.report.comparison import differences, same_crash

    one, other = _report(left), _report(right)
    verdict = {
        True: "The same crash: the fingerprints are equal.",
        False: "Different crashes.",
        None: "Their fingerprints cannot be compared.",
    }
    click.echo(verdict[same_crash(one, other)])
    found = differences(one, other)
    if not found:
        click.echo("The reports do not differ.")
        return
    shown = [item for item in found if not item.name.startswith("module ")]
    modules = [item for item in found if item.name.startswith("module ")]
    terminal.show(terminal.columns([(terminal.line("1"), terminal.line(left)), (terminal.line("2"), terminal.line(right))]))
    for item in (*shown, *modules[:_MODULES]):
        values = [(terminal.line(number), terminal.line(value or "-")) for number, value in (("1", item.left), ("2", item.right))]
        terminal.show(terminal.line(item.name, style="bold"), terminal.columns(values, indent=2))
    if len(modules) > _MODULES:
        click.echo(f"and {len(modules) - _MODULES} more modules")


def _report(identity: str) -> Crash:
    """The report of a stored crash, or of a path, masked as `show` masks it. Raises CollectError and EvidenceError."""
    from crashkit.crashfolder.files import open_regular
    from crashkit.crashfolder.store import Store
    from crashkit.errors import CollectError
    from crashkit.evidence.place import local_path
    from crashkit.report.json import decode
    from crashkit.secrets.crash import masked

    path = local_path(identity)
    if not path.exists():
        path = Store().find(identity).path
    if path.is_dir():
        path /= "report.json"
    try:
        with open_regular(path) as file:
            return masked(decode(file.read(MAX_REPORT)))
    except OSError as error:
        raise CollectError(f"cannot read {path}: {error.strerror}", "Analyze the crash first: crashkit analyze PATH --out DIR.") from error
