"""Who ended a process because of a limit, and how to raise the limit there: a scheduler, a service or a daemon, not only the kernel."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from crashkit.evidence.text.log_patterns import line_patterns
from crashkit.model import Crash

# The program's line: who ended the process, and how the first fix begins.
MEMORY = {
    "Error R15 (Memory quota vastly exceeded)": ("Heroku", "heroku ps:type"),
    "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.": ("LSF", "bsub -M"),
    "Completed <exit>; TERM_MEMLIMIT: job killed after reaching LSF memory usage limit": ("LSF", "bsub -M"),
    "TERM_SWAP: job killed after reaching LSF swap usage limit.": ("LSF", "bsub -M"),
    "Container [pid=4711,containerID=container_1] is running beyond physical memory limits. Killing container.": ("YARN", "spark-submit"),
    "Container [pid=4711,containerID=container_1] is running beyond virtual memory limits.": ("YARN", "yarn.nodemanager.vmem"),
    "is running 3221225472B beyond the 'PHYSICAL' memory limit. Killing container.": ("YARN", "spark-submit"),
    "=>> PBS: job killed: mem 66012484kb exceeded limit 62914560kb": ("PBS", "qsub"),
    "=>> PBS: job killed: vmem 66012484kb exceeded limit 62914560kb": ("PBS", "qsub -l vmem"),
    "=>> PBS: job killed: pmem process 4711 exceeded limit 62914560kb": ("PBS", "qsub"),
    "Your notebook tried to allocate more memory than is available. It has restarted.": ("The notebook's service", "del frame"),
    "The node was low on resource: memory. Container web was using 2Gi, request is 1Gi.": ("The kubelet", "resources: {requests"),
    "low swap: killing largest compressed process with pid 4711 (python3.7) and size 325 MB": ("macOS", None),
    "memorystatus: killing_specific_process pid 4711 [python3] (per-process-limit 100 16s rf:-) 78848KB": ("macOS", None),
    "memorystatus: python3 [4711] exceeded mem limit: ActiveHard 2048 MB (fatal)": ("macOS", None),
    "app.service: systemd-oomd killed 3 process(es) in this unit.": ("systemd-oomd", "oomctl"),
    "Killed /user.slice/app.scope due to memory pressure for /user.slice being 66.12% > 50.00% for > 20s": ("systemd-oomd", "oomctl"),
    "Killed /system.slice/app.service due to memory used (98%) > 90.00%": ("systemd-oomd", "oomctl"),
    '{"errorType": "Runtime.OutOfMemory"': ("AWS Lambda", "aws lambda"),
    "Error from slot1@host: Job has gone over memory limit of 2048 megabytes. Peak usage: 2100 megabytes.": ("HTCondor", "request_memory"),
    "Job was OOM killed by cgroup memory limit of 4096 megabytes": ("HTCondor", "request_memory"),
}
OF_KERNEL = [
    "The node was low on resource: memory.\nMemory cgroup out of memory: Killed process 4711 (python3) total-vm:8kB, anon-rss:4kB",
    "Memory cgroup out of memory: Killed process 4711 (python3) total-vm:8kB, anon-rss:4kB",
    "app.service: The kernel OOM killer killed 1 process(es) in this unit.",
    "Last State: Terminated  Reason: OOMKilled  Exit Code: 137",
]
# The program's line: what is told of the limit, and how the first fix begins.
TIME = {
    "[ERROR/MainProcess] Hard time limit (300s) exceeded for tasks.work[7d0c]": ("300 s", "@app.task"),
    "celery.exceptions.SoftTimeLimitExceeded: SoftTimeLimitExceeded()": (None, "@app.task"),
    "timeout: sending signal TERM to command 'python'": (None, "timeout 3600"),
    "panic: test timed out after 10m0s": ("10m0s", "go test -timeout"),
    "Time limit exceeded. Raising exception in worker thread 139872.": (None, "@dramatiq.actor"),
    "TimeoutError: ('Task timeout', 60)": ("60 s", "pool.schedule"),
    "rq.timeouts.JobTimeoutException: Task exceeded maximum timeout value (180 seconds)": ("180 s", "queue.enqueue"),
    "2026-01-02T03:04:05.678Z 0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f Task timed out after 3.00 seconds": ("3.00 s", "aws lambda"),
    "Function execution took 60002 ms, finished with status: 'timeout'": (None, "gcloud functions"),
    "##[error]The action 'Run tests' has timed out after 5 minutes.": ("5 minutes", "timeout-minutes:"),
    "ERROR: Job failed: execution took longer than 1h0m0s seconds": ("1h0m0s", "timeout:"),
    "##[error]The job running on agent Hosted ran longer than the maximum time of 60 minutes.": ("60 minutes", "timeoutInMinutes:"),
    "Build timed out (after 2 hours). Marking the build as aborted.": ("2 hours", "Terminate a build"),
}
KERNELS_FIXES = ("docker run", "sudo systemctl set-property", "cat /sys/fs/cgroup")


@pytest.mark.parametrize(("line", "expected"), MEMORY.items())
def test_who_ended_a_process_for_its_use_of_memory_is_named(
    told: Callable[[str], Crash], line: str, expected: tuple[str, str | None]
) -> None:
    who, fix = expected
    first = told(line).findings[0]
    assert first.id == "host-oom-cgroup"
    assert first.summary.startswith(f"{who} ended ")
    assert "memory.max" not in first.summary
    assert not any(text.startswith(KERNELS_FIXES) for text in first.fix)
    if fix is not None:
        assert first.fix[0].startswith(fix)


@pytest.mark.parametrize("line", OF_KERNEL)
def test_what_the_kernel_ended_is_told_so(told: Callable[[str], Crash], line: str) -> None:
    first = told(line).findings[0]
    assert first.id == "host-oom-cgroup"
    assert first.summary.startswith("The kernel's OOM killer ended ")
    assert any(text.startswith(KERNELS_FIXES) for text in first.fix)


@pytest.mark.parametrize(("line", "expected"), TIME.items())
def test_a_time_limit_is_told_in_its_own_unit_and_raised_where_it_was_set(
    told: Callable[[str], Crash], line: str, expected: tuple[str | None, str]
) -> None:
    limit, fix = expected
    first = told(line).findings[0]
    assert first.id == "timeout-task"
    sentences = re.findall(r"The limit was (.{1,40})\.(?: |$)", first.summary)
    assert sentences == ([limit] if limit else [])
    assert first.fix[0].startswith(fix)
    assert not any("Celery" in text for text in first.fix[1:])


def test_every_limit_of_the_table_is_tried_here(told: Callable[[str], Crash]) -> None:
    seen = [line.fields for text in (*MEMORY, *TIME) for line in told(text).log]
    for pattern in line_patterns():
        if pattern.kind in ("oom-host", "oom-event", "task-time-limit") and pattern.told:
            assert any(pattern.told.items() <= fields.items() for fields in seen), pattern.told
