"""Cores of several ranks, and crash folders beside a launcher's log, are one job: each process shows where it stood."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit.model import Crash
from crashkit.naming.own_code import python_frames
from crashkit.pipeline import Options, analyze
from tests.collect.conftest import Crashkit
from tests.collect.conftest import crashkit as crashkit
from tests.job.folders import crash_folder, launcher, looked_at

RANK = """
import ctypes, os, signal
def wait_for_peer():
    print("there", flush=True)
    signal.pause()
def train_step():
    ctypes.string_at(0)
if os.environ["RANK"] == "1":
    train_step()
wait_for_peer()
"""


@pytest.fixture
def cores(crashkit: Crashkit) -> list[tuple[int, Path]]:
    """The pid and the core of ranks 0 and 1: rank 1 reads a null pointer, and rank 0 is ended while it waits for it."""
    script = crashkit.script("rank.py", RANK)
    started = []
    for rank in (0, 1):
        folder = crashkit.cwd / f"of-{rank}"
        folder.mkdir()
        process = subprocess.Popen(
            [sys.executable, script],
            cwd=folder,
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)),
        )
        started.append((process, folder))
    waiting, failing = started[0][0], started[1][0]
    assert waiting.stdout is not None and waiting.stdout.readline() == b"there\n"
    assert failing.wait(60) == -signal.SIGSEGV
    waiting.send_signal(signal.SIGABRT)
    assert waiting.wait(60) == -signal.SIGABRT
    found = []
    for process, folder in started:
        assert process.stdout is not None
        process.stdout.close()
        (core,) = folder.glob("core*")
        found.append((process.pid, core))
    return found


def where(crash: Crash) -> dict[int | None, str | None]:
    assert crash.job is not None
    return {one.rank: one.where.function if one.where is not None else None for one in crash.job.processes}


OPTIONS = Options(gdb=None)


def test_several_cores_are_one_job(cores: list[tuple[int, Path]]) -> None:
    crash = analyze([core for _, core in cores], options=OPTIONS)
    assert crash.job is not None and {one.rank: one.pid for one in crash.job.processes} == {0: cores[0][0], 1: cores[1][0]}
    assert where(crash) == {0: "wait_for_peer", 1: "train_step"}
    causes = [crash.job.root_cause, *crash.job.also]
    assert 1 in [cause.rank for cause in causes if cause is not None]


def test_a_launchers_log_tells_which_core_counts(cores: list[tuple[int, Path]], tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(launcher(stopped=cores[0][0], failed=cores[1][0]))
    crash = analyze([log, *(core for _, core in cores)], options=OPTIONS)
    assert crash.job is not None and crash.job.root_cause is not None and crash.job.root_cause.rank == 1
    assert crash.process is not None and crash.process.pid == cores[1][0]
    assert crash.thread is not None and "train_step" in [frame.function for frame in python_frames(crash.thread)]


@pytest.mark.parametrize("name", ["stderr.log", "faulthandler.log"])
def test_the_stack_of_a_folder_is_kept_beside_a_launchers_log(name: str, tmp_path: Path) -> None:
    """The folder has no core: its stack is in its log, and the launcher's log alone has none."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", RANK], env={**os.environ, "RANK": "1"}, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == -signal.SIGSEGV
    kind = "log" if name == "stderr.log" else "faulthandler"
    folder = crash_folder(tmp_path / "crash", 1, 101, done.stderr, name, kind, signal=11, is_command=False)
    log = tmp_path / "job.log"
    log.write_text(launcher(stopped=100, failed=101))
    for order in ([log, folder], [folder, log]):
        crash = analyze(order, options=OPTIONS)
        assert crash.job is not None and crash.job.root_cause is not None and crash.job.root_cause.rank == 1
        assert crash.job.root_cause.where is not None and crash.job.root_cause.where.function == "train_step"
        assert crash.thread is not None and "train_step" in [frame.function for frame in python_frames(crash.thread)]


def test_a_rank_that_left_no_stack_has_not_the_launchers(tmp_path: Path) -> None:
    """What a job's log ends with is the launcher's own traceback."""
    traceback = (
        "Traceback (most recent call last):\n"
        '  File "/venv/bin/torchrun", line 10, in <module>\n    sys.exit(main())\n'
        '  File "/venv/lib/torch/distributed/run.py", line 990, in main\n    run(args)\n'
        '  File "/venv/lib/torch/distributed/launcher/api.py", line 317, in launch_agent\n    raise ChildFailedError(\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    )
    log = launcher(stopped=100, failed=101, status=-9) + traceback
    folder = crash_folder(tmp_path / "crash", 1, 101, log, signal=9, is_command=False)
    looked_at(folder, "rank0-100", 100, environment={"RANK": "0", "LOCAL_RANK": "0"})
    crash = analyze(folder, options=OPTIONS)
    assert crash.job is not None and crash.job.root_cause is not None
    assert (crash.job.root_cause.rank, crash.job.root_cause.what) == (1, "SIGKILL")
    assert crash.threads == () and crash.thread is None
