"""The one way to start a program that crashkit needs: nothing in the working directory or in the environment may run in its place.

Each program starts in a folder of its own choice, in an environment without what makes programs load code, and is found only in
absolute folders of PATH. A Python starts isolated (-I -S): it imports the standard library first, then what this process uses.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Optional, Union
from weakref import WeakSet

from crashkit.environment import LIBRARY_PATH, absolute_folders, for_tool

if TYPE_CHECKING:
    import subprocess

NEUTRAL_FOLDER = "/"
"""Where tools start: only root can put files there."""

FOR_PYTHON = (LIBRARY_PATH,)
"""What to `keep` of the environment for Python: it may need it to find its own libpython."""

_HOME = str(Path(__file__).absolute().parent.parent)
"""The folder that this crashkit was imported from."""

_File = Union[int, IO[bytes]]

_started: WeakSet[subprocess.Popen[bytes]] = WeakSet()


def find_program(name: str) -> Optional[str]:
    """The absolute path of a program; None if there is none. Relative folders in PATH do not count: they lead to the working directory.

    A name with a slash is a file that the user chose.
    """
    if os.sep in name:
        with suppress(FileNotFoundError):  # the working directory was removed
            return shutil.which(str(Path(name).absolute()))
        return None
    return shutil.which(name, path=absolute_folders(os.environ.get("PATH", os.defpath)))


def start(
    command: Sequence[str],
    *,
    folder: Union[str, Path] = NEUTRAL_FOLDER,
    keep: tuple[str, ...] = (),
    extra: Optional[Mapping[str, str]] = None,
    stdin: Optional[_File] = None,
    stdout: Optional[_File] = None,
    stderr: Optional[_File] = None,
    new_session: bool = False,
    prepare: Optional[Callable[[], object]] = None,
) -> subprocess.Popen[bytes]:
    """Start a program by its absolute path. `keep` is as in `for_tool`, `prepare` runs in the child before the program.

    `extra` variables are set as they are; streams that are not given are /dev/null. Raises OSError.
    """
    import subprocess  # not at the start of `crashkit run`, which may never need it

    if not command[0].startswith("/"):
        raise FileNotFoundError(f"{command[0]} is not an absolute path")
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**for_tool(os.environ, keep), **(extra or {})},
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.DEVNULL if stdout is None else stdout,
        stderr=subprocess.DEVNULL if stderr is None else stderr,
        start_new_session=new_session,
        preexec_fn=prepare,
    )
    _started.add(process)
    return process


def running() -> list[subprocess.Popen[bytes]]:
    """What `start` started and still runs."""
    return [process for process in list(_started) if process.poll() is None]


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program that `start` started and, if it has a session of its own, what it started in turn."""
    with suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def run(
    command: Sequence[str],
    seconds: float,
    *,
    folder: Union[str, Path] = NEUTRAL_FOLDER,
    keep: tuple[str, ...] = (),
    extra: Optional[Mapping[str, str]] = None,
    stdout: Optional[_File] = None,
    stderr: Optional[_File] = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with these variables as for `start`; streams that are not given are returned.

    Raises OSError, and subprocess.TimeoutExpired after `seconds`.
    """
    import subprocess

    pipe = subprocess.PIPE
    out, complaints = pipe if stdout is None else stdout, pipe if stderr is None else stderr
    process = start(command, folder=folder, keep=keep, extra=extra, stdout=out, stderr=complaints)
    with process:
        try:
            texts = process.communicate(timeout=seconds)
        except BaseException:
            process.kill()
            raise
    words = [(part or b"").decode("utf-8", "replace") for part in texts]
    return subprocess.CompletedProcess(command, process.returncode, *words)


def python(*arguments: str) -> list[str]:
    """The command of a Python like ours that imports nothing but the standard library. `start` it with `keep=FOR_PYTHON`."""
    return [sys.executable or "", "-I", "-S", *arguments]


def crashkit(*arguments: str) -> list[str]:
    """The command that runs this very crashkit, wherever it was imported from."""
    return entry("crashkit.cli", *arguments)


def entry(module: str, *arguments: str) -> list[str]:
    """The command that runs `main` of a module of this very crashkit."""
    return python("-c", f"import sys; sys.path += {module_path()!r}; from {module} import main; main()", *arguments)


def module_path() -> list[str]:
    """Where an isolated Python finds crashkit and what it depends on, to come after the standard library.

    That is what this process uses, however crashkit was installed, without the working directory: unless crashkit itself lies there,
    it is where packages are installed, or PYTHONPATH names it in full.
    """
    import site

    chosen = {*os.environ.get("PYTHONPATH", "").split(os.pathsep), *site.getsitepackages(), site.getusersitepackages()}
    others = [entry for entry in sys.path if entry.startswith("/") and (entry in chosen or not _is_working_folder(entry))]
    return list(dict.fromkeys([_HOME, *others]))


def _is_working_folder(folder: str) -> bool:
    with suppress(OSError):
        return Path(folder).samefile(os.curdir)
    return False
