"""Who has the other end of the pipe, the FIFO or the socket that a process waits for: of real processes, which are written to have it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crashkit.collect.attach import attach
from crashkit.collect.open_files import open_files
from crashkit.collect.unix_peers import unix_peers
from crashkit.naming.waits import sentence
from crashkit.pipeline import Options
from tests.attach.programs import running, until_asleep
from tests.crashes import an_interpreter, needs_x86_64

HEAD = "import os, socket, sys\n"
FORKS = """
def keeps():
    # It keeps what it was left with until its standard input, which is ours, ends.
    pid = os.fork()
    if pid == 0:
        ENDS
        os.write(told[1], b"x")
        sys.stdin.read()
        os._exit(0)
    os.read(told[0], 1)
    return pid
told = os.pipe()
"""
SAY = "print('ready', *pids, flush=True)\n"
PIPE = (
    HEAD
    + FORKS.replace("ENDS", "os.close(ends[0])")
    + "ends = os.pipe()\npids = [keeps()]\nos.close(ends[1])\n"
    + SAY
    + "os.read(ends[0], 1)\n"
)
TWO = HEAD + FORKS.replace("ENDS", "os.close(ends[0])") + "ends = os.pipe()\npids = [keeps(), keeps()]\n" + SAY + "os.read(ends[0], 1)\n"
FULL = (
    HEAD
    + FORKS.replace("ENDS", "os.close(ends[1])")
    + "ends = os.pipe()\npids = [keeps()]\nos.close(ends[0])\n"
    + SAY
    + "while True: os.write(ends[1], bytes(65536))\n"
)
ITSELF = HEAD + "ends = os.pipe()\npids = []\n" + SAY + "os.read(ends[0], 1)\n"
FIFO = (
    HEAD
    + FORKS.replace("ENDS", "os.close(reads)")
    + "os.mkfifo('queue')\nreads = os.open('queue', os.O_RDONLY | os.O_NONBLOCK)\nos.set_blocking(reads, True)\n"
    + "writes = os.open('queue', os.O_WRONLY)\npids = [keeps()]\nos.close(writes)\n"
    + SAY
    + "os.read(reads, 1)\n"
)
SOCKETS = (
    HEAD
    + FORKS.replace("ENDS", "one.close()")
    + "one, other = socket.socketpair()\npids = [keeps()]\nother.close()\n"
    + SAY
    + "one.recv(1)\n"
)
OWN_SOCKETS = HEAD + "one, other = socket.socketpair()\npids = []\n" + SAY + "one.recv(1)\n"

PROGRAMS = {
    "pipe": (PIPE, r"a pipe that process {0} \(\S+\) has open for writing"),
    "two": (TWO, r"a pipe that this process itself and processes {0} \(\S+\) and {1} \(\S+\) have open for writing"),
    "full": (FULL, r"a pipe that process {0} \(\S+\) has open for reading"),
    "itself": (ITSELF, r"a pipe that this process itself has open for writing"),
    "fifo": (FIFO, r"a pipe \(\S+/queue\) that process {0} \(\S+\) has open for writing"),
    "sockets": (SOCKETS, r"a Unix socket to process {0} \(\S+\)"),
    "own-sockets": (OWN_SOCKETS, r"a Unix socket to this process itself"),
}


@contextmanager
def waiting(program: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """The program, which waits, and its children."""
    with running(an_interpreter(), program, folder) as (process, words):
        until_asleep(process.pid, 1)
        yield process, [int(word) for word in words]


@pytest.mark.slow
@needs_x86_64()
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_other_end_is_named(name: str, tmp_path: Path) -> None:
    program, said = PROGRAMS[name]
    with waiting(program, tmp_path) as (process, children):
        crash = attach(process.pid, Options(gdb=None))
    (wait,) = crash.waits
    assert wait.process == (children[0] if children else None)
    assert re.search(rf"waits in .* for {said.format(*children)}$", sentence(crash, wait)), sentence(crash, wait)


def test_only_who_may_be_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with waiting(PIPE, tmp_path) as (process, children):
        known = {file.name for file in open_files(process.pid).values() if file.kind == "pipe"}
        monkeypatch.setattr("crashkit.collect.open_files._MOST_PROCESSES", 0)
        unknown = {file.name for file in open_files(process.pid).values() if file.kind == "pipe"}
    assert any(f"process {children[0]} " in name for name in known)
    assert "a pipe that nobody that may be looked at has open for writing" in unknown


def test_a_file_system_that_may_not_answer_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its mount is taken for one of a server; the FIFO is then a file like any other."""
    with waiting(FIFO, tmp_path) as (process, _):
        kinds = {file.kind for file in open_files(process.pid).values() if "/queue" in file.name}
        monkeypatch.setattr("crashkit.collect.open_files._REMOTE", re.compile(""))
        asked, stat = [], os.stat

        def noted(path: str) -> os.stat_result:
            asked.append(path)
            return stat(path)

        monkeypatch.setattr(os, "stat", noted)
        remote = {file.kind for file in open_files(process.pid).values() if "/queue" in file.name}
    assert (kinds, remote) == ({"pipe"}, {"file"})
    assert not [path for path in asked if f"/proc/{process.pid}/fd/" in path]


def test_peers_of_unix_sockets() -> None:
    import socket

    one, other = socket.socketpair()
    with one, other:
        inodes = [os.fstat(end.fileno()).st_ino for end in (one, other)]
        peers = unix_peers()
        assert (peers.get(inodes[0]), peers.get(inodes[1])) == (inodes[1], inodes[0])
