"""What docker, kubectl, SLURM and others say of processes that ended: which process, how, and whether for lack of memory.

Most of these programs cannot be had here. The texts have the forms that their documentation and sources print: named at each. What SLURM
and podman printed is in fixtures/jobs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional

import pytest

from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import read_log
from crashkit.model import Crash
from crashkit.pipeline import Options, analyze

# docker's reference, `docker container ls --all`; podman-ps(1).
DOCKER = """\
CONTAINER ID   IMAGE     COMMAND              CREATED         STATUS                       PORTS     NAMES
d9b100f2f636   train     "python train.py"    3 minutes ago   Exited (137) 2 minutes ago             trainer
09d93464c2f7   web       "gunicorn app:app"   3 minutes ago   Up 3 minutes                 80/tcp    web
af3b1e5c0a01   job       "python job.py"      2 hours ago     Exited (139) 1 hour ago                job
5f3cdc1e8ab1   once      "python once.py"     3 hours ago     Exited (0) 2 hours ago                 once
"""
PODMAN = """\
CONTAINER ID  IMAGE                          COMMAND          CREATED        STATUS                    PORTS       NAMES
3b1a2c4d5e6f  docker.io/library/python:3.12  python train.py  2 minutes ago  Exited (139) 1 minute ago             trainer
9c0d1e2f3a4b  docker.io/library/redis:7      redis-server     2 minutes ago  Up 2 minutes              6379/tcp    cache
"""
# kubernetes.io, "Assign Memory Resources to Containers and Pods"; kubectl 1.22 and newer say when the last restart was.
PODS = """\
NAME            READY   STATUS      RESTARTS     AGE
memory-demo-2   0/1     OOMKilled   1 (5s ago)   24s
web-7d9c        1/1     Running     0            3d
"""
# printers.go: of a container that gives no reason.
PODS_OF_ALL = """\
NAMESPACE   NAME       READY   STATUS             RESTARTS   AGE
ml          worker-0   0/1     Signal:11          0          24s
ml          worker-1   0/1     Init:ExitCode:139  0          24s
web         front      1/1     Running            0          3d
"""
# describe.go: describeContainers, describeStatus.
DESCRIBED = """\
Name:             train-0
Namespace:        ml
Status:           Running
Containers:
  trainer:
    Container ID:  containerd://65183c1877aaec2e8427bc95609cc52677a454b56fcb24340dbd22917c23b10f
    Image:         ml/train
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Mon, 16 Nov 2026 10:12:05 +0000
      Finished:     Mon, 16 Nov 2026 10:12:06 +0000
    Ready:          False
    Restart Count:  3
  sidecar:
    State:          Running
      Started:      Mon, 16 Nov 2026 10:12:05 +0000
    Ready:          True
Conditions:
  Type              Status
  Ready             False
"""
# sacct(1): the columns of default, and those of --parsable2. A job that ran out of memory ends with 0:125.
SACCT = """\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
4711              train        gpu         ml         16 OUT_OF_ME+    0:125
4711.batch        batch                    ml         16 OUT_OF_ME+    0:125
4711.extern      extern                    ml         16  COMPLETED      0:0
4712              train        gpu         ml         16     FAILED    139:0
4713              train        gpu         ml         16     FAILED      0:9
4714              train        gpu         ml         16 CANCELLED+      0:0
4715              train        gpu         ml         16    RUNNING      0:0
"""
PARSABLE = """\
JobID|JobName|State|ExitCode
12_1|train|COMPLETED|0:0
12_2|train|FAILED|0:11
12_2.batch|batch|FAILED|0:11
12_3|train|CANCELLED by 1000|0:15
"""


def inspected(*states: tuple[str, int, bool, bool]) -> str:
    """docker's api/types/container: of each the name, the status, whether for lack of memory, whether it runs."""
    told = [
        {
            "Id": "ba6d2d4a8f2d",
            "Path": "python",
            "Args": ["train.py"],
            "State": {
                "Status": "running" if runs else "exited",
                "Running": runs,
                "Paused": False,
                "OOMKilled": killed,
                "Dead": False,
                "Pid": 0,
                "ExitCode": status,
                "Error": "",
            },
            "Name": f"/{name}",
            "HostConfig": {"RestartPolicy": {"Name": "no", "MaximumRetryCount": 0}},
        }
        for name, status, killed, runs in states
    ]
    return json.dumps(told, indent=4) + "\n"


JOBS = Path(__file__).parents[2] / "fixtures" / "jobs"
LISTS = JOBS / "slurm-lists"
# What ran as each of these jobs, and how SLURM 22.05.8 lists it: 5 ran out of memory, 7 ended with a shell's 139, 11 had a task that read a
# null pointer, 18 was ended at its time limit, 19 by scancel, 24 had a task that ran out of memory, 25 ended well.
SLURM_SAYS = {"5": None, "7": -11, "11": -15, "18": -15, "19": -15, "24": 1, "25": 0}
SLURM_FAILED = {"5", "7", "24"}

TOLD = {
    "docker": (DOCKER, "docker", {"trainer": -9, "web": None, "job": -11, "once": 0}, {"trainer", "job"}),
    "podman": (PODMAN, "podman", {"trainer": -11, "cache": None}, {"trainer"}),
    "inspect": (
        inspected(("trainer", 137, True, False), ("web", 0, False, True)),
        "docker",
        {"trainer": -9, "web": None},
        {"trainer"},
    ),
    "pods": (PODS, "kubernetes", {"memory-demo-2": None, "web-7d9c": None}, {"memory-demo-2"}),
    "pods-of-all": (PODS_OF_ALL, "kubernetes", {"worker-0": -11, "worker-1": -11, "front": None}, {"worker-0", "worker-1"}),
    "described": (DESCRIBED, "kubernetes", {"trainer": -9, "sidecar": None}, {"trainer"}),
    "sacct": (SACCT, "slurm", {"4711": None, "4712": -11, "4713": -9, "4714": 0, "4715": None}, {"4711", "4712", "4713"}),
    "parsable": (PARSABLE, "slurm", {"12_1": 0, "12_2": -11, "12_3": -15}, {"12_2"}),
}
OUT_OF_MEMORY = {"inspect": "trainer", "pods": "memory-demo-2", "described": "trainer", "sacct": "4711"}


def read(text: str, folder: Path) -> Crash:
    (folder / "said.txt").write_text(text)
    return analyze(folder / "said.txt", options=Options(gdb=None))


STOPPED = """\
CONTAINER ID   IMAGE   COMMAND              CREATED         STATUS                       PORTS   NAMES
09d93464c2f7   web     "gunicorn app:app"   3 minutes ago   Exited (143) 2 minutes ago           web
af3b1e5c0a01   sh      "sh"                 2 hours ago     Exited (130) 1 hour ago              sh
"""


def test_what_was_stopped_has_not_crashed(tmp_path: Path) -> None:
    assert {finding.id for finding in read(STOPPED, tmp_path).findings} == {"killed-by-sigterm"}


def test_a_container_whose_child_was_killed_runs_again(tmp_path: Path) -> None:
    """The kernel killed a process of it, and it ended with status 0."""
    waiting = "Waiting\n      Reason:       CrashLoopBackOff"
    running = "Running\n      Started:      Mon, 16 Nov 2026 10:12:07 +0000"
    text = DESCRIBED.replace(waiting, running).replace("Exit Code:    137", "Exit Code:    0")
    job = read(text, tmp_path).job
    assert job is not None and [one.name for one in job.processes if one.role in ("failed", "root-cause")] == ["trainer"]


@pytest.mark.parametrize("name", ["docker", "podman", "sacct"])
def test_a_list_does_not_show_that_others_followed(name: str, tmp_path: Path) -> None:
    assert "job-rank-failed" not in {finding.id for finding in read(TOLD[name][0], tmp_path).findings}


@pytest.mark.parametrize("before", ["", "$ the command\n"], ids=["alone", "behind-the-command"])
@pytest.mark.parametrize("name", TOLD)
def test_who_ended_and_how(name: str, before: str, tmp_path: Path) -> None:
    text, kind, ends, failed = TOLD[name]
    crash = read(before + text, tmp_path)
    assert crash.job is not None and crash.job.kind == kind
    assert {one.name: one.exit for one in crash.job.processes} == ends
    assert {one.name for one in crash.job.processes if one.role in ("failed", "root-cause")} == failed
    cause = crash.job.root_cause
    assert cause is not None and cause.what is not None
    if len(failed) == 1:
        assert {cause.name} == failed
    else:
        # Nothing says which was the first.
        assert cause.what.startswith(f"{len(failed)} processes failed: ") and all(f"{one} (" in cause.what for one in failed)
    killed = {one.name for one in crash.job.processes if one.what == "SIGKILL: the kernel was out of memory"}
    assert killed == ({OUT_OF_MEMORY[name]} if name in OUT_OF_MEMORY else set())
    assert ("host-oom-cgroup" in [finding.id for finding in crash.findings]) == bool(killed)


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("\n".join(DOCKER.splitlines()[:2]), "SIGKILL"),
        ("\n".join(PODMAN.splitlines()[:2]), "SIGSEGV"),
        ("\n".join(PODS_OF_ALL.splitlines()[:2]), "SIGSEGV"),
        ("\n".join(PARSABLE.splitlines()[:1] + PARSABLE.splitlines()[2:4]), "SIGSEGV"),
        (inspected(("trainer", 139, False, False)), "SIGSEGV"),
        # systemctl(1), status; qacct(1) of Grid Engine; `qstat -xf` of PBS and Torque, where 256 stands before the signal.
        ("   Main PID: 4711 (code=dumped, signal=SEGV)\n", "SIGSEGV"),
        ("   Main PID: 4711 (code=killed, signal=KILL)\n", "SIGKILL"),
        ("exit_status  139                  (Segmentation fault)\n", "SIGSEGV"),
        ("Job Id: 12.pbs\n    job_state = F\n    Exit_status = 267\n", "SIGSEGV"),
        ("Job Id: 12.host\n    job_state = C\n    exit_status = 265\n", "SIGKILL"),
        ("Job Id: 12.pbs\n    job_state = F\n    Exit_status = 134\n", "SIGABRT"),
    ],
)
def test_of_one_process_there_is_no_job(text: str, signal: str, tmp_path: Path) -> None:
    crash = read(text, tmp_path)
    assert crash.job is None
    assert crash.signal is not None and crash.signal.name == signal


@pytest.mark.parametrize(
    "text",
    [
        # IBM Spectrum LSF, "Termination reasons displayed by bacct, bhist, and bjobs", and the mail at a job's end.
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\nExited with exit code 137.\n",
        "Thu Mar 13 19:31:13: Completed <exit>; TERM_MEMLIMIT\n",
        # Nomad's docker driver; the stopped reasons of ECS (CannotPullContainer..., OutOfMemoryError).
        '2026-11-16T10:12:06Z  Terminated  Exit Code: 137, Exit Message: "OOM Killed"\n',
        '{"name": "train", "exitCode": 137, "reason": "OutOfMemoryError: Container killed due to memory usage"}\n',
        inspected(("trainer", 137, True, False)),
        "\n".join(PODS.splitlines()[:2]),
        "\n".join(SACCT.splitlines()[:3]),
        # systemctl(1), status.
        "     Active: failed (Result: oom-kill) since Mon 2026-11-16 10:12:06 UTC; 5s ago\n",
    ],
)
def test_out_of_memory(text: str, tmp_path: Path) -> None:
    crash = read(text, tmp_path)
    assert [(one.id, one.confidence) for one in crash.findings][:1] == [("host-oom-cgroup", "likely")]


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ("TIMEOUT", [("timeout-slurm-job", "certain")]),
        ("DEADLINE", [("timeout-slurm-job", "certain")]),
        ("PREEMPTED", [("slurm-job-cancelled", "likely")]),
        ("NODE_FAIL", [("slurm-job-cancelled", "likely")]),
    ],
)
def test_what_slurm_ended_by_itself(state: str, found: list[tuple[str, str]], tmp_path: Path) -> None:
    head, step = "JobID           JobName      State ExitCode", "881.batch         batch  CANCELLED     0:15"
    rows = f"{head}\n881               train {state:>10}      0:0\n{step}\n"
    assert [(one.id, one.confidence) for one in read(rows, tmp_path).findings] == found


@pytest.mark.parametrize(
    "text",
    [
        inspected(("trainer", 0, False, False), ("web", 0, False, True)),
        "\n".join(DOCKER.splitlines()[:1] + DOCKER.splitlines()[-1:]) + "\n",
        "\n".join(SACCT.splitlines()[:2] + SACCT.splitlines()[-2:]) + "\n",
        "NAME   READY   STATUS    RESTARTS   AGE\nweb    1/1     Running   0          3d\n",
        "Job Id: 12.pbs\n    job_state = F\n    Exit_status = 0\n",
        "Job Id: 12.pbs\n    job_state = F\n    Exit_status = 2670\n",
    ],
)
def test_who_ended_well_did_not_crash(text: str, tmp_path: Path) -> None:
    try:
        crash = read(text, tmp_path)
    except EvidenceError:
        return
    assert crash.job is None and crash.signal is None and not crash.findings


def test_a_log_goes_on_behind_a_list(tmp_path: Path) -> None:
    crash = read(DOCKER + "trainer gone\nFatal Python error: Segmentation fault\n\nCurrent thread 0x00007f00 (most recent call first):\n"
                 '  File "train.py", line 3 in step\n', tmp_path)  # fmt: skip
    assert any(line.kind == "fatal-python-error" for line in crash.log)


@pytest.mark.parametrize("text", [DOCKER, PODMAN, PODS, PODS_OF_ALL, DESCRIBED, (LISTS / "sacct.txt").read_text()])
def test_each_row_is_quoted_with_its_own_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text(f"$ which list is it\n{text}")
    rows = path.read_text().splitlines()
    quoted = [line for line in read_log(path).lines if line.kind in ("oom-event", "exit-status")]
    assert quoted
    for line in quoted:
        assert line.line is not None and line.text.rpartition(", ")[2] == rows[line.line - 1].strip()
        assert not line.before or line.before[-1].strip() == rows[line.line - 2].strip()


@pytest.mark.parametrize(("file", "ends"), [("scontrol.txt", SLURM_SAYS), ("jobcomp.txt", {**SLURM_SAYS, "18": 0, "19": 0})])
def test_what_slurm_listed(file: str, ends: dict[str, Optional[int]]) -> None:
    crash = analyze(LISTS / file, options=Options(gdb=None))
    assert crash.job is not None and crash.job.kind == "slurm"
    assert {one.name: one.exit for one in crash.job.processes} == ends
    assert {one.name for one in crash.job.processes if one.role == "failed"} == SLURM_FAILED
    assert {one.name for one in crash.job.processes if one.role == "stopped"} == {"11", "18", "19"}
    assert crash.job.root_cause is not None and crash.job.root_cause.confidence == "certain"


@pytest.mark.parametrize("file", ["sacct.txt", "sacct-parsable.txt"])
def test_what_sacct_listed(file: str) -> None:
    """It shows a shell's 139 and 143 as 11 and 15; jobs whose task failed as `0:15`, since srun ended the others."""
    crash = analyze(LISTS / file, options=Options(gdb=None))
    assert crash.job is not None and len(crash.job.processes) == 25
    ends = {one.name: one.exit for one in crash.job.processes}
    assert (ends["7"], ends["20"], ends["25"]) == (-11, -15, 0)
    # 15 is the one whose other tasks srun had to kill.
    assert {one.name for one in crash.job.processes if one.role == "failed"} == {"3", "4", "5", "7", "15", "24"}
    assert crash.job.root_cause is not None and crash.job.root_cause.confidence == "likely"


PODMAN_SAYS = {"segfault": -11, "raise": 1, "memory": -9, "once": 0, "stopped": -15, "stubborn": -9, "killed": -9, "web": None}


@pytest.mark.parametrize("file", ["ps.txt", "ps-no-trunc.txt", "inspect.json"])
def test_what_podman_listed(file: str) -> None:
    """`memory` was killed by the kernel, which podman 4.3.1 with runc and cgroup v1 does not say."""
    crash = analyze(JOBS / "podman-lists" / file, options=Options(gdb=None))
    assert crash.job is not None and crash.job.kind == "podman"
    ends = {one.name: one.exit for one in crash.job.processes}
    assert ends == (PODMAN_SAYS if file.endswith(".txt") else {name: PODMAN_SAYS[name] for name in ("segfault", "memory", "web")})
    failed = {one.name for one in crash.job.processes if one.role == "failed"}
    assert failed == {name for name in ends if name in ("segfault", "raise", "memory", "stubborn", "killed")}
