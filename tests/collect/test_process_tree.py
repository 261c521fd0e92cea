"""A pid is no identity: another process may have it a moment later. What was seen of the first is not told of the second."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from crashkit.collect.host.snapshot import ProcessSnapshot, snapshot
from crashkit.collect.supervise.process_tree import ProcessTree


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
