"""A parent that raises its child's signal again, as loaders and wrappers do, is no second crash; one that fails by itself is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collect.conftest import DEADLINE, SEGFAULT, Crashkit
from tests.collect.test_crashes import _watches_by_pidfd
from tests.collect.test_transparent import _state, _wait_for
from tests.crashes import CRASHERS, NO_COMPILER, NO_NAMESPACES, PATTERN

PARENT = f"""\
import os, signal, subprocess, sys
ended = subprocess.run([sys.executable, "-c", {SEGFAULT!r}])
signal.signal(-ended.returncode, signal.SIG_DFL)
os.kill(os.getpid(), -ended.returncode)
"""


@pytest.fixture
def loader(tmp_path: Path) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip(NO_COMPILER)
    made = tmp_path / "loader"
    subprocess.run([compiler, CRASHERS / "loader.c", "-o", made], check=True, timeout=DEADLINE)
    return made


def of_child(crashkit: Crashkit) -> None:
    """There is one crash, the child's."""
    (crash,) = crashkit.crashes()
    # Of a child that was gone before it was seen, the core tells the command line as one text.
    assert " ".join(crash["argv"][1:]) == f"-c {SEGFAULT}" and not crash["is_command"]
    assert crashkit.leftovers() == [] and list(crashkit.cwd.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raise", "kill", "without core"])
def test_a_loader(crashkit: Crashkit, loader: Path, how: str) -> None:
    result = crashkit.run(loader, how, sys.executable, "-c", SEGFAULT)
    assert result.returncode == 128 + signal.SIGSEGV
    of_child(crashkit)
    assert "loader[" in result.stderr and "only passed on the SIGSEGV of its child " in result.stderr


@pytest.mark.slow
def test_a_loader_of_a_loader(crashkit: Crashkit, loader: Path) -> None:
    crashkit.run(loader, "raise", loader, "without core", sys.executable, "-c", SEGFAULT)
    of_child(crashkit)


UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.mark.slow
@pytest.mark.parametrize("where", [(), (*UNSHARE, "sh", "-c", '"$@"; exit $?', "sh")], ids=["here", "in a namespace"])
@pytest.mark.parametrize("how", ["raise", "without core"])
def test_a_loader_of_a_loader_on_a_busy_machine(crashkit: Crashkit, loader: Path, how: str, where: tuple[str, ...]) -> None:
    """The supervisor does not run before all of them are gone: the one in the middle leaves no snapshot.

    In a namespace of its own, the kernel does not report that one's end either.
    """
    if where and subprocess.run([*UNSHARE, "true"], capture_output=True).returncode:
        pytest.skip(NO_NAMESPACES)
    if os.geteuid() and PATTERN.read_text().strip() == "core" and PATTERN.with_name("core_uses_pid").read_text().strip() == "0":
        pytest.skip("while the supervisor is stopped, all cores get the name `core`, and only root has those that lost it")
    command = ("sh", "-c", 'kill -STOP $PPID; exec "$@"', "sh", loader, "raise", loader, how, sys.executable, "-c", SEGFAULT)
    started = [*where, *crashkit.argv("run", "--no-analyze", "--", *command)]
    process = subprocess.Popen(started, cwd=crashkit.cwd, env=crashkit.environment, stderr=subprocess.PIPE)
    _wait_for(lambda: _stopped_above_ended(process.pid) is not None)
    os.kill(_stopped_above_ended(process.pid) or 0, signal.SIGCONT)
    process.communicate(timeout=DEADLINE)
    of_child(crashkit)


def _stopped_above_ended(pid: int) -> int | None:
    """The stopped process, this one or below it, that has a child which has ended and was not waited for."""
    below = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    if _state(pid) == "T":
        return pid if "Z" in map(_state, below) else None
    return next((found for child in below if (found := _stopped_above_ended(child)) is not None), None)


@pytest.mark.slow
def test_timeout_of_coreutils(crashkit: Crashkit) -> None:
    if shutil.which("timeout") is None:
        pytest.skip("needs timeout(1)")
    result = crashkit.run("timeout", DEADLINE, sys.executable, "-c", SEGFAULT)
    assert result.returncode == 128 + signal.SIGSEGV
    of_child(crashkit)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "number"), [("another", signal.SIGABRT), ("fault", signal.SIGSEGV)])
def test_a_parent_that_fails_by_itself(crashkit: Crashkit, loader: Path, how: str, number: int) -> None:
    crashkit.run(loader, how, sys.executable, "-c", SEGFAULT)
    assert {(crash["is_command"], crash["signal"]) for crash in crashkit.crashes()} == {(False, signal.SIGSEGV), (True, number)}


@pytest.mark.slow
def test_a_parent_with_an_interpreter(crashkit: Crashkit) -> None:
    """What its Python code did is worth a report of its own."""
    crashkit.python(PARENT)
    assert sorted(crash["is_command"] for crash in crashkit.crashes()) == [False, True]


@pytest.mark.slow
def test_a_child_that_dies_at_once(crashkit: Crashkit, loader: Path) -> None:
    """Only its core tells whose child it was."""
    inner = crashkit.script("inner.sh", f"read line; exec {loader} 'without core' sh -c 'kill -SEGV $$'\n")
    process = crashkit.start("run", "--no-analyze", "--", "sh", "-c", f"sh {inner}; exit 0", stdin=subprocess.PIPE)
    _wait_for(lambda: _watches_by_pidfd(process.pid))
    process.communicate("\n", timeout=DEADLINE)
    (crash,) = crashkit.crashes()
    assert any(file["kind"] == "core" for file in crash["files"]), "the child's"
