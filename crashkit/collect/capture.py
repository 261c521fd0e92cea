"""`--capture ptrace`: gdb traces the command and its children, and saves a core or the stacks at a fatal signal.

For systems where the kernel hands cores to another program, such as most containers. gdb runs gdb_scripts/crashkit_capture.py.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
from collections.abc import Callable
from pathlib import Path

from crashkit import isolation
from crashkit.collect.supervise.sighting import say
from crashkit.collect.supervise.spawn import SpawnError, spawn
from crashkit.environment import for_tool
from crashkit.errors import CollectError
from crashkit.gdb_files import SAFE_START, gdb_file

_ATTACH_DEADLINE = 30.0


def script() -> Path:
    """The script that gdb runs while it traces. Raises CollectError if it is not installed."""
    found = gdb_file("crashkit_capture.py")
    if found is None:
        raise CollectError("crashkit's gdb scripts are missing from the installation", "Reinstall crashkit.")
    return found


def watcher(folder: Path, keep_core: bool) -> Callable[[int], int]:
    """A function that attaches gdb to a pid and returns gdb's pid; after a failure it prints why, and returns 0 if gdb did not start.

    Raises CollectError if gdb's script is not installed.
    """
    program, commands = isolation.find_program("gdb"), script()

    def watch(pid: int) -> int:
        if program is None:
            say("gdb is not installed; the command is not traced")
            return 0
        reader, writer = os.pipe()
        os.set_inheritable(writer, True)
        environment = {
            **for_tool(os.environ),
            "CRASHKIT_CAPTURE_FOLDER": str(folder),
            "CRASHKIT_CAPTURE_CORE": "1" if keep_core else "0",
            "CRASHKIT_CAPTURE_READY": str(writer),
        }
        log = os.open(folder / "gdb.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            gdb = spawn(
                [program, *SAFE_START, "-batch", "-p", str(pid), "-x", str(commands)],
                environment,
                set(),
                {0: nothing, 1: log, 2: log},
                _apart,
            )
        except SpawnError as error:
            say(f"{error}; the command is not traced")
            return 0
        finally:
            for descriptor in (writer, log, nothing):
                os.close(descriptor)
        ready = bool(select.select([reader], [], [], _ATTACH_DEADLINE)[0]) and os.read(reader, 1) == b"."
        os.close(reader)
        if not ready:
            with contextlib.suppress(OSError):
                os.kill(gdb, signal.SIGKILL)
            say(f"gdb could not attach to the command, so it is not traced: {_last_words(folder / 'gdb.log')}")
        return gdb

    return watch


def _apart() -> None:
    os.chdir(isolation.NEUTRAL_FOLDER)  # gdb aborts where its working directory was removed
    os.setsid()  # a terminal's Ctrl-C is for the command
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # gdb's own crash is no crash of the command


def _last_words(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "gdb printed nothing"
    return "gdb printed nothing"
