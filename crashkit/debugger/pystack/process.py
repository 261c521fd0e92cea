"""One run of PyStack over one core, in a process of its own: if it dies, only its frames are lost."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Optional

from crashkit import isolation
from crashkit.elf.file import debug_link
from crashkit.limits import WHOLE_STACK
from crashkit.scratch import Scratch

_INNER, _OUTER = WHOLE_STACK, 200
_VARIABLES = 64
_TEXT = 200
_MEMORY = 8 << 30
"""Address space beyond that of the core, which PyStack maps as a whole."""
_MOST_RESULT = 256 << 20
_INSTALL = "Install it: pip install pystack."
_WORKER = Path(__file__).with_name("worker.py")
_NONE: Mapping[str, Path] = {}


class PystackFailed(Exception):
    """Why PyStack gave nothing, in words."""

    def __init__(self, message: str, hint: str, again: bool) -> None:
        super().__init__(message)
        self.hint = hint
        self.again = again
        """Whether a request for less may succeed."""


class Running:
    """What another thread needs to end a run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._ended = False

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """Note the process; ends it at once if `end` was called before."""
        with self._lock:
            self._process = process
            if self._ended:
                isolation.kill(process)

    def end(self) -> None:
        """Kill the process that runs, and every later one."""
        with self._lock:
            self._ended = True
            if self._process is not None and self._process.poll() is None:
                isolation.kill(self._process)


def run_pystack(
    core: Path,
    executable: Path,
    files: Mapping[str, Path],
    deadline: float,
    locals: bool,
    native: bool,
    running: Optional[Running] = None,
    debug: Mapping[str, Path] = _NONE,
    python: bool = True,
) -> list[dict[str, Any]]:
    """The rows of every thread, as the worker's docstring describes them. `deadline` is in seconds.

    `files` and `debug` are the modules and their separate debug files here, by the modules' paths in the core.

    Raises PystackFailed, and OSError where the temporary folder cannot be used.
    """
    if importlib.util.find_spec("pystack") is None or not sys.executable:
        raise PystackFailed("PyStack is not installed", _INSTALL, again=False)
    with Scratch("pystack") as folder:
        request, result = folder / "request", folder / "result"
        asked = {
            "path": isolation.module_path(),
            "core": str(core.absolute()),
            "executable": str(executable.absolute()),
            "search_path": _link(files, debug, folder / "modules"),
            "locals": locals,
            "native": native,
            "python": python,
            "inner": _INNER,
            "outer": _OUTER,
            "variables": _VARIABLES,
            "text": _TEXT,
            "memory": core.stat().st_size + _MEMORY,
        }
        request.write_text(json.dumps(asked))
        complaint = _run(request, result, deadline, running or Running())
        if not result.exists():
            raise PystackFailed(
                f"PyStack {complaint}", "With debug info for the interpreter, gdb and libpython.py can read Python frames.", again=True
            )
        return _read(result)


def _link(files: Mapping[str, Path], debug: Mapping[str, Path], folder: Path) -> str:
    """A folder with links to these files, for PyStack to search by name; '' where every file is at its path in the core.

    elfutils looks for their debug files in `.debug` beside them (libdwfl, find_debuginfo), and in this machine's /usr/lib/debug.
    """
    moved = {name: file for name, file in files.items() if str(file) != name and ":" not in name}
    if not moved:
        return ""
    folder.mkdir()
    for name, file in moved.items():
        with suppress(FileExistsError):
            Path(folder, PurePosixPath(name).name).symlink_to(file.absolute())
        if name in debug and (link := debug_link(file)):
            Path(folder, ".debug").mkdir(exist_ok=True)
            with suppress(OSError, ValueError):
                Path(folder, ".debug", link).symlink_to(debug[name].absolute())
    return str(folder)


def _run(request: Path, result: Path, deadline: float, running: Running) -> str:
    """How the worker ended, in words."""
    command = isolation.python(str(_WORKER), str(request), str(result))
    with tempfile.TemporaryFile() as complaints:
        process = isolation.start(command, keep=isolation.FOR_PYTHON, stderr=complaints, new_session=True)
        try:
            running.begin(process)
            _wait(process, max(deadline, 0.1))
        except subprocess.TimeoutExpired:
            _end(process)
            return f"did not finish within {deadline:.0f} s"
        except BaseException:
            _end(process)
            raise
        size = complaints.seek(0, os.SEEK_END)
        complaints.seek(max(0, size - 4096))
        last = complaints.read().decode("utf-8", "replace").strip().splitlines()[-1:]
    how = f"was killed by signal {-process.returncode}" if process.returncode < 0 else f"exited with status {process.returncode}"
    return f"{how}: {last[0][:300]}" if last else how


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """`Popen.wait` sleeps in steps of up to 50 ms, as long as half the answer takes; the kernel can wake us (5.3 and newer)."""
    with suppress(OSError):
        descriptor = os.pidfd_open(process.pid)
        try:
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            ended.poll(seconds * 1000)
        finally:
            os.close(descriptor)
        seconds = 0 if process.poll() is None else seconds
    process.wait(seconds)


def _end(process: subprocess.Popen[bytes]) -> None:
    isolation.kill(process)
    process.wait()


def _read(result: Path) -> list[dict[str, Any]]:
    if result.stat().st_size > _MOST_RESULT:
        raise PystackFailed("PyStack's output is too large", "The core may be damaged.", again=True)
    try:
        answer = json.loads(result.read_bytes())
    except ValueError as error:
        raise PystackFailed(
            "PyStack died while writing its output", "Free space in TMPDIR, or set it to another folder.", again=True
        ) from error
    if "error" in answer:
        message = " ".join(answer["error"].split())[:300]
        raise PystackFailed(f"PyStack could not read this core: {message}", "Pass the interpreter's executable with --exe.", again=True)
    threads: list[dict[str, Any]] = answer["threads"]
    return threads
