"""A pid is no identity: another process may have it a moment later. What was seen of the first is not told of the second."""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashkit.collect.host.snapshot import ProcessSnapshot, snapshot, started
from crashkit.collect.supervise import process_tree
from crashkit.collect.supervise.process_tree import ProcessTree, pause


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-S", "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # Popen returns while the kernel still sets up the new program: /proc has no arguments of it then
        yield process
        process.kill()


@pytest.fixture
def before(child: subprocess.Popen[bytes]) -> ProcessSnapshot:
    """As if an earlier process had had the child's pid."""
    seen = snapshot(child.pid)
    assert seen is not None
    return seen._replace(start=seen.start - 1, argv=("earlier",), name="earlier", first_seen=0.0)


@pytest.fixture
def tree(before: ProcessSnapshot) -> ProcessTree:
    made = ProcessTree(select.poll())
    made._alive[before.pid] = before
    made._looked_again[before.pid] = 0.0
    return made


def test_the_next_one_is_seen_anew(tree: ProcessTree, child: subprocess.Popen[bytes]) -> None:
    tree.walk()
    found = tree.find(child.pid)
    assert found is not None and found.argv[0] == sys.executable and found.name != "earlier" and found.first_seen > 0


def test_a_death_is_not_told_of_the_earlier_one(tree: ProcessTree, child: subprocess.Popen[bytes], before: ProcessSnapshot) -> None:
    death = tree.reaped(child.pid, signal.SIGSEGV, before.start + 1)
    assert (death.pid, death.start, death.process) == (child.pid, before.start + 1, None)


def test_but_of_itself(tree: ProcessTree, child: subprocess.Popen[bytes], before: ProcessSnapshot) -> None:
    assert tree.reaped(child.pid, signal.SIGSEGV, before.start).process == before


def test_a_name_does_not_forge_a_start_time() -> None:
    """The command's name is the process's own choice."""
    forge = "open('/proc/self/comm', 'w').write('x) Z 1 2 3 4'); print(flush=True); input()"
    command = [sys.executable, "-I", "-S", "-c", forge]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seen = snapshot(process.pid)
        process.kill()
    assert seen is not None and (seen.name, seen.ppid) == ("x) Z 1 2 3 4", os.getpid())


FORKS = """
import os, sys
pid = os.fork()
if pid == 0:
    sys.stdin.readline()
    os.execve(sys.executable, [sys.executable, "-c", "print(flush=True); input()"], {"RANK": "3", "WORLD_SIZE": "4"})
print(pid, flush=True)
os.waitpid(pid, 0)
"""


def test_who_was_seen_between_fork_and_execve_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then it has the variables of its parent, and is no rank."""
    monkeypatch.setattr(process_tree, "_YOUNG", 1000.0)
    tree = ProcessTree(select.poll())
    with subprocess.Popen([sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        pid = int(parent.stdout.readline())
        tree.walk()
        before = tree.find(pid)
        assert before is not None and before.rank is None and before.argv[-1] == FORKS
        tree._looked_again[pid] = math.inf  # regularly, this comes much later
        parent.stdin.write("\n")
        parent.stdin.flush()
        parent.stdout.readline()
        tree.walk()
        after = tree.find(pid)
        parent.communicate("\n")
    assert after is not None and after.rank == 3


def test_walks_are_frequent_while_somebody_may_execute_a_program() -> None:
    def pauses(cost: float) -> list[float]:
        return [pause(walks, cost, any_young) for walks in (1, 100) for any_young in (False, True)]

    assert pauses(0.0001) == pytest.approx([0.05, 0.05, 0.5, 0.05])
    assert pauses(0.01) == pytest.approx([10 / 3, 0.1, 10 / 3, 0.1])
    assert pauses(1.0) == pytest.approx([5.0, 5.0, 5.0, 5.0])


@pytest.mark.parametrize("name", [sys.executable, Path(sys.executable).name])
def test_the_program_of_a_child_that_has_ended_is_what_the_kernel_would_have_said(name: str) -> None:
    """On a busy machine it may end before anybody has looked at it: crashes of one program are one group nevertheless."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with subprocess.Popen([name, "-c", "input()"], stdin=subprocess.PIPE, env=environment) as child:
        alive = snapshot(child.pid)
        child.communicate(b"\n")
    with subprocess.Popen([name, "-c", "pass"], env=environment) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        seen = started(child.pid, [name, "-c", "pass"], environment)
    assert alive is not None and seen is not None and seen.executable == alive.executable == str(Path(sys.executable).resolve())


def test_the_program_of_a_script_that_has_ended_is_its_interpreter(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    (tmp_path / "script").chmod(0o755)
    seen = [started(os.getpid(), [name], {"PATH": str(tmp_path)}) for name in ("script", "nothing")]
    assert [one.executable for one in seen if one is not None] == [str(Path("/bin/sh").resolve()), None]
