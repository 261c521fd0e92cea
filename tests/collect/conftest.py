"""Runs `crashkit run` as users do, in a process of its own, with a crash store of the test's own."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests import crashes

ROOT = Path(__file__).parent.parent.parent
DEADLINE = 240

SEGFAULT = "import ctypes; ctypes.string_at(0)"


def private(folder: Path) -> bool:
    """Whether nobody else can enter the folder and those in it, or read what is in them."""
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in (folder, *folder.rglob("*"))}
    return modes <= {(True, 0o700), (False, 0o600)}


_ROUNDS = 1000
"""What is killed may have started something meanwhile."""


def _processes() -> list[int]:
    names = (path.name for path in Path("/proc").iterdir())
    return [int(name) for name in names if name.isdigit() and int(name) != os.getpid()]


def _environment(pid: int) -> list[bytes]:
    """The variables with which a process was started, each with its value; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


class Crashkit:
    """The command line, with a store and a working directory below the test's folder."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "store"
        self.cwd = folder / "cwd"
        self.cwd.mkdir()
        self.environment = {**os.environ, "CRASHKIT_HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        self.environment.pop("PYTHONFAULTHANDLER", None)
        self._started: list[subprocess.Popen[Any]] = []

    def argv(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "crashkit", *map(str, arguments)]

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[Any]:
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        options.setdefault("start_new_session", True)
        process = subprocess.Popen(self.argv(*arguments), cwd=options.pop("cwd", self.cwd), env=self.environment, **options)
        self._started.append(process)
        return process

    def __call__(self, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=DEADLINE)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def run(self, *command: object, options: tuple[object, ...] = ("--no-analyze",), **popen: Any) -> subprocess.CompletedProcess[str]:
        """`crashkit run` without the analysis, which is slow and tested elsewhere."""
        return self("run", *options, "--", *command, **popen)

    def python(self, code: str, options: tuple[object, ...] = ("--no-analyze",), **popen: Any) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-c", textwrap.dedent(code), options=options, **popen)

    def script(self, name: str, code: str) -> Path:
        path = self.cwd / name
        path.write_text(textwrap.dedent(code))
        return path

    def crashes(self) -> list[dict[str, Any]]:
        """The manifests in the store, oldest first, each with its `folder`."""
        found = []
        for path in sorted(self.home.glob("[!.]*/manifest.json"), key=lambda path: path.stat().st_mtime_ns):
            found.append({**json.loads(path.read_text()), "folder": path.parent})
        return found

    def leftovers(self) -> list[Path]:
        """Work in progress that should be gone."""
        return list(self.home.glob(".*"))

    def end(self) -> None:
        """End all that was started, and what that has left: a test that fails may leave a server, which belongs to no process any more."""
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        ours = f"CRASHKIT_HOME={self.home}".encode()
        for _ in range(_ROUNDS):
            left = [pid for pid in _processes() if ours in _environment(pid)]
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                break


@contextmanager
def runner_in(folder: Path) -> Iterator[Crashkit]:
    """crashkit with its files in this folder, while processes leave their cores where they die; skips the test where that cannot be had."""
    with ExitStack() as stack:
        stack.enter_context(crashes.lock(crashes.PATTERN_LOCK, shared=True))
        if not crashes.leaves_core_in_cwd(crashes.PATTERN.read_text()):
            pytest.skip(crashes.CORES_GO_ELSEWHERE)
        if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
            pytest.skip(crashes.NO_CORES)
        runner = Crashkit(folder)
        stack.callback(runner.end)
        yield runner
        now = crashes.PATTERN.read_text()
        assert crashes.leaves_core_in_cwd(now), f"another test run, whose lock is not ours (in a container?), set core_pattern to {now!r}"


@pytest.fixture
def crashkit(tmp_path: Path) -> Iterator[Crashkit]:
    with runner_in(tmp_path) as runner:
        yield runner
