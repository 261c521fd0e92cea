"""`crashkit bundle`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import click

from crashkit.cli.completion import stored_ids_and_files
from crashkit.cli.ending import cleaned_up
from crashkit.cli.options import path_map, system_files

if TYPE_CHECKING:
    from crashkit.bundling import Bundled

_KINDS = {
    "core": ("core", "cores"),
    "gpu-core": ("GPU core", "GPU cores"),
    "log": ("log", "logs"),
    "module": ("module", "modules"),
    "unwind-tables": ("module's unwind tables", "modules' unwind tables"),
    "debug-info": ("debug file", "debug files"),
    "source": ("source file", "source files"),
}
"""What is counted on the terminal, and how it is called."""


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH|ID...", shell_complete=stored_ids_and_files)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The bundle to write. [default: ID.tar.zst in the working directory]")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@system_files
@click.option("--no-gdb", is_flag=True, help="Do not use gdb to find out which files are needed.")
@click.option("--minimal", is_flag=True, help="Bundle a small core with only the memory that the report and debuggers need.")
@click.option("--quiet", "-q", is_flag=True, help="Print only the path of the bundle.")
@cleaned_up()
def command(
    paths: tuple[str, ...],
    output: Optional[Path],
    force: bool,
    exe: Optional[Path],
    sysroot: Optional[Path],
    path_maps: tuple[str, ...],
    extra_dirs: tuple[Path, ...],
    debuginfod: bool,
    no_gdb: bool,
    minimal: bool,
    quiet: bool,
) -> None:
    """Put a crash and what another machine needs to analyze it into one file.

    All PATHs are evidence of one crash, as for analyze; ID is a crash of the store. On the other machine: crashkit analyze FILE.

    The core in it is not masked: it holds what the process had in memory, passwords and keys included. With --minimal it holds a few
    percent of that, and what looks like a secret is left out.
    """
    from crashkit.bundling import bundle
    from crashkit.cli.analyze import Progress
    from crashkit.pipeline import Options
    from crashkit.report import safe

    if output is not None and not output.name.endswith(".tar.zst"):
        raise click.BadParameter(f"the name of a bundle must end in .tar.zst: {output.name!r}", param_hint="--output")
    options = Options(
        exe=exe,
        sysroot=sysroot,
        path_maps=tuple(map(path_map, path_maps)),
        extra_dirs=extra_dirs,
        debuginfod=debuginfod,
        gdb=None if no_gdb else "gdb",
    )
    places = [_place(text, paths) for text in paths]
    with Progress(quiet=quiet, renders=False) as progress:
        made = bundle(places, output, options=options, replace=force, progress=progress.stage, minimal=minimal)
    _tell(made, quiet)
    for place in places:
        if not place.exists():
            click.echo(f"crashkit: {safe.line(str(place))} does not exist: it is not in the bundle", err=True)


def _place(text: str, paths: tuple[str, ...]) -> Path:
    """A path, or else a crash of the store. Raises CollectError if it is neither and nothing else is there, EvidenceError for a URL."""
    from crashkit.crashfolder.store import Store, home
    from crashkit.errors import CollectError
    from crashkit.evidence.place import local_path

    path = local_path(text)
    if path.exists() or "/" in text or not home().exists():
        return path
    try:
        return Store().find(text).path
    except CollectError:
        # Beside others that are there, one that is gone is a warning, as for analyze.
        if any(local_path(other).exists() for other in paths):
            return path
        raise


def _tell(made: Bundled, quiet: bool) -> None:
    from crashkit.cli.list import size
    from crashkit.report import safe

    if quiet:
        click.echo(safe.line(str(made.path)))
        return
    counts = Counter(file.kind for file in made.manifest.files)
    told = [f"{counts[kind]} {names[counts[kind] > 1]}" for kind, names in _KINDS.items() if counts[kind]]
    click.echo(safe.line(f"{made.path}: {size(made.size)}: {', '.join(told)}"))
    if made.manifest.missing:
        count = len(made.manifest.missing)
        click.echo(f"{count} of its modules {'is' if count == 1 else 'are'} not on this machine; {safe.line(made.manifest.missing[0])}")
    if made.manifest.warning:
        click.echo(f"crashkit: {made.manifest.warning}", err=True)
