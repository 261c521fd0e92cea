"""`crashkit ci`."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import click

from crashkit.cli import options
from crashkit.cli.completion import files
from crashkit.cli.ending import cleaned_up
from crashkit.cli.index_option import checked_index
from crashkit.errors import CrashkitError
from crashkit.history.address import NONE

if TYPE_CHECKING:
    from crashkit.batch.job import Done
    from crashkit.history.entry import Entry as Recorded
    from crashkit.history.place import Run
    from crashkit.report.index.document import Index

_SHOWN = 10
"""Groups on the terminal."""
_MOST_INDEX = 256 << 20


@click.command()
@click.argument("paths", nargs=-1, required=True, shell_complete=files, metavar="PATH...")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for index.html, the reports and the summaries.")
@click.option(
    "--repo",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The checked-out repository: annotations name the innermost frame in its own code.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["never", "crash", "new"]),
    default="never",
    show_default=True,
    help="Exit with status 1 if there is any crash, or only if there is a new one: not in the baseline or, without one, in the history.",
)
@click.option("--baseline", type=click.Path(path_type=Path), help="The index.json of an earlier run: says which crashes are new.")
@click.option(
    "--index",
    "address",
    envvar="CRASHKIT_INDEX",
    callback=checked_index,
    metavar="URL",
    help="Record the crashes in this history, and show what it knows of them: a file, or postgresql://... (see crashkit groups).",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Number of crashes to analyze at a time. [default: the number of processors]")
@click.option("--scheduler", metavar="ADDRESS", help="Analyze on the Dask cluster of this scheduler, such as tcp://host:8786.")
@options.sysroot
@options.path_maps
@options.extra_dirs
@click.option("--gdb", default="gdb", show_default=True, metavar="PROGRAM", help="The gdb to use.")
@click.option("--no-gdb", is_flag=True, help="Do not use gdb.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    help="Time limit for gdb in seconds, per crash.",
)
@click.option("--signatures", multiple=True, type=click.Path(path_type=Path), help="A folder with your own signatures.")
@click.option("--locals/--no-locals", "show_locals", default=True, help="Show or omit the values of arguments and local variables.")
@click.option("--quiet", "-q", is_flag=True, help="Print only errors.")
@cleaned_up()
def command(
    paths: tuple[str, ...],
    out: Path,
    repo: Optional[Path],
    fail_on: str,
    baseline: Optional[Path],
    address: Optional[str],
    jobs: Optional[int],
    scheduler: Optional[str],
    sysroot: Optional[Path],
    path_maps: tuple[str, ...],
    extra_dirs: tuple[Path, ...],
    gdb: str,
    no_gdb: bool,
    timeout: float,
    signatures: tuple[Path, ...],
    show_locals: bool,
    quiet: bool,
) -> int:
    """Find, analyze and group all crashes among the artefacts of a run.

    PATHs are folders, files and zip or tar archives with cores, GPU cores, crash folders, logs and JUnit files, in any number and under
    any name; or URLs that fsspec reads. Writes into --out: index.html with a report for each crash, index.json (a later run's
    --baseline), summary.md (for a job's summary), crashes.sarif, junit.xml and gl-code-quality-report.json. Under GitHub Actions it
    prints annotations, too.
    """
    from crashkit.batch.job import Recording, Task
    from crashkit.batch.remember import remembered
    from crashkit.batch.remote import local
    from crashkit.batch.run import analyzed, plan
    from crashkit.history.place import run_of
    from crashkit.pipeline import Options
    from crashkit.scratch import Scratch

    if scheduler and jobs:
        raise click.UsageError("--jobs cannot be used with --scheduler: the cluster has its own workers")
    began = time.time()
    address = None if address == NONE else address
    if fail_on == "new" and baseline is None and address is None:
        raise click.UsageError("--fail-on new needs --baseline FILE, the index.json of an earlier run, or the history of --index URL")
    former = _former(baseline) if baseline else None
    chosen = Options(
        sysroot=sysroot and sysroot.absolute(),
        path_maps=tuple((before, after.absolute()) for before, after in map(options.path_map, path_maps)),
        extra_dirs=tuple(folder.absolute() for folder in extra_dirs),
        gdb=None if no_gdb else gdb,
        deadline=timeout,
        signatures=tuple(folder.absolute() for folder in signatures),
        locals=show_locals,
    )
    _prepare(out)
    with _Progress(quiet) as progress, Scratch("ci") as scratch:
        given = local(paths, scratch)
        _refuse_nothing(given)
        progress.say("looking for crashes")
        work = plan(given, scratch, progress.looked)
        progress.begin(len(work.jobs))
        run = run_of(os.environ)
        recording = Recording(place=_place(run, out), host=socket.gethostname(), release=_release(repo)) if address else None
        task = Task(options=chosen, out=out.absolute(), repository=repo and repo.absolute(), recording=recording)
        recorded: dict[int, Recorded] = {}

        def done(result: Done) -> None:
            progress.done()
            if result.recorded is not None:
                recorded[result.number] = result.recorded

        index = analyzed(work, task, jobs or len(os.sched_getaffinity(0)), done, former, scheduler)
    away = None
    if address:
        index, away = remembered(index, address, recorded, began, run.address if run else None)
    _write(index, out)
    if not quiet:
        _show(index, out)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        from crashkit.report.index import annotations

        for line in annotations.lines(index):
            click.echo(line)
    if away is not None:
        _say_away(away)
        if fail_on == "new" and former is None and index.entries:
            raise CrashkitError("cannot tell which crashes are new: the history is unavailable", "Pass --baseline FILE, or try again.")
    return _status(index, fail_on)


def _place(run: Optional[Run], out: Path) -> str:
    """Where the history says that the crashes are."""
    return run.place if run else str(out.absolute())


def _release(repository: Optional[Path]) -> str:
    """The version of the program, as the environment names it; else the commit of the repository."""
    from crashkit.history.release import commit_of, named

    return named(os.environ) or (commit_of(repository.absolute()) if repository else "")


def _say_away(problem: CrashkitError) -> None:
    from crashkit.report import safe

    said = f"the crashes are not in the history yet: {safe.line(str(problem))}"
    click.echo(f"crashkit: {said}\n{safe.line(problem.hint)}", err=True)


def _status(index: Index, fail_on: str) -> int:
    new = sum(group.new for group in index.groups)
    if fail_on == "crash" and index.entries:
        raise CrashkitError(
            f"crashes found: {len(index.entries)}", "See index.html. To report crashes without failing, pass --fail-on never."
        )
    if fail_on == "new" and new:
        before = "baseline" if index.has_baseline else "history"
        raise CrashkitError(f"crashes found that are not in the {before}: {new}", "See index.html, which lists them first.")
    return 0


def _former(path: Path) -> Index:
    from crashkit.report.index.document import decode

    try:
        with path.open("rb") as file:
            return decode(file.read(_MOST_INDEX))
    except OSError as error:
        raise CrashkitError(f"cannot read the baseline {path}: {error.strerror}", "Pass the index.json of an earlier run.") from error


def _refuse_nothing(given: list[tuple[Path, str]]) -> None:
    """Some paths may be missing, because the step that makes them failed; with none of them something is wrong with the command."""
    if not any(os.path.lexists(path) for path, _ in given):
        names = ", ".join(shown for _, shown in given[:3])
        raise CrashkitError(f"nothing to analyze: {names} does not exist", "Check the path; it is relative to the working directory.")


def _prepare(out: Path) -> None:
    """Reports of an earlier run make way; a folder that is not ours is left as it is."""
    from crashkit.batch.one import FOLDER
    from crashkit.report.index.document import FILE

    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (out / FILE).is_file() and not (out / FOLDER).is_symlink():
            shutil.rmtree(out / FOLDER, ignore_errors=True)
        (out / FOLDER).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CrashkitError(f"cannot write to {out}: {error.strerror}", "Choose another folder with --out DIR.") from error


def _write(index: Index, out: Path) -> None:
    """All summaries, readable by this user only."""
    from crashkit.report.index import code_quality, document, html, junit, markdown, sarif

    documents: dict[str, Callable[[Index], bytes]] = {one.FILE: one.render for one in (html, markdown, sarif, junit, code_quality)}
    for name, render in {**documents, document.FILE: document.encode}.items():
        unfinished = out / f".{name}.{os.getpid()}"
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(render(index))
            unfinished.replace(out / name)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise CrashkitError(f"cannot write {out / name}: {error.strerror}", "Choose another folder with --out DIR.") from error


def _show(index: Index, out: Path) -> None:
    from crashkit.cli import terminal
    from crashkit.report.index import html, wording

    terminal.show(terminal.line(wording.counts(index), style="bold"))
    for group in index.groups[:_SHOWN]:
        entries = index.members(group)
        first = entries[0]
        trend = f" ({wording.trend(group)})" if wording.trend(group) else ""
        at = wording.at(first)
        terminal.show(terminal.line(f"{len(entries)} x {first.signal or '-'}{trend}  {at or first.what}", style="red"))
        rows = [
            ("", first.failed or (first.what if at else None)),
            ("cause", first.cause),
            ("test", wording.several(entry.test for entry in entries)),
        ]
        rows += [("report", str(out / first.report) if first.report else None)]
        told = [(terminal.line(name), terminal.line(value)) for name, value in rows if value]
        terminal.show(terminal.columns(told, indent=2))
    if len(index.groups) > _SHOWN:
        terminal.show(terminal.line(f"and {len(index.groups) - _SHOWN} more groups"))
    for error in index.soft_errors[:_SHOWN]:
        terminal.show(terminal.line(f"crashkit: {error.message}"), err=True)
    if len(index.soft_errors) > _SHOWN:
        terminal.show(terminal.line(f"crashkit: and {len(index.soft_errors) - _SHOWN} more problems: see index.html"), err=True)
    terminal.show(terminal.columns([(terminal.line("index"), terminal.line(str(out / html.FILE)))]))


class _Progress:
    """On a terminal a bar; elsewhere a line as each part begins."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._draws = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> _Progress:
        if self._draws:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            from crashkit.cli import terminal

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=terminal.console(sys.stderr), transient=True)
            self._bar.start()
            self._row = self._bar.add_task("looking for crashes", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._draws:
            self._bar.stop()

    def say(self, what: str) -> None:
        """A part begins."""
        if not self._draws and not self._quiet:
            click.echo(f"{what} …", err=True)

    def looked(self, files: int, artefacts: int) -> None:
        """So many files were looked at."""
        if self._draws:
            self._bar.update(self._row, completed=files, description=f"looking for crashes: {artefacts} pieces of evidence")

    def begin(self, crashes: int) -> None:
        """So many crashes are analyzed now."""
        if self._draws:
            self._bar.reset(self._row, total=crashes, description="analyzing")
        elif crashes:
            self.say(f"analyzing {crashes} {'crash' if crashes == 1 else 'crashes'}")

    def done(self) -> None:
        """One is."""
        if self._draws:
            self._bar.advance(self._row)
