"""torchelastic starts a job again after a failure: ranks that then only lose their peers are no crashes of their own."""

from __future__ import annotations

import contextlib
import re
import sys
from functools import partial
from pathlib import Path

import pytest

from crashkit.collect.supervise.lost_peer import only_lost_peers
from tests.collect.conftest import Crashkit
from tests.collect.test_incident import others, wait_for

LAUNCHER = """
import os, subprocess, sys
# As torchrun --max-restarts: all ranks, then all again.
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
for start, fails in enumerate((["raise ValueError('bad sample')"], sys.argv[1:])):
    ranks = []
    for rank, code in enumerate(fails):
        variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": str(4711 + start)}
        variables.update(TORCHELASTIC_RUN_ID="none", TORCHELASTIC_RESTART_COUNT=str(start))
        code = f"import sys; sys.stdin.readline()\\n{code}"
        ranks.append(subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **variables}, **pipes))
    print(*(one.pid for one in ranks), flush=True)
    sys.stdin.readline()
    for one in ranks:
        one.communicate("fail")
sys.exit(1)
"""
NAMED = """
import os, traceback
# As torch does once it knows the rank.
def named(*error):
    for line in "".join(traceback.format_exception(*error)).splitlines(): print(f"[rank{os.environ['RANK']}]: {line}", file=sys.stderr)
sys.excepthook = named
"""
LOST = "raise RuntimeError('[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:41868')"
FAILED = "raise ValueError('another one')"


def looked(pid: int) -> int:
    """How often it has gone to sleep, which it does after each look at the processes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("voluntary_ctxt_switches:")[1].split()[0])


def has_looked(pid: int, times: int) -> bool:
    return looked(pid) >= times


def has_found(pid: int, ranks: set[str]) -> bool:
    """Whether it watches these processes: fdinfo of a pidfd tells whose it is (proc_pid_fdinfo(5))."""
    watched = set()
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            watched |= set(re.findall(r"^Pid:\t(\d+)$", entry.read_text(), re.MULTILINE))
    return ranks <= watched


def started_again(crashkit: Crashkit, *ranks: str) -> None:
    process = crashkit.start("run", "--no-analyze", "--", sys.executable, crashkit.script("launcher.py", LAUNCHER), *ranks, stdin=-1)
    assert process.stdout is not None and process.stdin is not None
    for _ in range(2):
        # A process that ends before crashkit has found it leaves nothing.
        wait_for(partial(has_found, process.pid, set(process.stdout.readline().split())))
        # Whom it saw before execve it looks at again, soon.
        wait_for(partial(has_looked, process.pid, looked(process.pid) + 3))
        process.stdin.write("go on\n")
        process.stdin.flush()
    assert process.wait(120) == 1


@pytest.mark.slow
def test_who_loses_its_peers_after_a_restart_belongs_to_the_first(crashkit: Crashkit) -> None:
    started_again(crashkit, LOST, LOST)
    (crash,) = crashkit.crashes()
    assert crash["environment"]["TORCHELASTIC_RESTART_COUNT"] == "0"
    again = [one["environment"] for one in others(crash) if one["environment"].get("TORCHELASTIC_RESTART_COUNT") == "1"]
    # Both, unless this machine needed more than the five seconds of quiet that end an incident, before the first of them ended or between
    # them; and one that crashkit last looked at before its execve(2) has no variables yet.
    assert sorted(one["RANK"] for one in again) in ([], ["0"], ["1"], ["0", "1"])


@pytest.mark.slow
def test_who_fails_by_itself_after_a_restart_does_not(crashkit: Crashkit) -> None:
    started_again(crashkit, NAMED + FAILED, NAMED + LOST)
    assert sorted(crash["environment"]["TORCHELASTIC_RESTART_COUNT"] for crash in crashkit.crashes()) == ["0", "1"]


def traceback(last: str, prefix: str = "") -> str:
    lines = ["Traceback (most recent call last):", '  File "train.py", line 3, in step', "    work.wait()", last]
    return "".join(f"{prefix}{line}\n" for line in lines)


PEER, OWN = "RuntimeError: Connection closed by peer [127.0.0.1]:41868", "ValueError: bad sample"


@pytest.mark.parametrize(
    ("before", "stderr", "error", "lost"),
    [
        ("", traceback(PEER, "[rank1]: "), "", True),
        ("", traceback(OWN, "[rank1]: "), "", False),
        # The last one of its own counts, not that of another rank, nor of the start before.
        ("", traceback(OWN, "[rank1]: ") + traceback(PEER, "[rank1]: "), "", True),
        ("", traceback(PEER, "[rank1]: ") + traceback(OWN, "[rank0]: ") + traceback(OWN), "", True),
        (traceback(OWN, "[rank1]: "), traceback("torch.distributed.DistNetworkError: timed out"), "", True),
        ("", traceback(PEER, "[rank0]: "), "", False),
        # It may be the one or the other.
        ("", traceback(OWN) + traceback(PEER), "", False),
        (traceback(OWN), traceback(PEER), "", True),
        ("", "nothing\n", "", False),
        ("", traceback(OWN), '{"message": {"message": "RuntimeError: Connection reset by peer"}}', True),
        ("", traceback(PEER), '{"message": {"message": "ValueError: bad sample"}}', False),
        ("", traceback(PEER), "[", True),
    ],
)
def test_what_a_rank_said_last(before: str, stderr: str, error: str, lost: bool) -> None:
    assert only_lost_peers((before + stderr).encode(), error.encode(), 1, before.encode()) == lost
