"""An analysis that is told to end, or killed, leaves no folder and no debugger behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit import scratch
from crashkit.scratch import Scratch, sweep
from tests.crashes import an_interpreter, needs_gdb, python_crash

ROOT = Path(__file__).parent.parent
SLOW_GDB = "#!/bin/sh\nexec 3> '{held}'\nread -r command\n: > '{gate}'\nexec sleep 1000\n"
SLOW_PYSTACK = "import os, time\nheld = open({held!r}, 'w')\nopen({gate!r}, 'w').close()\ntime.sleep(1000)\n"


class Begun:
    """An analysis in the middle of a debugger's work; what holds the FIFO `held` open is that debugger."""

    def __init__(self, core: Path, folder: Path, tool: str) -> None:
        self.tool = tool
        self.out, self.temporary = folder / "out", folder / "temporary"
        self.temporary.mkdir()
        gate, held = folder / "gate", folder / "held"
        os.mkfifo(gate)
        os.mkfifo(held)
        self.alive = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
        (folder / "pystack").mkdir()
        (folder / "pystack" / "__init__.py").touch()
        (folder / "pystack" / "engine.py").write_text(SLOW_PYSTACK.format(held=str(held), gate=str(gate)))
        (folder / "gdb").write_text(SLOW_GDB.format(held=held, gate=gate))
        (folder / "gdb").chmod(0o755)
        path = str(ROOT) if tool == "gdb" else f"{folder}:{ROOT}"
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "crashkit", "analyze", str(core), "--out", str(self.out)),
                *(("--gdb", str(folder / "gdb")) if tool == "gdb" else ("--no-gdb",)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(self.temporary)},
            start_new_session=True,
        )
        gate.read_bytes()

    def debugger_ended(self) -> bool:
        ended = select.poll()
        ended.register(self.alive, select.POLLHUP)
        return bool(ended.poll(30_000))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.alive)


@pytest.fixture(scope="module")
def core() -> Path:
    return python_crash("threads.py", python=an_interpreter()).core


@pytest.fixture(params=["gdb", "pystack"])
def begun(request, core, tmp_path):
    analysis = Begun(core, tmp_path, request.param)
    yield analysis
    analysis.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_told_to_end(begun, number):
    """Only the analysis gets the signal, as from a service manager."""
    assert list(begun.temporary.iterdir()), "the test comes too early"
    begun.process.send_signal(number)
    said = begun.process.communicate(timeout=60)[1]
    # A parent sees the signal; Ctrl-C has a status of its own (docs/run.md).
    assert begun.process.returncode == (130 if number == signal.SIGINT else -number)
    assert b"Traceback" not in said
    assert begun.debugger_ended()
    assert list(begun.temporary.iterdir()) == []
    assert not begun.out.exists()


STUCK = """
import subprocess, sys, threading
from crashkit import isolation, scratch
from crashkit.cli import ending
ending._GRACE = 0.2

class Lost:
    def __del__(self):
        print("begun", flush=True)
        threading.Event().wait()  # what is raised here is ignored

lock = threading.Lock()
with ending.cleaned_up():
    isolation.start(["/bin/sh", "-c", "sleep 1000; :"], stdout=sys.stdout, new_session=True)
    isolation.start(["/bin/sleep", "1000"], stdout=sys.stdout)
    folder = scratch.Scratch("stuck")
    if sys.argv[1] == "the exception is lost":
        Lost()
        threading.Event().wait()
    lock.acquire()
    try:
        print("begun", flush=True)
        threading.Event().wait()
    finally:
        lock.acquire()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("how", ["the exception is lost", "a lock stays taken"])
def test_what_cannot_clean_up_ends(how, number, tmp_path):
    """What it started has ended, with what that started, and its temporary folders are gone."""
    command = [sys.executable, "-c", STUCK, how]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    process.send_signal(number)
    # To their ends: nobody holds them any more.
    assert process.communicate(timeout=60) == (b"", b""), "nor is a lost exception told"
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert list(tmp_path.iterdir()) == []


CAUGHT = """
from crashkit import cli

cli.group.main = lambda *_, **__: exec("raise KeyboardInterrupt")
cli.main()
"""


def test_an_interrupt_that_came_through_exec(tmp_path):
    """Python remembers it as one that nobody caught (pythonrun.c), and `python -m` then ends by SIGINT whatever the status."""
    (tmp_path / "caught.py").write_text(CAUGHT)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    process = subprocess.run([sys.executable, "-m", "caught"], capture_output=True, text=True, env=environment)
    assert (process.returncode, process.stderr) == (130, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_is_ignored_stays_ignored(number):
    """As by nohup."""
    code = f"import os, signal; signal.signal({number}, signal.SIG_IGN); from crashkit.cli import ending\n"
    code += f"with ending.cleaned_up(): os.kill(os.getpid(), {number}); print('goes on')"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"goes on\n"), done.stderr


@pytest.mark.slow
def test_killed(begun, monkeypatch):
    """Nothing can clean up then: the next analysis does."""
    begun.process.kill()
    begun.process.wait()
    if begun.tool == "pystack":
        assert begun.debugger_ended()
    left = set(begun.temporary.iterdir())
    assert left
    assert set(sweep(begun.temporary)) == left
    assert list(begun.temporary.iterdir()) == []


ASKS = """
import sys
from pathlib import Path
from crashkit.debugger.gdb.session import Session
with Session(Path(sys.argv[1]), 100) as session:
    session._gdb.console(f"python held = open({sys.argv[2]!r}, 'w'); print(file=held, flush=True); import time; time.sleep(1000)")
"""


@needs_gdb
def test_gdb_in_the_middle_of_a_command_ends_with_us(core, tmp_path):
    """It would not notice that nobody reads its answer before it has one."""
    held = tmp_path / "held"
    os.mkfifo(held)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", ASKS, core, held], env=environment) as process, held.open() as alive:
        assert alive.readline() == "\n"
        process.kill()
        # To its end: nobody holds it any more.
        assert alive.read() == ""


def test_the_next_one_sweeps(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "crashkit-scratch-gdb-left").mkdir(mode=0o700)
    scratch.swept.cache_clear()
    with Scratch("gdb") as folder:
        assert list(tmp_path.iterdir()) == [folder]


class TestSweep:
    """What is not certainly a leftover of this user stays."""

    def made(self, folder: Path, name: str = "crashkit-scratch-gdb-1", mode: int = 0o700) -> Path:
        (folder / name).mkdir()
        (folder / name).chmod(mode)
        (folder / name / "file").touch()
        return folder / name

    def test_of_a_process_that_lives(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with Scratch("gdb") as folder:
            assert sweep(tmp_path) == [] and folder.is_dir()
        assert not folder.exists()

    def test_leftover(self, tmp_path):
        made = self.made(tmp_path)
        assert sweep(tmp_path) == [made] and not made.exists()

    def test_no_more_at_a_time_than_allowed(self, tmp_path, monkeypatch):
        """Each analysis begins with it."""
        monkeypatch.setattr(scratch, "_MOST_SWEPT", 2)
        for number in range(3):
            self.made(tmp_path, f"crashkit-scratch-gdb-{number}")
        assert [len(sweep(tmp_path)) for _ in range(3)] == [2, 1, 0]

    def test_another_name(self, tmp_path):
        made = self.made(tmp_path, "crashkit-scratches")
        assert sweep(tmp_path) == [] and made.is_dir()

    def test_that_others_can_enter(self, tmp_path):
        """We make none like that: someone else laid it there."""
        made = self.made(tmp_path, mode=0o755)
        assert sweep(tmp_path) == [] and made.is_dir()

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder to somebody else")
    def test_of_another_user(self, tmp_path):
        made = self.made(tmp_path)
        os.chown(made, 12345, 12345)
        assert sweep(tmp_path) == [] and made.is_dir()

    def test_a_link(self, tmp_path):
        target = tmp_path / "target"
        target.mkdir(mode=0o700)
        (target / "file").touch()
        (tmp_path / "crashkit-scratch-gdb-1").symlink_to(target)
        assert sweep(tmp_path) == [] and (target / "file").exists()

    def test_links_in_it_are_not_followed(self, tmp_path):
        made, target = self.made(tmp_path), tmp_path / "target"
        target.mkdir()
        (target / "file").touch()
        (made / "link").symlink_to(target)
        assert sweep(tmp_path) == [made] and (target / "file").exists()
