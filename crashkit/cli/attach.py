"""`crashkit attach`."""

from __future__ import annotations

import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import click

from crashkit.cli.completion import python_pids
from crashkit.cli.ending import cleaned_up
from crashkit.environment import rank
from crashkit.errors import CrashkitError, EvidenceError

if TYPE_CHECKING:
    from crashkit.model import Crash

_AT_ONCE = 4
"""Processes that are stopped at the same time: ranks of a job should be seen at one moment."""


class _Seen(NamedTuple):
    pid: int
    crash: Optional[Crash]
    problem: Optional[CrashkitError]


class _Pid(click.ParamType[int]):
    """The pid of a process."""

    name = "pid"

    def convert(self, value: Any, param: Optional[click.Parameter], ctx: Optional[click.Context]) -> int:
        if str(value).isdecimal() and int(value) > 0:
            return int(value)
        hint = f"To find that of a program: pgrep -af {shlex.quote(str(value))}"
        raise click.BadParameter(f"{value!r} is not a pid, such as 4711. {hint}", ctx, param)


@click.command()
@click.argument("pids", nargs=-1, required=True, type=_Pid(), metavar="PID...", shell_complete=python_pids)
@click.option("--tree", "whole_tree", is_flag=True, help="Also attach to all descendants of these processes.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for report.html and report.json; of several processes, each gets a folder in it."
)
@click.option("--json", "as_json", is_flag=True, help="Print only the reports, as JSON, one per line; write files only with --out.")
@click.option(
    "--core", type=click.Path(path_type=Path), help="Keep the core that was taken: in this file or, of several processes, in this folder."
)
@click.option("--gdb", default="gdb", show_default=True, metavar="PROGRAM", help="The gdb to use.")
@click.option("--no-gdb", is_flag=True, help="Do not use gdb; native stacks are omitted.")
@click.option("--locals/--no-locals", "show_locals", default=True, help="Show or omit the values of arguments and local variables.")
@click.option("--show-secrets", is_flag=True, help="Show what looks like a password, token or key, instead of masking it.")
@click.option("--brief", is_flag=True, help="Print the answer without the stacks.")
@cleaned_up()
def command(
    pids: tuple[int, ...],
    whole_tree: bool,
    out: Optional[Path],
    as_json: bool,
    core: Optional[Path],
    gdb: str,
    no_gdb: bool,
    show_locals: bool,
    show_secrets: bool,
    brief: bool,
) -> int:
    """Show what a running process does and what its threads wait for.

    The process is stopped for less than a tenth of a second and then continues. The report is like that of `crashkit analyze`.
    """
    from crashkit.cli.analyze import print_summary, write_report
    from crashkit.collect.living import command_of, tree
    from crashkit.pipeline import Options
    from crashkit.report.renderer import renderer

    wanted = list(dict.fromkeys(member for pid in pids for member in (tree(pid) if whole_tree else [pid])))
    wanted = [pid for pid in wanted if pid != os.getpid()]
    several = len(wanted) > 1
    if several and core is not None:
        core.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = Options(gdb=None if no_gdb else gdb, locals=show_locals, show_secrets=show_secrets)

    def look(pid: int) -> _Seen:
        from crashkit.collect.attach import attach

        try:
            return _Seen(pid, attach(pid, options, core / f"core.{pid}" if core is not None and several else core), None)
        except CrashkitError as error:
            return _Seen(pid, None, error)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        seen = list(pool.map(look, wanted))
    failed = [one for one in seen if one.problem is not None]
    if len(failed) == len(seen):
        raise failed[0].problem or EvidenceError("no process", "Pass the pid of a running process.")
    for one in failed:
        click.echo(f"crashkit: {one.problem}", err=True)
    for number, (one, crash) in enumerate((one, one.crash) for one in seen if one.crash is not None):
        written = write_report(crash, out / str(one.pid) if several else out) if out is not None else None
        if as_json:
            document = renderer("json").render(crash)
            sys.stdout.buffer.write(_one_line(document) if several else document)
            continue
        if number:
            click.echo()
        if several:
            click.echo(f"Process {one.pid}{_rank(crash)}: {command_of(one.pid) or 'it has ended'}")
        print_summary(crash, written, brief)
    return 0


def _rank(crash: Crash) -> str:
    """`, rank 1` of a process of a job."""
    number = rank(crash.process.environment) if crash.process is not None else None
    return f", rank {number}" if number is not None else ""


def _one_line(document: bytes) -> bytes:
    import msgspec

    return msgspec.json.format(document, indent=-1) + b"\n"
