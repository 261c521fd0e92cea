"""At a terminal: Ctrl-C, Ctrl-Z, window size and isatty are as without us."""

from __future__ import annotations

import errno
import os
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from crashkit.collect.host.snapshot import read_stat
from crashkit.memory.stop import Stopped
from tests.collect.conftest import DEADLINE, Crashkit
from tests.pseudo_terminal import resize, start


class Terminal:
    """A shell with job control on a pseudo-terminal; what it shows is read as text."""

    def __init__(self, crashkit: Crashkit) -> None:
        self.text = ""
        self._read = 0
        shell = shutil.which("bash")
        if shell is None:
            pytest.skip("bash is not installed")
        environment = {**crashkit.environment, "PS1": "$ ", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
        command = [shell, "--norc", "--noprofile", "--noediting", "-i"]
        self._shell, self._fd = start(command, cwd=crashkit.cwd, environment=environment)

    def resize(self, rows: int, columns: int) -> None:
        resize(self._fd, rows, columns)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def expect(self, pattern: str) -> re.Match[str]:
        """Read on until the pattern shows up after what was expected before."""
        deadline = time.monotonic() + DEADLINE
        while True:
            match = re.compile(pattern).search(self.text, self._read)
            if match is not None:
                self._read = match.end()
                return match
            assert select.select([self._fd], [], [], max(0, deadline - time.monotonic()))[0], (
                f"no {pattern!r} in {self.text[self._read :]!r}"
            )
            try:
                self.text += os.read(self._fd, 65536).decode(errors="replace")
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                raise AssertionError(f"the shell ended before {pattern!r}: {self.text!r}") from None

    def close(self) -> None:
        os.close(self._fd)  # the hang-up ends the shell and its jobs
        self._shell.wait()


@pytest.fixture
def terminal(crashkit: Crashkit) -> Iterator[Terminal]:
    terminal = Terminal(crashkit)
    yield terminal
    terminal.close()


def test_isatty_of_each_stream_and_the_window_size(crashkit: Crashkit, terminal: Terminal) -> None:
    script = crashkit.script(
        "tty.py",
        """
        import os, signal, sys
        print("isatty", [os.isatty(n) for n in range(3)], os.ttyname(0) == os.ttyname(1), os.get_terminal_size(2))
        print("foreground", os.tcgetpgrp(0) == os.getpgrp())
        sys.stderr.write("line\\n")
        signal.signal(signal.SIGWINCH, lambda *rest: None)
        print("ready")
        while os.get_terminal_size(2) != (100, 50): pass
        print("resized")
        """,
    )
    terminal.type(f"{' '.join(crashkit.argv('run', '--', sys.executable, script))}\n")
    terminal.expect(r"isatty \[True, True, True\] True os.terminal_size\(columns=80, lines=24\)")
    terminal.expect("foreground True")
    # stderr takes a way of its own to the terminal: it may come a moment later than what was written to stdout after it.
    terminal.expect("(?s)line\r\n.*ready|ready.*line\r\n")
    terminal.resize(50, 100)
    terminal.expect("resized")


def test_ctrl_c_reaches_the_command_once(crashkit: Crashkit, terminal: Terminal) -> None:
    script = crashkit.script(
        "interrupt.py",
        """
        import os, signal
        seen = []
        reader, writer = os.pipe()
        signal.signal(signal.SIGINT, lambda *rest: seen.append(1))
        signal.signal(signal.SIGQUIT, lambda *rest: os.write(writer, b"."))
        print("ready")
        os.read(reader, 1)
        print("seen", len(seen))
        """,
    )
    terminal.type(f"{' '.join(crashkit.argv('run', '--', sys.executable, script))}; echo status $?\n")
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect(r"\^C")
    terminal.type("\x1c")
    terminal.expect("seen 1\r\n")
    terminal.expect("status 0")
    assert crashkit.crashes() == []


def test_ctrl_z_fg_and_bg(crashkit: Crashkit, terminal: Terminal) -> None:
    script = crashkit.script("loop.py", "print('ready'); print('got', input()); print('end', input())")
    terminal.type(f"{' '.join(crashkit.argv('run', '--', sys.executable, script))}; echo status $?\n")
    terminal.expect("ready")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.expect(r"\$ ")
    terminal.type("fg\n")
    terminal.expect(r"loop.py")
    terminal.type("one\n")
    terminal.expect("got one")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.type("jobs\n")
    terminal.expect(r"Stopped.*loop\.py")
    terminal.type("fg\n")
    terminal.expect(r"loop.py")
    terminal.type("two\n")
    terminal.expect("end two")


def test_ctrl_z_that_arrives_together_with_the_stop_of_the_command(crashkit: Crashkit, terminal: Terminal) -> None:
    """A busy machine lets us run only when both are there: the same Ctrl-Z must not stop the command again after fg."""
    script = crashkit.script(
        "loop.py",
        """
        import os, signal
        signal.signal(signal.SIGUSR1, lambda *rest: print("told"))
        print("pids", os.getpid(), os.getppid(), "are")
        input()
        """,
    )
    terminal.type(f"{' '.join(crashkit.argv('run', '--', sys.executable, script))}; echo status $?\n")
    pids = terminal.expect(r"pids (\d+) (\d+) are")
    command, ours = int(pids.group(1)), int(pids.group(2))
    with Stopped(ours):
        terminal.type("\x1a")
        while (stat := read_stat(command)) is not None and stat.state != "T":
            os.sched_yield()
    terminal.expect("Stopped")
    terminal.type("fg\n")
    terminal.expect(r"loop.py")
    os.kill(ours, signal.SIGUSR1)  # passed on after all that arrived before
    assert terminal.expect("told|Stopped").group() == "told"


def test_ctrl_z_right_after_fg_is_not_taken_back(crashkit: Crashkit, terminal: Terminal) -> None:
    """We may be about to pass the SIGCONT of fg on when the terminal stops the job once more."""
    script = crashkit.script(
        "loop.py",
        """
        import signal
        signal.signal(signal.SIGCONT, lambda *rest: print("continued"))
        print("ready")
        print("got", input())
        """,
    )
    terminal.type(f"{' '.join(crashkit.argv('run', '--', sys.executable, script))}; echo status $?\n")
    terminal.expect("ready")
    for _ in range(10):
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.expect(r"\$ ")
        terminal.type("fg\n")
        terminal.expect("continued")  # the shell has given the terminal away before
    terminal.type("one\n")
    terminal.expect("got one")


def test_a_pipeline_may_read_the_terminal(crashkit: Crashkit, terminal: Terminal) -> None:
    """The command shares its group with the rest of the pipeline, which stays in the foreground."""
    terminal.type(f'{" ".join(crashkit.argv("run", "--", "echo", "piped"))} | (cat; read line < /dev/tty; echo "read $line")\n')
    terminal.expect("piped\r\n")
    terminal.type("typed\n")
    terminal.expect("read typed")


def test_a_hang_up_ends_the_command(crashkit: Crashkit) -> None:
    terminal = Terminal(crashkit)
    terminal.type(f"{' '.join(crashkit.argv('run', '--', 'sh', '-c'))} 'echo pid=$$; exec sleep 1000'\n")
    pid = int(terminal.expect(r"pid=(\d+)\r").group(1))
    pidfd = os.pidfd_open(pid)
    terminal.close()
    assert select.select([pidfd], [], [], DEADLINE)[0]
    os.close(pidfd)
