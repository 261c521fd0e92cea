"""Evidence that something takes away: other runs, other namespaces, a store that vanishes, a core of the same name."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from crashkit.collect.host import linux
from crashkit.collect.host.core_pattern import parse
from crashkit.collect.keep import zeros
from crashkit.collect.recover import interrupted, recover, resume
from crashkit.collect.supervise.core_watch import CoreWatch
from crashkit.collect.supervise.hang import Probe
from crashkit.collect.supervise.taker import Taker
from crashkit.crashfolder.files import create
from crashkit.crashfolder.manifest import read_manifest, write_manifest
from crashkit.crashfolder.store import Retention, Store, prune
from crashkit.crashfolder.work import Work
from crashkit.descriptors import close_all_but
from crashkit.history.spool import waiting_anywhere
from tests.collect.conftest import DEADLINE, SEGFAULT, Crashkit
from tests.collect.test_transparent import _wait_for
from tests.crashes import CRASHERS, NO_NAMESPACES, compile_c, needs_gdb

WAITS = "import sys; print('up', flush=True); sys.stdin.read(); "

FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""Its inode: PROC_PID_INIT_INO, include/linux/proc_ns.h."""


@contextmanager
def _a_live_run(crashkit: Crashkit, code: str, *options: str, prefix: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[Any]]:
    """A run whose command does `code` once its stdin ends."""
    command = [*prefix, *crashkit.argv("run", "--no-analyze", *options, "--", sys.executable, "-c", WAITS + code)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=crashkit.cwd, env=crashkit.environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


# Processes of ours that something ends

TWO = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input(); {SEGFAULT}"], stdin=-1)
print("up", flush=True)
input()
child.communicate(b".")
sys.exit(7)
"""


def _forked_by(supervisor: int) -> list[int]:
    """Its processes that have not executed anything."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    ours = Path(f"/proc/{supervisor}/cmdline").read_bytes()
    return [int(pid) for pid in children if Path(f"/proc/{pid}/cmdline").read_bytes() == ours]


def test_a_run_whose_helpers_are_killed(crashkit: Crashkit) -> None:
    """The crash is kept without them, and the status stays the command's."""
    process = crashkit.start("run", "--no-analyze", "--", sys.executable, "-c", TWO, stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    # One that sees the signals of the group, one that would look at the other processes.
    _wait_for(lambda: len(_forked_by(process.pid)) == 2)
    for pid in _forked_by(process.pid):
        os.kill(pid, signal.SIGKILL)
    said = process.communicate(".\n", timeout=DEADLINE)[1]
    assert process.returncode == 7 and "bug" not in said, said
    (crash,) = crashkit.crashes()
    assert crash["signal"] == signal.SIGSEGV


def test_an_order_to_a_process_that_has_ended(tmp_path: Path) -> None:
    taker = Taker(Work(tmp_path, os.open(tmp_path, os.O_RDONLY), -1))
    os.kill(taker.pid, signal.SIGKILL)
    os.waitpid(taker.pid, 0)
    taker.take([os.getpid()], in_a_hurry=False)


@pytest.mark.parametrize("kept", [(0,), (0, 1, 2), (1, 5), (0, 2, 3, 7)])
def test_the_other_descriptors_are_closed(kept: tuple[int, ...]) -> None:
    """An empty range must not be taken for all, as os.closerange(0, 0) is."""
    there = range(8)
    pid = os.fork()
    if pid == 0:
        left: set[int] = set()
        with suppress(BaseException):
            for descriptor in there:
                os.dup2(0, descriptor)
            close_all_but(*kept)
            left = {descriptor for descriptor in there if not _is_closed(descriptor)}
        os._exit(left != set(kept))
    assert os.waitpid(pid, 0)[1] == 0


def _is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


def test_nobody_asks_for_the_health_any_more(capfd: pytest.CaptureFixture[str]) -> None:
    probe = Probe("http://127.0.0.1:9/", interval=1000)
    assert not probe.answered()
    os.kill(probe.pid, signal.SIGKILL)
    os.waitpid(probe.pid, 0)
    assert probe.answered() and probe.answered(), "the command is not said to hang"
    assert capfd.readouterr().err.count("no longer checked") == 1


# Locks, not pids


def test_runs_of_two_pid_namespaces_share_a_store(crashkit: Crashkit) -> None:
    """Neither sees the other's pids; each one's folder has to stay, however old it is."""
    unshare = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip(NO_NAMESPACES)
    with _a_live_run(crashkit, SEGFAULT, prefix=unshare) as first:
        (folder,) = crashkit.leftovers()
        os.utime(folder, (0, 0))
        other = subprocess.run(
            [*unshare, *crashkit.argv("run", "--", "true")], cwd=crashkit.cwd, env=crashkit.environment, capture_output=True, text=True
        )
        assert (other.returncode, other.stderr) == (0, "")
        assert crashkit("list").returncode == 0 and folder.exists()
        first.communicate("", timeout=DEADLINE)
        assert first.returncode == 139
    (crash,) = crashkit.crashes()
    assert any(file["kind"] == "core" for file in crash["files"]) and crashkit.leftovers() == []


def test_the_command_does_not_inherit_the_lock(crashkit: Crashkit) -> None:
    """A daemon that outlives a run would keep its folder from being recovered."""
    result = crashkit.run("sh", "-c", "ls -l /proc/self/fd")
    assert "/dev/null" in result.stdout and str(crashkit.home) not in result.stdout


def test_a_child_that_outlives_an_enabled_process_does_not_hide_its_crash(crashkit: Crashkit) -> None:
    code = f"""
import os, sys
from crashkit.collect.enable import enable
enable(cuda=False)
if os.fork() == 0:
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
sys.stdout.close()
{SEGFAULT}
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", code], cwd=crashkit.cwd, env=crashkit.environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline().strip().isdigit()
        assert process.wait(DEADLINE) == -signal.SIGSEGV
        assert "SIGSEGV" in crashkit("list").stdout, "while the child lives"


# Killed


@pytest.mark.slow
def test_a_run_that_was_killed_is_finished_by_list(crashkit: Crashkit) -> None:
    crashkit.python(SEGFAULT)
    (crash,) = crashkit.crashes()
    # As a run leaves it that is killed right after a core has arrived.
    store = Store(crashkit.home)
    run = store.begin("run")
    (crash["folder"] / "core").rename(run.path / "1.core")
    run.close()
    shutil.rmtree(crash["folder"])
    listed = crashkit("list", "--json")
    (found,) = json.loads(listed.stdout)
    assert "recovered" in listed.stderr and found["id"] in listed.stderr
    assert (found["pid"], found["signal"], found["core_state"]) == (crash["pid"], 11, "present")
    assert "killed" in found["notes"][0] and crashkit.leftovers() == []


def test_evidence_without_a_run_is_not_only_cores(crashkit: Crashkit) -> None:
    store = Store(crashkit.home)
    run = store.begin("run")
    (run.path / "gpu").mkdir()
    (run.path / "gpu" / "gpu.host.77.1.nvcudmp").write_text("dump")
    (run.path / "gpu" / "gpu.host.78.1.nvcudmp").touch()  # was never written
    run.write("77.gdb.txt", b"Thread 1")
    run.write("gdb.log", b"no evidence")
    run.close()
    (message,) = recover(store)
    (crash,) = crashkit.crashes()
    assert message.startswith(f"recovered {crash['id']}") and crashkit.leftovers() == []
    assert sorted(file["name"] for file in crash["files"]) == ["gdb.txt", "gpu.host.77.1.nvcudmp"]
    assert {path.stat().st_mode & 0o777 for path in crash["folder"].iterdir()} == {0o600}


@pytest.fixture
def pending(crashkit: Crashkit) -> Crashkit:
    """A crash whose analysis was killed."""
    crashkit.python(SEGFAULT)
    (crash,) = crashkit.crashes()
    folder = crash.pop("folder")
    write_manifest(folder, {**crash, "analysis": "pending"})  # type: ignore[typeddict-item]
    (folder / ".lock").touch()
    (folder / "analysis.log").write_text("it came to here")
    return crashkit


def _state(crashkit: Crashkit) -> str:
    (crash,) = crashkit.crashes()
    return str(crash["analysis"])


@pytest.mark.slow
def test_an_analysis_that_was_killed_is_resumed_by_show(pending: Crashkit) -> None:
    shown = pending("show", "last")
    assert "was interrupted; analyzing it now" in shown.stderr and "string_at" in shown.stdout
    assert _state(pending) == "done" and not list(pending.home.glob("*/.lock"))
    assert pending("show", "last").stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("command", [("list",), ("run", "--", "true")])
def test_an_analysis_that_was_killed_is_resumed_in_the_background(pending: Crashkit, command: tuple[str, ...]) -> None:
    result = pending(*command)
    assert "in the background" in result.stderr and result.returncode == 0
    _wait_for(lambda: _state(pending) == "done" and not list(pending.home.glob("*/.lock")), "it is not analyzed")


@pytest.mark.slow
def test_an_analysis_that_runs_is_left_alone(pending: Crashkit) -> None:
    store = Store(pending.home)
    (crash,) = interrupted(store)
    work = store.claim(crash.id)
    assert work is not None and interrupted(store) == [] and not resume(store, crash)
    assert pending("list").stderr == "" and "pending" in pending("list").stdout
    work.close()
    assert [crash.id for crash in interrupted(store)] == [crash.id]


def test_an_analysis_that_kills_is_not_started_for_ever(pending: Crashkit) -> None:
    store = Store(pending.home)
    (crash,) = interrupted(store)
    write_manifest(crash.path, {**crash.manifest, "interrupted": 2})
    assert not resume(store, crash) and interrupted(store) == []
    manifest = read_manifest(crash.path)
    assert manifest is not None and manifest["analysis"] == "failed" and "not restarted" in manifest["notes"][-1]
    assert waiting_anywhere(pending.home) == 2, "in the history it is again, as what it is now"


@pytest.mark.slow
def test_prune_spares_what_is_worked_on(crashkit: Crashkit) -> None:
    for _ in range(2):
        crashkit.python(SEGFAULT)
    store = Store(crashkit.home)
    old = store.crashes()[-1]
    work = store.claim(old.id, unmarked=True)
    assert work is not None and prune(store, Retention(crashes=1)) == []
    work.done()
    assert prune(store, Retention(crashes=1)) == [old.id]


@pytest.mark.slow
def test_a_core_that_has_no_room_in_the_store_waits_for_it(crashkit: Crashkit, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("a small tmpfs cannot be mounted: that needs root")
    crashkit.home = small / "store"
    crashkit.environment["CRASHKIT_HOME"] = str(crashkit.home)
    try:
        result = crashkit.python(SEGFAULT)
        (core,) = crashkit.cwd.iterdir()
        assert f"stays at {core}; crashkit list tries again" in result.stderr
        assert f"free on the disk of {crashkit.home}, which has 1; make room" in result.stderr
        assert f"it stays at {core}" in crashkit.crashes()[0]["notes"][0]
        assert f"stays at {core}" in crashkit("list").stderr and "missing" in crashkit("list").stdout and core.exists()
        subprocess.run(["mount", "-o", "remount,size=1g", small], check=True)
        listed = crashkit("list")
        assert "added its core to" in listed.stderr and "present" in listed.stdout
        assert list(crashkit.cwd.iterdir()) == [] and crashkit.leftovers() == [] and len(crashkit.crashes()) == 1
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)


# A store that vanishes


@pytest.mark.slow
def test_a_store_that_was_removed_is_made_again(crashkit: Crashkit) -> None:
    with _a_live_run(crashkit, SEGFAULT) as process:
        shutil.rmtree(crashkit.home)
        _, errors = process.communicate("", timeout=DEADLINE)
    assert f"was removed or replaced during the run: this crash goes to {crashkit.home}" in errors
    (crash,) = crashkit.crashes()
    assert any(file["kind"] == "core" for file in crash["files"]), errors
    assert list(crashkit.cwd.iterdir()) == []


def test_a_store_that_was_swapped_for_a_link_gets_nothing(crashkit: Crashkit, tmp_path: Path) -> None:
    crashkit.environment["TMPDIR"] = str(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with _a_live_run(crashkit, SEGFAULT) as process:
        crashkit.home.rename(tmp_path / "moved")
        crashkit.home.symlink_to(elsewhere)
        _, errors = process.communicate("", timeout=DEADLINE)
    assert list(elsewhere.iterdir()) == []
    (store,) = tmp_path.glob("crashkit-store-*")
    assert f"this crash goes to {store}" in errors
    (manifest,) = store.glob("*/manifest.json")
    assert any(file["kind"] == "core" for file in json.loads(manifest.read_text())["files"]), errors


# A core of the same name


def _older(crashkit: Crashkit) -> Path:
    older = crashkit.cwd / "core"
    older.write_text("precious")
    os.utime(older, (0, 0))
    return older


@pytest.mark.slow
def test_an_older_core_comes_back(crashkit: Crashkit) -> None:
    older = _older(crashkit)
    result = crashkit.python(f"import os\nfor _ in range(2):\n if os.fork() == 0:\n  {SEGFAULT}\n os.wait()\n")
    assert older.read_text() == "precious" and [path.name for path in crashkit.cwd.iterdir()] == ["core"]
    assert f"restored the older core {older}" in result.stderr and len(crashkit.crashes()) == 2


def test_without_a_crash_nobody_touches_an_older_core(crashkit: Crashkit) -> None:
    older = _older(crashkit)
    assert crashkit.run("true").stderr == ""
    assert older.read_text() == "precious" and older.stat().st_nlink == 1 and list(crashkit.cwd.iterdir()) == [older]


def test_an_older_core_survives_a_run_that_is_killed(crashkit: Crashkit) -> None:
    older = _older(crashkit)
    with _a_live_run(crashkit, "") as process:
        second = crashkit.cwd / f"core.older-{process.pid}"
        older.unlink()
        assert second.read_text() == "precious"


@pytest.mark.slow
def test_doctor_warns_of_an_older_core(crashkit: Crashkit) -> None:
    assert "older core" not in crashkit("doctor").stdout
    older = _older(crashkit)
    shown = crashkit("doctor").stdout
    assert f"the next crash overwrites {older}" in " ".join(shown.split())


@pytest.mark.slow
def test_of_pairs_that_die_at_once_each_has_its_core_or_the_reason(crashkit: Crashkit, tmp_path: Path) -> None:
    compile_c(CRASHERS / "crash_pairs.c", tmp_path / "crash_pairs")
    crashkit.run(tmp_path / "crash_pairs", 10, options=("--no-analyze", "--max-crashes", 100))
    found = crashkit.crashes()
    # The supervisor of an ordinary user, or in a PID namespace, may miss a process that ends while it looks.
    is_told = os.geteuid() == 0 and Path("/proc/self/ns/pid").stat().st_ino == FIRST_PID_NAMESPACE
    assert len(found) == 20 or (not is_told and len(found) >= 10), "at least one of each pair"
    for crash in found:
        core = any(file["kind"] == "core" for file in crash["files"])
        assert core != any("overwrote its core" in note for note in crash["notes"]), crash["notes"]


def test_a_core_that_lost_its_name_while_it_was_written(crashkit: Crashkit) -> None:
    """As when a second process overwrites it before we see the first: here the second is us."""
    try:
        linux.WrittenFiles()
    except OSError:
        pytest.skip("fanotify is not allowed here: it needs CAP_SYS_ADMIN")
    crashkit.python(SEGFAULT)
    (crash,) = crashkit.crashes()
    data = (crash["folder"] / "core").read_bytes()
    run = Store(crashkit.home).begin("run")
    watch = CoreWatch(parse("core"), run, protect=False)
    with create(crashkit.cwd / "core") as file:
        file.write(data)
        watch.watch({str(crashkit.cwd)})
        (crashkit.cwd / "core").unlink()
    watch.take()
    (core,) = watch.complete()
    assert core.head is not None and core.head.pid == crash["pid"] and core.size == len(data)
    run.done()


# Processes that outlive the command

DAEMON = f"""
import os, sys
if os.fork() == 0:
    os.setsid()
    os.close(1)
    sys.stdin.read()
    {SEGFAULT}
print("ends", flush=True)
os._exit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("waits", [True, False])
def test_a_daemon_that_crashes_after_the_command_has_ended(crashkit: Crashkit, waits: bool) -> None:
    options = ["run", "--no-analyze", *(["--wait-daemons"] if waits else []), "--", sys.executable, "-c", DAEMON]
    process = crashkit.start(*options, stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None and process.stdout.read() == "ends\n", "the command has closed it"
    if waits:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)  # longer than it waits for those that are about to end
        _, errors = process.communicate(timeout=DEADLINE)
        assert len(crashkit.crashes()) == 1 and "died of SIGSEGV" in errors
    else:
        assert process.stderr is not None
        errors = process.stderr.readline()
        assert "a process of the command still runs" in errors and "--wait-daemons" in errors
        process.communicate(timeout=DEADLINE)
        assert crashkit.crashes() == []
    assert process.returncode == 3


def test_waiting_for_daemons_ends_when_asked(crashkit: Crashkit) -> None:
    process = crashkit.start("run", "--wait-daemons", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!; wait", stdin=None)
    assert process.stdout is not None
    daemon = int(process.stdout.readline())
    try:
        process.terminate()
        assert process.wait(DEADLINE) == 128 + signal.SIGTERM
    finally:
        os.kill(daemon, signal.SIGKILL)


# Captured cores


@needs_gdb
@pytest.mark.slow
def test_a_captured_core_takes_little_more_than_the_kernels(crashkit: Crashkit) -> None:
    code = f"import threading, time\nfor n in range(16): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n{SEGFAULT}"
    sizes = {}
    for capture in ("core", "ptrace"):
        crashkit.python(code, options=("--no-analyze", "--capture", capture))
        core = crashkit.crashes()[-1]["folder"] / "core"
        sizes[capture] = core.stat().st_blocks * 512
        found = subprocess.run(["gdb", "-nx", "-batch", "-ex", "info threads", sys.executable, core], capture_output=True, text=True)
        assert found.stdout.count("Thread") + found.stdout.count("LWP") >= 17
    assert sizes["ptrace"] < sizes["core"] + (8 << 20), sizes


def test_blocks_of_zeros(tmp_path: Path) -> None:
    block, full = bytes(4096), b"x" * 4096
    path = tmp_path / "file"
    path.write_bytes(block + full + block * 300 + b"\0x" + bytes(4094) + full + block + bytes(10))
    with path.open("rb") as file:
        assert list(zeros(file.fileno())) == [(0, 4096), (8192, 300 * 4096), (304 * 4096, 4096 + 10)]
