"""`crashkit gdb`."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Optional

import click

from crashkit.cli import options
from crashkit.cli.completion import stored_ids_and_files

_KEPT = ("TERM", "COLORTERM", "COLUMNS", "LINES", "LANG", "LC_ALL", "LC_CTYPE")


@click.command()
@click.argument("crash", metavar="[ID|CORE]", default="last", shell_complete=stored_ids_and_files)
@options.exe
@options.sysroot
@options.extra_dirs
@click.option("--libpython", type=click.Path(path_type=Path), help="CPython's libpython.py for the version that crashed. It is run.")
@click.option("--gdb", "program", default="gdb", show_default=True, metavar="PROGRAM", help="The gdb to use.")
@click.option("--command", "-c", "commands", multiple=True, metavar="COMMAND", help="Run this gdb command and exit; repeat it for more.")
def command(
    crash: str,
    exe: Optional[Path],
    sysroot: Optional[Path],
    extra_dirs: tuple[Path, ...],
    libpython: Optional[Path],
    program: str,
    commands: tuple[str, ...],
) -> int:
    """Open a crash in gdb, with symbols and CPython's commands loaded.

    By default, the newest crash of the store; ID may be a unique part of an id, or a pid. Modules are placed and found as for the
    report, by their build-ids. gdb loads nothing else by itself. Type quit to leave it.
    """
    from crashkit import isolation
    from crashkit.debugger.gdb.interactive import command_line
    from crashkit.errors import EvidenceError
    from crashkit.evidence.core.describe import describe
    from crashkit.evidence.module_files import Finder
    from crashkit.evidence.pieces import sort_out
    from crashkit.pipeline import Options, absolute, crash_folders, gdb_settings
    from crashkit.scratch import Scratch

    if not commands and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise EvidenceError("gdb needs a terminal", "Pass its commands: crashkit gdb ID --command bt.")
    path = _path(crash)
    chosen = absolute(Options(exe=exe, sysroot=sysroot, extra_dirs=extra_dirs, libpython=libpython, gdb=program))
    finder = Finder(chosen.sysroot, chosen.path_maps, chosen.extra_dirs, chosen.debuginfod)
    with ExitStack() as stack:
        pieces = sort_out([path], stack)
        if pieces.core is None or pieces.core_input is None:
            raise EvidenceError(f"there is no core in {path}", "Pass a core, or the id of a crash that has one: crashkit list.")
        scene = describe(pieces.core, pieces.core_input, finder, chosen.exe)
        if scene.forged is not None:
            raise EvidenceError(f"no kernel wrote this core: {scene.forged}", "gdb would trust it; use crashkit analyze instead.")
        folder = stack.enter_context(Scratch("gdb"))
        settings = gdb_settings(chosen, crash_folders([path]))
        started = command_line(pieces.core_input.path, scene, finder, settings, folder, commands)
        process = isolation.start(
            started,
            extra={name: os.environ[name] for name in _KEPT if name in os.environ},
            stdin=None if commands else 0,
            stdout=1,
            stderr=2,
        )
        # Ctrl-C is for gdb.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return min(process.wait(), 1)
        finally:
            signal.signal(signal.SIGINT, before)


def _path(crash: str) -> Path:
    """A file or folder of that name, else the crash of the store. Raises CollectError, EvidenceError for a URL."""
    from crashkit.evidence.place import local_path

    if local_path(crash).exists():
        return Path(crash).absolute()
    from crashkit.crashfolder.store import Store

    return Store().find(crash).path
