"""The kernel's log in a crash folder is the whole host's: what it says of other processes is not told of this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crashkit.pipeline import Options, analyze

# Linux 6.18: a segmentation fault of process 13097, and process 13098 of another SLURM job that reached its limit.
DMESG = """\
[2057.116123] python[13097]: segfault at 0 ip 00007f1988585ad8 sp 00007ffd7cd80858 error 4 in libc.so.6[167ad8,7f1988444000+156000] \
likely on CPU 1 (core 1, socket 0)
[2057.302647] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[2057.303188] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/slurm/uid_0/job_5,\
task_memcg=/slurm/uid_0/job_5/step_batch/task_0,task=python,pid=13098,uid=0
[2057.303203] Memory cgroup out of memory: Killed process 13098 (python) total-vm:74600kB, anon-rss:60800kB, file-rss:6120kB
"""
RAISED = """\
Traceback (most recent call last):
  File "/srv/rank.py", line 8, in fail
    raise ValueError("bad sample")
ValueError: bad sample
"""
LOST = "RuntimeError: DataLoader worker (pid 13098) is killed by signal: Killed. \n"
OUT_OF_MEMORY = "host-oom-cgroup"


def folder(tmp_path: Path, stderr: str, **ends: Any) -> Path:
    files = {"dmesg.log": ("kernel-log", DMESG), "stderr.log": ("log", stderr)}
    for name, (_, content) in files.items():
        (tmp_path / name).write_text(content)
    listed = [{"name": name, "kind": kind} for name, (kind, _) in files.items()]
    manifest = {"schema": "crashkit.manifest/1", "id": "x", "pid": 13114, "name": "python", "files": listed, **ends}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path


@pytest.mark.parametrize(
    ("stderr", "ends", "signal", "out_of_memory"),
    [
        (RAISED, {"exit_status": 1}, None, False),
        (LOST, {"exit_status": 1}, "SIGKILL", True),
        ("", {"signal": 9, "killed": {"by": "unknown", "evidence": []}}, "SIGKILL", False),
        ("", {"signal": 9, "killed": {"by": "oom", "evidence": []}}, "SIGKILL", True),
        ("", {"signal": 9}, "SIGKILL", True),
        ("", {"signal": 6}, "SIGABRT", False),
        ("", {"signal": 11}, "SIGSEGV", False),
        # A shell's status tells of its child.
        ("", {"exit_status": 139}, "SIGSEGV", False),
        ("", {"exit_status": 137}, None, True),
        # What was looked at while it was alive had no fault.
        ("", {"alive": "no progress for 4 s"}, None, False),
        (LOST, {"alive": "no progress for 4 s"}, "SIGKILL", True),
        # Only what is told to be a pid is one.
        ("ValueError: expected 13098 bytes\n", {"exit_status": 1}, None, False),
    ],
)
def test_what_another_process_did(stderr: str, ends: dict[str, Any], signal: str | None, out_of_memory: bool, tmp_path: Path) -> None:
    crash = analyze(folder(tmp_path, stderr, **ends), options=Options(gdb=None))
    assert (crash.signal.name if crash.signal is not None else None) == signal
    assert crash.process is not None and crash.process.pid != 13097
    found = {finding.id for finding in crash.findings}
    assert (OUT_OF_MEMORY in found) == out_of_memory
    # The kernel's word of a null pointer is only that of a process that SIGSEGV ended.
    assert ("null-deref" in found) == (signal == "SIGSEGV")
    assert bool(crash.signal and crash.signal.address is not None) == (signal == "SIGSEGV")


def test_a_fault_of_another_name_is_another_process(tmp_path: Path) -> None:
    kernels = "[1.5] nginx[77]: segfault at 10 ip 0000000000401000 sp 00007ffd7cd80858 error 4 in nginx[400000+1000]\n"
    own = kernels.replace("nginx[77]", "a-long-name-of-[13097]").replace("at 10", "at 20")
    for dmesg, name, address in ((kernels, "python3", None), (kernels + own, "a-long-name-of-a-program", 0x20), (kernels, "nginx", 0x10)):
        folder(tmp_path, "", signal=11, name=name)
        (tmp_path / "dmesg.log").write_text(dmesg)
        crash = analyze(tmp_path, options=Options(gdb=None))
        assert crash.signal is not None and (crash.signal.name, crash.signal.address) == ("SIGSEGV", address)


@pytest.mark.parametrize("line", ["Killed process 13098 (py) total-vm:5kB", "Killed process 13098 (py), UID 0, total-vm:5kB",
    "Killed process 13098, UID 0, (py) total-vm:5kB"])  # fmt: skip
def test_the_second_line_of_a_kill_is_enough(line: str, tmp_path: Path) -> None:
    folder(tmp_path, LOST, exit_status=1)
    (tmp_path / "dmesg.log").write_text(f"[1.5] {line}, anon-rss:2kB, file-rss:0kB\n")
    crash = analyze(tmp_path, options=Options(gdb=None))
    (found,) = (finding for finding in crash.findings if finding.id == OUT_OF_MEMORY)
    assert "py (13098)" in found.summary


def test_of_a_process_whose_end_nobody_saw_everything_counts(tmp_path: Path) -> None:
    """`crashkit.enable()` sees no end."""
    crash = analyze(folder(tmp_path, ""), options=Options(gdb=None))
    assert crash.signal is not None and crash.signal.name == "SIGSEGV"
