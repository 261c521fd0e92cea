"""`crashkit analyze`."""

from __future__ import annotations

import gc
import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import click

from crashkit.cli.ending import cleaned_up
from crashkit.cli.index_option import checked_index
from crashkit.cli.options import EvidencePath, at_most_one, path_map, system_files
from crashkit.errors import CrashkitError
from crashkit.history.address import NONE

if TYPE_CHECKING:
    from crashkit.debugger.gdb.ahead import Ahead
    from crashkit.model import Crash, SoftError

WRITTEN = ("json", "html")
"""The formats of a report on disk."""

_PATIENCE = 1.0
"""Seconds before the current stage is shown."""
_STAGES = {"gdb": "reading stacks with gdb", "diagnose": "looking for known failures", "log": "reading"}


@click.command()
@click.argument("paths", nargs=-1, required=True, type=EvidencePath(), metavar="PATH...")
@system_files
@click.option("--libpython", type=click.Path(path_type=Path), help="CPython's libpython.py for the version that crashed. It is run.")
@click.option("--gdb", "gdb", default="gdb", show_default=True, metavar="PROGRAM", help="The gdb to use.")
@click.option("--no-gdb", is_flag=True, help="Do not use gdb.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=120.0, show_default=True, help="Time limit for gdb in seconds."
)
@click.option("--signatures", multiple=True, type=click.Path(path_type=Path), help="A folder with your own signatures.")
@click.option("--show-secrets", is_flag=True, help="Show what looks like a password, token or key, instead of masking it.")
@click.option("--locals/--no-locals", "show_locals", default=True, help="Show or omit the values of arguments and local variables.")
@click.option(
    "--index",
    envvar="CRASHKIT_INDEX",
    callback=checked_index,
    metavar="URL",
    help="Record the crash in this history: a file, or postgresql://... (see crashkit groups).",
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for report.html and report.json. [default: next to the first PATH]")
@click.option("--json", "as_json", is_flag=True, help="Print only the report, as JSON; write files only with --out.")
@click.option(
    "--markdown", "as_markdown", is_flag=True, help="Print only a summary in Markdown, for an issue; write files only with --out."
)
@click.option("--issue", "as_issue", is_flag=True, help="Print only a text for a public issue: no values, arguments, logs or folders.")
@click.option("--brief", is_flag=True, help="Print the answer without the stacks.")
@click.option("--quiet", "-q", is_flag=True, help="Print only errors.")
@click.option("--minimal-core", type=click.Path(path_type=Path), hidden=True, help="Also write a minimal core (crashkit run, bundle).")
@cleaned_up()
def command(
    paths: tuple[Path, ...],
    exe: Optional[Path],
    sysroot: Optional[Path],
    path_maps: tuple[str, ...],
    extra_dirs: tuple[Path, ...],
    debuginfod: bool,
    libpython: Optional[Path],
    gdb: str,
    no_gdb: bool,
    timeout: float,
    signatures: tuple[Path, ...],
    show_secrets: bool,
    show_locals: bool,
    index: Optional[str],
    out: Optional[Path],
    as_json: bool,
    as_markdown: bool,
    as_issue: bool,
    brief: bool,
    quiet: bool,
    minimal_core: Optional[Path],
) -> None:
    """Show where and why a process died, from its core or other evidence.

    All PATHs are evidence of one crash: a core (also .gz, .zst, .xz, .lz4, .bz2), a folder with one in it or below it, a crash folder, a
    bundle, a tar or zip archive of one crash, a log, a faulthandler dump, gdb output.
    Use - as PATH to read from standard input.
    """
    at_most_one(json=as_json, markdown=as_markdown, issue=as_issue)
    # What an analysis makes stays until its end: to look for garbage in it more seldom saves a tenth of the time.
    gc.set_threshold(50_000, 20, 50)
    # Before the rest is imported, which takes longer than a gdb to start. With files of another system it would read the wrong ones,
    # and for a minimal core it has to note what it reads.
    here = not (no_gdb or sysroot or path_maps or extra_dirs or minimal_core)
    with _started_gdb(paths, gdb, timeout) if here else nullcontext() as ahead:
        from crashkit.pipeline import Options, analyze

        options = Options(
            exe=exe,
            sysroot=sysroot,
            path_maps=tuple(map(path_map, path_maps)),
            extra_dirs=extra_dirs,
            debuginfod=debuginfod,
            libpython=libpython,
            gdb=None if no_gdb else gdb,
            deadline=timeout,
            signatures=signatures,
            show_secrets=show_secrets,
            locals=show_locals,
            minimal=minimal_core,
        )
        document = "json" if as_json else "markdown" if as_markdown else "issue" if as_issue else None
        writes = out is not None or document is None
        with Progress(quiet or document is not None, writes, answered=True) as progress:
            crash = analyze(paths, options=options, progress=progress.stage, ahead=ahead)
    folder = (out or default_folder(paths[0], crash)) if writes else None
    summary = _summary(crash, folder, brief) if document is None and not quiet else []
    if folder is not None:
        write_report(crash, folder)
    if document is not None:
        print_document(crash, document)
    _echo_summary(summary)
    if index is None:
        index = _history_of(paths[0])
    if index != NONE:
        _record(index, crash, paths[0])


@contextmanager
def _started_gdb(paths: Sequence[Path], program: str, deadline: float) -> Iterator[Optional[Ahead]]:
    from crashkit.debugger.gdb.ahead import begin

    ahead = begin(paths, program, deadline)
    try:
        yield ahead
    finally:
        if ahead is not None:
            ahead.close()


def _history_of(path: Path) -> str:
    """The history that knows a crash of the store already: that of the store; none for other evidence."""
    from crashkit.crashfolder.manifest import read_manifest
    from crashkit.crashfolder.store import home
    from crashkit.history.address import chosen

    manifest = read_manifest(path)
    known = manifest is not None and "record" in manifest and os.path.realpath(path.parent) == os.path.realpath(home())
    return chosen(None, {}, home()) if known else NONE


def _record(index: str, crash: Crash, path: Path) -> None:
    """Record the crash in the history; if that is away, say so and let it wait."""
    import socket

    from crashkit.crashfolder.manifest import read_manifest
    from crashkit.history.entry import of_crash
    from crashkit.history.record import record
    from crashkit.history.release import named
    from crashkit.report import safe

    entry = of_crash(crash, str(path.absolute()), host=socket.gethostname(), release=named(os.environ), manifest=read_manifest(path))
    problem = record(index, [entry]).problem
    if problem is not None:
        click.echo(f"crashkit: the crash is not in the history yet: {safe.line(str(problem))}\n{safe.line(problem.hint)}", err=True)


def print_document(crash: Crash, name: str) -> None:
    """Print the report on stdout in the format of this name, and nothing else."""
    from crashkit.report.renderer import renderer

    sys.stdout.buffer.write(renderer(name).render(crash))


def print_summary(crash: Crash, written: Optional[Path], brief: bool = False) -> None:
    """Print the summary on stdout; `written` is the folder of the report."""
    _echo_summary(_summary(crash, written, brief))


def _summary(crash: Crash, written: Optional[Path], brief: bool) -> list[str]:
    from crashkit.cli.stream import has_color, width
    from crashkit.report import text

    page = written / "report.html" if written else None
    return list(text.summary(crash, page, color=has_color(sys.stdout), width=width(sys.stdout), brief=brief))


def _echo_summary(lines: Sequence[str]) -> None:
    from crashkit.cli.stream import has_color

    for line in lines:
        click.echo(line, color=has_color(sys.stdout))


def write_report(crash: Crash, folder: Path, formats: Sequence[str] = WRITTEN) -> Path:
    """Write the report atomically in these formats, readable by this user only. Raises CrashkitError if writing fails."""
    from msgspec.structs import replace  # gdb is to be started before

    from crashkit.attempt import attempt
    from crashkit.report import safe
    from crashkit.report.renderer import renderer

    problems: list[SoftError] = []
    documents: dict[str, bytes] = {}
    # JSON last: it says what became of the others.
    for one in (renderer(name) for name in sorted(formats, key=lambda name: name == "json")):
        told = replace(crash, soft_errors=(*crash.soft_errors, *problems))
        documents[one.file] = attempt("report", f"the writer of {one.file}", partial(one.render, told), b"", problems)
    documents = {name: content for name, content in documents.items() if content}
    for problem in problems:
        click.echo(f"crashkit: {safe.line(problem.message)}\n{safe.line(problem.hint or '')}", err=True)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in documents.items():
            unfinished = folder / f".{name}.{os.getpid()}"
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                unfinished.replace(folder / name)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
    except OSError as error:
        message = f"cannot write the report to {folder}: {error.strerror}"
        raise CrashkitError(message, "Choose another folder with --out DIR.") from error
    return folder


def default_folder(path: Path, crash: Crash) -> Path:
    """The folder next to the input, or in the working directory if the input is not a file or its folder is not writable."""
    try:
        regular = stat.S_ISREG(path.stat().st_mode) or stat.S_ISDIR(path.stat().st_mode)
    except OSError:
        regular = False
    if regular and os.access(path.absolute().parent, os.W_OK):
        return path.absolute().with_name(f"{path.absolute().name}-report")
    return Path.cwd() / f"crashkit-report-{crash.id or 'unknown'}"


def _rehearse(crash: Crash) -> None:
    """Render what is known so far, to no use but that the report takes half as long to render then."""
    from crashkit.attempt import attempt
    from crashkit.report.renderer import renderer

    for name in (*WRITTEN, "text"):
        attempt("report", f"a rehearsal of {name}", partial(renderer(name).render, crash), b"", [])


class Progress:
    """Progress on stderr: the first answer before gdb starts, then any stage that takes longer than a second."""

    def __init__(self, quiet: bool, renders: bool = True, answered: bool = False) -> None:
        """`answered`: the whole answer follows on stdout. Where that is the same terminal, it takes the place of the first one."""
        self._quiet = quiet
        self._renders = renders
        self._answered = answered
        self._first: list[str] = []
        self._stage = ""
        self._say: Callable[[str], None] = _echo
        self._began = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Progress:
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(self, failed: Optional[type[BaseException]], *_: object) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        if failed is None and self._first and self._answered and sys.stdout.isatty() and _draws():
            _erase(self._first)

    def stage(self, name: str, so_far: Callable[[], Crash]) -> None:
        """Note that a stage begins; before gdb, print what is known already."""
        if name == "rehearsal":
            if self._renders:
                _rehearse(so_far())
            return
        if name == "gdb" and not self._quiet:
            from crashkit.report.first_answer import first_answer

            for row in first_answer(so_far()).split("\n"):
                self._first.append(_wrapped(row))
                self._say(self._first[-1])
        self._stage = name

    def _watch(self) -> None:
        if self._done.wait(_PATIENCE):
            return
        if _draws():
            self._draw()
        else:
            click.echo(f"{self._what} …", err=True)

    def _draw(self) -> None:
        from rich.status import Status

        from crashkit.cli import terminal

        console = terminal.console(sys.stderr)
        with Status(self._text(), console=console, spinner="line") as status:
            # What else is said meanwhile goes above it.
            self._say = console.print
            while not self._done.wait(0.2):
                status.update(self._text())
            self._say = _echo

    def _text(self) -> str:
        return f"{self._what} … {time.monotonic() - self._began:.0f} s"

    @property
    def _what(self) -> str:
        return _STAGES.get(self._stage, self._stage) or "reading the evidence"


def _draws() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _erase(rows: Sequence[str]) -> None:
    """Erase what is the last on the terminal."""
    from rich.cells import cell_len

    columns = shutil.get_terminal_size().columns
    lines = sum(max(1, -(-cell_len(line) // columns)) for row in rows for line in row.split("\n"))
    click.echo(f"\x1b[{lines}A\x1b[J", nl=False, err=True)


def _echo(row: str) -> None:
    click.echo(row, err=True)


def _wrapped(row: str) -> str:
    """For the terminal; elsewhere as it is."""
    if not sys.stderr.isatty():
        return row
    return click.wrap_text(row, width=shutil.get_terminal_size().columns)
