"""`crashkit run --keep minimal`: the core is taken of the dying process, and no whole one is ever written."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from crashkit.collect.stopped_core import areas, take_minimal
from crashkit.collect.supervise import tracer
from crashkit.collect.supervise.process_tree import ProcessTree
from crashkit.collect.supervise.spawn import spawn
from crashkit.collect.supervise.tracer import Held
from crashkit.crashfolder.store import Store
from crashkit.evidence.core.core import Core
from crashkit.evidence.input import open_input
from crashkit.memory.stop import Stopped
from crashkit.model import Crash, Frame, NativeFrame
from crashkit.pipeline import analyze
from tests.collect.conftest import DEADLINE, SEGFAULT, Crashkit
from tests.crashes import needs_gdb
from tests.test_minimal import compared

PROGRAM = """
import ctypes, os, platform, threading, time
class Job:
    def __init__(self, number):
        self.name, self.size, self.parts = f"job-{number}", number * 1.5, [1, 2, {"a": (3, 4)}]
sleepers = [threading.Thread(target=time.sleep, args=(1000,), daemon=True, name=f"sleeper-{number}") for number in range(4)]
for thread in sleepers:
    thread.start()
# In clock_nanosleep: one that is still on its way would be elsewhere in a second core.
sleeping = {"x86_64": "230 ", "aarch64": "115 "}[platform.machine()]
while not all(open(f"/proc/self/task/{thread.native_id}/syscall").read().startswith(sleeping) for thread in sleepers):
    time.sleep(0)
ballast = bytearray(b"x") * (int(os.environ["BALLAST"]) << 20)
def run(job, text):
    table = {f"k{number}": number for number in range(10)}
    ctypes.string_at(16)
run(Job(3), "caf\\u00e9 \\u4e2d")
"""


def trace(crashkit: Crashkit, code: str, take: tracer.Take, environment: dict[str, str]) -> int:
    """Run this code, traced; how it ended, as waitpid(2) says it. What is taken is in the folder `taken`."""
    inbox = Store(crashkit.home).begin("run")
    release, hold = os.pipe()

    def prepare() -> None:
        os.chdir(crashkit.cwd)
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        os.close(hold)
        os.read(release, 1)

    def forked(pid: int) -> None:
        started.append(tracer.watcher(inbox, take)(pid))
        os.close(release)
        os.close(hold)

    started: list[int] = []
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        pid = spawn([sys.executable, "-c", code], {**os.environ, **environment}, set(), {1: nothing, 2: nothing}, prepare, forked)
        _, status = os.waitpid(pid, 0)
        assert started[0] > 0
        os.waitpid(started[0], 0)
    finally:
        os.close(nothing)
    return status


@needs_gdb
@pytest.mark.slow
@pytest.mark.parametrize("handler", [pytest.param("0", marks=pytest.mark.long), "1"])
@pytest.mark.parametrize("ballast", ["1", pytest.param("100", marks=pytest.mark.long)])
def test_the_report_is_that_of_the_whole_core_which_the_kernel_writes(crashkit: Crashkit, ballast: str, handler: str) -> None:
    """Ballast is what gdb does not get to see at once; a handler hides the fault."""
    small = crashkit.cwd / "small"

    def take(held: Held, path: Path) -> bool:
        take_minimal(held, small)
        return False  # so that the kernel writes its core, too

    status = trace(crashkit, PROGRAM, take, {"BALLAST": ballast, "PYTHONFAULTHANDLER": handler})
    whole = crashkit.cwd / "core"
    assert os.WTERMSIG(status) == signal.SIGSEGV and os.WCOREDUMP(status) and whole.exists()
    assert small.stat().st_size < 0.05 * whole.stat().st_size
    times = whole.stat()
    os.utime(small, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert compared(in_order(analyze(whole)), in_order(analyze(small))) == ""


RESTARTED = ("rax", "orig_rax", "rip", "x0", "pc")
"""Of the others: because the kernel is to write its core as well, they run on for a moment and resume their system calls, before which or
behind which their program counter stands then."""


def in_order(crash: Crash) -> Crash:
    """The threads by their numbers: the kernel writes those that did not crash in the order in which they arrive at their end."""
    threads = sorted(crash.threads, key=lambda thread: (not thread.crashed, thread.tid or 0))
    kept = [{name: value for name, value in one.registers.items() if one.crashed or name not in RESTARTED} for one in threads]
    frames = [one.frames if one.crashed else _without_counter(one.frames) for one in threads]
    changed = zip(threads, kept, frames, strict=True)
    return replace(crash, threads=tuple(replace(one, registers=registers, frames=own) for one, registers, own in changed))


def _without_counter(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    innermost = frames[0] if frames else None
    return (replace(innermost, pc=None, offset=None), *frames[1:]) if isinstance(innermost, NativeFrame) else frames


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Skips the test where it cannot be had."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("a small tmpfs cannot be mounted: that needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [pytest.param(("--keep", "minimal"), marks=pytest.mark.long), ()], ids=["asked for", "by itself"])
@pytest.mark.parametrize("limit", [resource.RLIM_INFINITY, pytest.param(0, marks=pytest.mark.long)], ids=["unlimited", "ulimit -c 0"])
def test_no_whole_core_is_on_a_disk_at_any_moment(crashkit: Crashkit, tmp_path: Path, limit: int, options: tuple[str, ...]) -> None:
    """The disk of the store, the working directory and the temporary files has room for a tenth of it."""
    with small_disk(tmp_path / "small", "10m") as disk:
        crashkit.home, crashkit.cwd = disk / "store", disk / "cwd"
        crashkit.cwd.mkdir()
        (disk / "tmp").mkdir()
        crashkit.environment.update(CRASHKIT_HOME=str(crashkit.home), TMPDIR=str(disk / "tmp"), BALLAST="100")
        done = crashkit.python(PROGRAM, options=options, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (limit, limit)))
        assert done.returncode == 128 + signal.SIGSEGV and "report.html" in done.stderr, done.stderr
        assert bool(options) != ("minimal cores are kept" in done.stderr)
        (crash,) = crashkit.crashes()
        core = next(file for file in crash["files"] if file["kind"] == "core")
        assert core["minimal"] and core["size"] == (crash["folder"] / "core").stat().st_size < 2 << 20
        report = json.loads((crash["folder"] / "report.json").read_text())
        assert report["source"]["minimal"] and report["signal"]["name"] == "SIGSEGV"
        frames = [frame for thread in report["threads"] if thread.get("crashed") for frame in thread["frames"] if frame["kind"] == "python"]
        assert [frame["function"] for frame in frames][1:] == ["run", "<module>"] and "'k9': 9" in str(frames[1]["locals"])
        assert list(crashkit.cwd.iterdir()) == [] and crashkit.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("hard", [resource.RLIM_INFINITY, pytest.param(1 << 20, marks=pytest.mark.long)], ids=["soft", "hard"])
def test_a_limit_on_file_sizes_does_not_cut_the_core(crashkit: Crashkit, hard: int) -> None:
    """The command keeps the limit."""
    crashkit.environment["BALLAST"] = "100"
    program = "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE)[0], flush=True)\n" + PROGRAM
    done = crashkit.python(program, options=(), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard)))
    assert done.returncode == 128 + signal.SIGSEGV and done.stdout.split() == [str(1 << 20)]
    assert "ulimit -f" in done.stderr and "minimal cores are kept" in done.stderr
    (crash,) = crashkit.crashes()
    report = json.loads((crash["folder"] / "report.json").read_text())
    assert report["source"]["minimal"] and not report["source"].get("missing") and crash["limits"]["RLIMIT_FSIZE"] == [1 << 20, hard]
    assert any("'k9': 9" in str(frame.get("locals")) for thread in report["threads"] for frame in thread["frames"])


@pytest.mark.slow
def test_what_a_crash_leaves_is_larger_than_a_file_may_be(crashkit: Crashkit) -> None:
    """Its stderr is kept whole."""
    program = "import ctypes, sys; sys.stderr.write('x' * 79 + '\\n'); sys.stderr.write(('y' * 79 + '\\n') * 1000); ctypes.string_at(0)"
    done = crashkit.python(program, options=(), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40 << 10, -1)))
    (crash,) = crashkit.crashes()
    assert "was killed" not in done.stderr and crash["limits"]["RLIMIT_FSIZE"][0] == 40 << 10
    assert (crash["folder"] / "stderr.log").stat().st_size > 80_000
    assert json.loads((crash["folder"] / "report.json").read_text())["source"]["minimal"]


@pytest.mark.slow
def test_a_command_that_does_not_crash_runs_as_it_would(crashkit: Crashkit) -> None:
    """Children, threads, programs executed by a thread, stops, signals that have a handler or are ignored."""
    code = """
import ctypes, os, signal, subprocess, sys, threading, time
libc = ctypes.CDLL(None)
told = []
signal.signal(signal.SIGSEGV, lambda number, frame: told.append("handled"))
os.kill(os.getpid(), signal.SIGSEGV)
signal.signal(signal.SIGABRT, signal.SIG_IGN)
os.kill(os.getpid(), signal.SIGABRT)
threads = [threading.Thread(target=subprocess.run, args=(["true"],)) for _ in range(20)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
child = subprocess.Popen(["sleep", "1000"])
os.kill(child.pid, signal.SIGSTOP)
_, status = os.waitpid(child.pid, os.WUNTRACED)
told.append(os.WIFSTOPPED(status))
time.sleep(0.1)
told.append(open(f"/proc/{child.pid}/stat").read().rpartition(") ")[2][0] in "Tt")
os.kill(child.pid, signal.SIGCONT)
_, status = os.waitpid(child.pid, os.WCONTINUED)
told.append(os.WIFCONTINUED(status))
child.terminate()
told.append(child.wait())
print(told, flush=True)
threading.Thread(target=os.execvp, args=("sh", ["sh", "-c", "read line; echo got $line; exit 7"])).start()
threading.Event().wait()
"""
    process = crashkit.start("run", "--keep", "minimal", "--", sys.executable, "-c", textwrap.dedent(code), stdin=subprocess.PIPE)
    out, err = process.communicate("words\n", timeout=DEADLINE)
    assert (out, process.returncode) == ("['handled', True, True, True, -15]\ngot words\n", 7), err
    assert crashkit.crashes() == [] and crashkit.leftovers() == [] and list(crashkit.cwd.iterdir()) == []


@pytest.mark.slow
def test_a_worker_dies_while_the_others_work_on(crashkit: Crashkit) -> None:
    code = f"""
import os, signal, sys
pid = os.fork()
if pid == 0:
    {SEGFAULT}
_, status = os.waitpid(pid, 0)
print(os.WTERMSIG(status), os.WCOREDUMP(status), flush=True)
os.kill(os.getpid(), signal.SIGTERM)
"""
    done = crashkit.python(code, options=("--keep", "minimal"))
    assert (done.stdout, done.returncode) == ("11 False\n", 128 + signal.SIGTERM), done.stderr
    (crash,) = crashkit.crashes()
    assert not crash["is_command"] and crash["capture"] == "ptrace" and [file["kind"] for file in crash["files"]].count("core") == 1
    assert crashkit.leftovers() == [] and list(crashkit.cwd.iterdir()) == []


@pytest.mark.slow
def test_where_the_process_cannot_be_read_the_kernel_writes_its_core(crashkit: Crashkit) -> None:
    def take(held: Held, path: Path) -> bool:
        os._exit(1)

    status = trace(crashkit, SEGFAULT, take, {})
    assert os.WTERMSIG(status) == signal.SIGSEGV and os.WCOREDUMP(status)
    with open_input(crashkit.cwd / "core") as source, Core(source.file, source.path, source.size) as core:
        assert not core.truncated and core.left is None


def test_what_of_the_memory_belongs_to_a_core(tmp_path: Path) -> None:
    def area(first: str, *facts: str) -> str:
        return "\n".join((first, *facts, ""))

    smaps = "".join(
        (
            area("1000-2000 r--p 00000000 fe:01 7   /lib/a.so", "Anonymous:             0 kB", "VmFlags: rd mr mw me"),
            area("2000-4000 r-xp 00001000 fe:01 7   /lib/a.so", "Anonymous:             0 kB", "VmFlags: rd ex mr mw me"),
            area("4000-6000 rw-p 00003000 fe:01 7   /lib/a.so", "Anonymous:             4 kB", "VmFlags: rd wr mr mw me"),
            area("6000-9000 rw-p 00000000 00:00 0", "Anonymous:             0 kB", "VmFlags: rd wr mr mw me"),
            area("9000-a000 rw-p 00000000 00:00 0   [heap]", "Anonymous:             4 kB", "VmFlags: rd wr mr mw me"),
            area("a000-b000 rw-p 00000000 00:00 0", "Anonymous:             4 kB", "VmFlags: rd wr mr mw me dd"),
            area("b000-c000 rw-s 00000000 00:05 9   /dev/shm/x (deleted)", "Anonymous:             0 kB", "VmFlags: rd wr sh mr mw me ms"),
            area("c000-d000 rw-s 00000000 00:05 9   /data with space", "Anonymous:             0 kB", "VmFlags: rd wr sh mr mw me ms"),
            area("d000-e000 rw-s 00000000 00:05 9   /dev/gpu", "Anonymous:             0 kB", "VmFlags: rd wr sh mr mw me ms io pf"),
            area("e000-f000 r-xp 00000000 00:00 0   [vdso]", "Anonymous:             0 kB", "VmFlags: rd ex mr mw me de"),
        )
    ).encode()

    def stored(dumped: int) -> list[int]:
        return [area.stored >> 12 for area in areas(smaps, dumped, lambda start: start == 0x1000)]

    assert stored(0x33) == [1, 0, 2, 0, 1, 0, 1, 0, 0, 1]
    assert stored(0x31) == [1, 0, 2, 0, 1, 0, 0, 0, 0, 1]
    assert stored(0x0) == [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert stored(0xF) == [1, 2, 2, 0, 1, 0, 1, 1, 0, 1]
    found = list(areas(smaps, 0x33, lambda start: True))
    assert [area.path for area in found[5:9]] == [b"", b"/dev/shm/x (deleted)", b"/data with space", b"/dev/gpu"]
    assert (found[2].offset, found[2].flags, found[1].flags) == (0x3000, 6, 5)


def test_a_held_process_is_known_as_such() -> None:
    """Its fatal error is on stderr, and its end is not seen for as long as its core takes: it is not reported as an unknown one's."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        tree = ProcessTree(select.poll())
        assert not tree.any_held()
        with Stopped(child.pid):
            assert tree.any_held()
        child.communicate(b"\n")
