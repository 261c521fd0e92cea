"""What dies of one cause is one crash folder: the ranks of a job, and where those stood that lived."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.collect.conftest import Crashkit

LAUNCHER = """
import os, signal, subprocess, sys
# As torchrun: it starts the ranks, waits for the first to fail, and ends the others.
port = sys.argv[1]
ranks = []
for rank, code in enumerate(sys.argv[2:]):
    variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(sys.argv) - 2), "MASTER_PORT": port}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    ranks.append(subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **variables}, **pipes))
for one in ranks[1:]:
    one.stdout.readline()
print("there", flush=True)
ranks[0].communicate(sys.stdin.readline())
# Nobody ends the others before they were looked at: here it is for sure, with torchrun it is a tenth of a second.
sys.stdin.readline()
for one in ranks[1:]:
    one.send_signal(int(os.environ.get("END", signal.SIGTERM)))
for one in ranks:
    one.wait()
sys.exit(1)
"""
WAITS = """
import signal
def load_batch():
    print("there", flush=True)
    signal.pause()
load_batch()
"""
RAISES = """
import json, os, sys
sys.stdin.readline()
error = os.environ.get("TORCHELASTIC_ERROR_FILE")
if error:
    with open(error, "w") as file:
        json.dump({"message": {"message": "ValueError: bad sample", "extraInfo": {"py_callstack": "", "timestamp": "1"}}}, file)
raise ValueError("bad sample")
"""
GROWS = "import sys; sys.stdin.readline(); kept = [bytes([1]) * (1 << 20) for _ in range(1000)]"
SEGFAULTS = "import ctypes, sys; sys.stdin.readline(); ctypes.string_at(0)"


def links(pid: int) -> list[str]:
    """What the open files of a process are."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(entry.readlink()))
    return found


def wait_for(happened: Callable[[], bool]) -> None:
    """Wait for something that can only be looked at."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ended(
    crashkit: Crashkit, *ranks: str, options: tuple[str, ...] = (), begin: Optional[Callable[[], object]] = None, **variables: str
) -> tuple[dict[str, Any], str]:
    """The only crash of a job of these ranks, of which the first one fails, and what crashkit said. `begin` is called in its process."""
    crashkit.environment.update(variables)
    launcher = crashkit.script("launcher.py", LAUNCHER)
    process = crashkit.start("run", *options, "--", sys.executable, launcher, "4711", *ranks, stdin=-1, preexec_fn=begin)
    assert process.stdout.readline().strip() == "there"
    # A process that ends before crashkit has found it leaves nothing but its core.
    wait_for(lambda: len([link for link in links(process.pid) if "pidfd" in link]) >= len(ranks))
    process.stdin.write("fail\n")
    process.stdin.flush()
    # The folder of the run tells that the living were looked at.
    wanted = 0 if "--no-siblings" in options else len(ranks) - 1
    wait_for(lambda: len(list(crashkit.home.glob(".run-*/live.*.json"))) >= wanted)
    process.stdin.write("\n")
    process.stdin.close()
    said = process.stderr.read()
    assert process.wait(120) == 1, said
    (crash,) = crashkit.crashes()
    return crash, said


def others(crash: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads((crash["folder"] / "others" / name / "manifest.json").read_text()) for name in crash.get("others", ())]


@pytest.mark.slow
def test_a_rank_that_the_kernel_kills_for_its_memory(crashkit: Crashkit) -> None:
    """All of the job are in one cgroup, as in a container or a SLURM step: the largest is killed, and where the others stood is kept."""
    group = Path(f"/sys/fs/cgroup/memory/crashkit-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(300 << 20))
    except OSError as error:
        pytest.skip(f"no memory cgroup (version 1) can be made: {error}")
    try:
        crash, said = ended(crashkit, GROWS, WAITS, begin=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
        assert (crash["signal"], crash["environment"]["RANK"], crash["killed"]["by"]) == (9, "0", "oom")
        assert "2 ranks: Rank 0 failed first: SIGKILL: the kernel was out of memory: " in said
        report = json.loads((crash["folder"] / "report.json").read_text())
        assert (report["findings"][0]["id"], report["findings"][0]["confidence"]) == ("host-oom-cgroup", "certain")
        assert not report.get("threads")
        (waited,) = (one for one in report["job"]["processes"] if one["rank"] == 1)
        assert (waited["role"], waited["where"]["function"]) == ("waited", "load_batch")
    finally:
        group.rmdir()


@pytest.mark.slow
def test_an_exception_of_a_rank(crashkit: Crashkit, tmp_path: Path) -> None:
    """It leaves one folder, with torchelastic's error file, and where the other rank stood."""
    error = tmp_path / "error.json"
    crash, said = ended(crashkit, RAISES, WAITS, TORCHELASTIC_ERROR_FILE=str(error))
    assert (crash["exit_status"], crash["environment"]["RANK"]) == (1, "0")
    assert {file["kind"] for file in crash["files"]} >= {"log", "error-file"}
    (other,) = others(crash)
    assert other["alive"] == f"it was alive when process {crash['pid']} ended with status 1"
    assert [line for line in said.splitlines() if line.startswith("crashkit: ")] == [
        f"crashkit: 2 ranks: Rank 0 failed first: ValueError: bad sample: {crash['folder']}/report.html"
    ]
    report = json.loads((crash["folder"] / "report.json").read_text())
    assert report["id"] == crash["id"]
    assert report["job"]["root_cause"]["rank"] == 0
    (waited,) = (one for one in report["job"]["processes"] if one["rank"] == 1)
    assert waited["where"]["function"] == "load_batch" and waited["role"] != "root-cause"
    assert list((crash["folder"] / "others").glob("*/core.zst")), "what was taken of the living is kept, compressed"


@pytest.mark.slow
def test_deaths_of_one_job_are_one_folder(crashkit: Crashkit) -> None:
    """The launcher kills the others with a signal that would be a crash of its own."""
    crash, said = ended(crashkit, SEGFAULTS, WAITS, WAITS, options=("--no-analyze",), END=str(int(signal.SIGABRT)))
    assert crash["signal_name"] == "SIGSEGV"
    assert {one["environment"]["RANK"]: one.get("signal_name") for one in others(crash)} == {"1": "SIGABRT", "2": "SIGABRT"}
    assert said.count("crashkit: ") == 1


@pytest.mark.slow
def test_nobody_is_looked_at_if_that_is_not_wanted(crashkit: Crashkit) -> None:
    crash, _ = ended(crashkit, SEGFAULTS, WAITS, options=("--no-analyze", "--no-siblings"))
    assert "others" not in crash and not (crash["folder"] / "others").exists()


@pytest.mark.slow
def test_what_a_rank_starts_may_fail(crashkit: Crashkit) -> None:
    """It inherits the variables of the rank, and is none."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; sys.stdin.readline(); sys.exit(3)'])"
    launcher = crashkit.script("launcher.py", LAUNCHER.replace("sys.exit(1)", "sys.exit(0)"))
    process = crashkit.start("run", "--no-analyze", "--", sys.executable, launcher, "4711", code, stdin=-1)
    wait_for(lambda: len([link for link in links(process.pid) if "pidfd" in link]) >= 2)
    process.stdin.close()
    assert process.wait(60) == 0
    assert crashkit.crashes() == []


@pytest.mark.parametrize("job", ["4711", "4712"])
def test_two_jobs_are_two_incidents(job: str) -> None:
    from crashkit.collect.host.snapshot import ProcessSnapshot
    from crashkit.collect.supervise.incident import Incident
    from crashkit.collect.supervise.sighting import Sighting

    def process(rank: int, port: str, seen: float) -> ProcessSnapshot:
        return ProcessSnapshot(rank, 0, 1, "python", (), None, None, rank, (), seen, (("MASTER_PORT", port), ("RANK", str(rank))))

    first = Sighting(0.0, 1, 0, 11, False, False, process(1, "4711", 0.0), None, b"", None)
    incident = Incident(first, 10.0)
    assert incident.takes(process(2, job, 1.0), 12.0) == (job == "4711")
    assert not incident.takes(process(2, job, 11.0), 12.0), "started after it: by a restart"
    assert not incident.takes(process(2, job, 1.0), 99.0), "much later"
    assert not incident.is_over(14.0, False) and incident.is_over(16.0, False) and incident.is_over(11.0, True)
    incident.launcher_stops = True
    assert not incident.is_over(40.0, False) and incident.is_over(46.0, False)
