"""`crashkit demo`."""

from __future__ import annotations

import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from crashkit import isolation
from crashkit.errors import CollectError

if TYPE_CHECKING:
    from crashkit.collect.host.core_pattern import CorePattern

_SERVER = Path(__file__).parent.parent / "demo_server.py"
_SECONDS_TO_DIE = 60
_OURS = re.compile(r"core(\.\d+)?|stderr\.txt|report\.(html|json)")
"""What a demo leaves in its folder."""
_REQUESTS = (
    b"GET /thumbnail/cat HTTP/1.0\r\n\r\n",
    b"GET /thumbnail/dog HTTP/1.0\r\n\r\n",
    b"GET /thumbnail/bird HTTP/1.0\r\n\r\n",
    b"POST /upload/1 HTTP/1.0\r\nContent-Length: 4096\r\n\r\nthe rest of this never comes",
    b"POST /upload/2 HTTP/1.0\r\nContent-Length: 4096\r\n\r\nthe rest of this never comes",
    b"GET /thumbnail/broken HTTP/1.0\r\n\r\n",
)


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("crashkit-demo"),
    show_default=True,
    help="Folder for the core and its report; files from an earlier demo are replaced.",
)
def command(out: Path) -> None:
    """Crash a small server for real and show its report.

    A threaded HTTP server on 127.0.0.1 gets six requests at once; one of them passes a null pointer to native code. The core
    that the kernel writes is then analyzed like any other.
    """
    from crashkit.cli.analyze import Progress, print_summary, write_report
    from crashkit.pipeline import analyze

    folder = _fresh_folder(out)
    click.echo(f"Crashing a server that handles {len(_REQUESTS)} requests ...", err=True)
    core = crash_server(folder)
    click.echo(f"The server crashed and left {core} ({core.stat().st_size / 2**20:.0f} MiB).\n", err=True)
    with Progress(quiet=False, answered=True) as progress:
        crash = analyze([core], progress=progress.stage)
    print_summary(crash, write_report(crash, folder))
    click.echo(f"\nTo analyze a core of your own:  crashkit analyze {core}")


def _fresh_folder(out: Path) -> Path:
    """An empty folder for the core; only files from an earlier demo are removed. Raises CollectError if it holds anything else."""
    try:
        if out.is_dir() and (others := [path.name for path in out.iterdir() if not _OURS.fullmatch(path.name)]):
            raise CollectError(f"{out} contains other files, such as {min(others)}", "Choose a new folder with --out DIR.")
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        if out.is_symlink() or out.stat().st_uid != os.geteuid():
            raise CollectError(f"{out} is a link or belongs to another user", "Choose another folder with --out DIR.")
        for old in out.glob("core*"):
            if old.is_file():
                old.unlink()
    except OSError as error:
        raise CollectError(f"cannot use {out}: {error.strerror}", "Choose another folder with --out DIR.") from error
    return out.absolute()


def crash_server(folder: Path) -> Path:
    """Run the server in the folder until it has crashed; return the path of its core there.

    Raises CollectError if this machine writes no core; its hint says what to change.
    """
    from crashkit.collect.host import outlook

    pattern = outlook.read_pattern()
    fatal = next((problem for problem in outlook.judge(outlook.gather(str(folder))) if problem.fatal), None)
    if fatal:
        raise CollectError(f"a crash leaves no core here: {fatal.message}", fatal.mend)
    began = time.time()
    process = _serve_until_dead(folder)
    if process.returncode != -signal.SIGSEGV:
        raise CollectError(
            f"the server should have died of SIGSEGV, but its exit status was {process.returncode}", f"See {folder / 'stderr.txt'}."
        )
    return _fetch_core(folder, pattern, process.pid, began)


def _serve_until_dead(folder: Path) -> subprocess.Popen[bytes]:
    from crashkit.collect.host.limits import allow_core

    with (
        _private_file(folder / "stderr.txt") as stderr,
        _server(folder, stderr.fileno(), allow_core) as process,
        ExitStack() as connections,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.strip().isdigit():
            raise CollectError("the server did not start", f"See {folder / 'stderr.txt'}.")
        for request in _REQUESTS:
            connection = connections.enter_context(socket.create_connection(("127.0.0.1", int(line)), timeout=_SECONDS_TO_DIE))
            connection.sendall(request)
        try:
            process.wait(_SECONDS_TO_DIE)
        except subprocess.TimeoutExpired:
            raise CollectError(f"the server did not crash within {_SECONDS_TO_DIE} s", "Try again; the machine may be busy.") from None
        return process


def _private_file(path: Path) -> BinaryIO:
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


@contextmanager
def _server(folder: Path, stderr: int, before: Callable[[], object]) -> Iterator[subprocess.Popen[bytes]]:
    """The server process; it is killed on exit from the context."""
    command = isolation.python("-X", "faulthandler", str(_SERVER))
    process = isolation.start(command, folder=folder, keep=isolation.FOR_PYTHON, stdout=subprocess.PIPE, stderr=stderr, prepare=before)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def _fetch_core(folder: Path, pattern: CorePattern, pid: int, since: float) -> Path:
    from crashkit.collect.host import core_pattern, handlers

    core = folder / "core"
    if pattern.kind == "pipe":
        failure = handlers.fetch(pattern, pid, since, str(folder), core)
        if failure:
            raise CollectError(f"the crash left no core: {failure}", "Run crashkit doctor to see what to change.")
        return core
    name = core_pattern.resolve(pattern, {"p": str(pid), "s": str(int(signal.SIGSEGV))}, glob.escape(str(folder))) or ""
    written = [path for path in Path("/").glob(name.lstrip("/")) if path.stat().st_mtime >= since - 1]
    if not written:
        raise CollectError(f"the crash left no core at {name}", "Run crashkit doctor to see what to change.")
    newest = max(written, key=lambda path: path.stat().st_mtime)
    if newest != core:
        shutil.move(newest, core)
    return core
