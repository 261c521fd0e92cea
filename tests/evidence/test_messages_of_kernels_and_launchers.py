"""What kernels, supervisors, schedulers and launchers print of another process that died, by the formats in their sources.

Each line as its program prints it, with the signal and the first finding that must be read of it; and what only looks like it.
"""

# ruff: noqa: E501

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import Optional

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.evidence.text.log_patterns import Classifier

FAULTS: dict[str, tuple[str, Optional[str]]] = {
    # arch/x86/kernel/traps.c: do_trap(), exc_general_protection(), exc_control_protection().
    "traps: python3[4711] general protection fault ip:7f1234567890 sp:7ffd12345678 error:0 in x.so[7f1234500000+100000]": ("SIGSEGV", "wild-pointer"),
    "traps: python3[4711] trap divide error ip:7f1234567890 sp:7ffd12345678 error:0 in x.so[7f1234500000+100000]": ("SIGFPE", "sigfpe-integer-divide"),
    "traps: python3[4711] trap overflow ip:f7e34567 sp:ffd12345 error:0 in x.so[f7e00000+100000]": ("SIGSEGV", None),
    "traps: python3[4711] trap bounds ip:f7e34567 sp:ffd12345 error:0 in x.so[f7e00000+100000]": ("SIGSEGV", None),
    "traps: python3[4711] trap invalid TSS ip:7f1234567890 sp:7ffd12345678 error:0": ("SIGSEGV", None),
    "traps: python3[4711] trap segment not present ip:7f1234567890 sp:7ffd12345678 error:0": ("SIGBUS", None),
    "traps: python3[4711] trap stack segment ip:7f1234567890 sp:7ffd12345678 error:0": ("SIGBUS", None),
    "traps: python3[4711] trap alignment check ip:7f1234567890 sp:7ffd12345678 error:0": ("SIGBUS", "misaligned-access"),
    "traps: python3[4711] control protection ip:7f1234567890 sp:7ffd12345678 ssp:7f1234567000 error:1(near ret) in x.so[7f1234500000+100000]": ("SIGSEGV", None),
    # arch/arm64/kernel/traps.c: arm64_show_signal(); arch/arm64/mm/fault.c until 4.16 and fault_info[].
    "python3[4711]: unhandled exception: DABT (lower EL), ESR 0x0000000092000006, level 2 translation fault in x.so[ffff80000000+100000]": ("SIGSEGV", None),
    "python3[4711]: unhandled exception: IABT (lower EL), ESR 0x000000008200000f, level 3 permission fault in x.so[ffff80000000+100000]": ("SIGSEGV", None),
    "python3[4711]: unhandled exception: DABT (lower EL), ESR 0x92000021, alignment fault in x.so[ffff80000000+1000]": ("SIGBUS", "misaligned-access"),
    "python3[4711]: unhandled exception: PC Alignment, ESR 0x000000008a000000, pc alignment exception": ("SIGBUS", None),
    "python3[4711]: unhandled exception: DABT (lower EL), ESR 0x0000000092000010, synchronous external abort in x.so[ffff80000000+1000]": ("SIGBUS", None),
    "python3[4711]: undefined instruction: pc=0000ffff80001234": ("SIGILL", "illegal-instruction"),
    "python3[4711]: unhandled alignment fault (7) at 0x00000011, esr 0x92000021": ("SIGBUS", "misaligned-access"),
    "python3[4711]: unhandled level 2 translation fault (11) at 0x00000010, esr 0x92000006, in x.so[ffff80000000+100000]": ("SIGSEGV", "null-deref"),
    # arch/arm/mm/fault.c, arch/arm/kernel/traps.c.
    "Unhandled fault: alignment exception (0x001) at 0xb6f00001": ("SIGBUS", "misaligned-access"),
    "Unhandled fault: external abort on non-linefetch (0x1818) at 0xb6f00000": ("SIGBUS", None),
    "python3: unhandled page fault (11) at 0x00000010, code 0x017": ("SIGSEGV", "null-deref"),
    "python3 (4711): undefined instruction: pc=b6f00000": ("SIGILL", "illegal-instruction"),
    # powerpc, riscv, s390, mips and loongarch, sparc.
    "python3[4711]: bus error (7) at 7fff0010 nip 7fff8000 lr 7fff8100 code 2 in x.so[7fff80000000+1000]": ("SIGBUS", None),
    "python3[4711]: illegal instruction (4) at 7fff8000 nip 7fff8000 lr 7fff8100 code 1 in x.so[7fff80000000+1000]": ("SIGILL", "illegal-instruction"),
    "python3[4711]: unhandled signal 11 at 0000000000000010 nip 00007fff80001234 lr 00007fff80001334 code 30001": ("SIGSEGV", "null-deref"),
    "python3[4711]: unhandled signal 11 code 0x1 at 0x0000000000000010 in x.so[3f80000000+1000]": ("SIGSEGV", "null-deref"),
    "User process fault: interruption code 003b ilc:2 in x.so[3ff80000000+1000]": ("SIGSEGV", None),
    "User process fault: interruption code 0010 ilc:2 in x.so[3ff80000000+1000]\nFailing address: 0000000000000000 TEID: 0000000000000800": ("SIGSEGV", "null-deref"),
    "do_page_fault(): sending SIGSEGV to python3 for invalid read access from 0000000000000010": ("SIGSEGV", "null-deref"),
    "python3[4711]: segfault at 10 ip 00007fff80001234 (rpc 00007fff80001334) sp 00007feff0000000 error 30001 in x.so[fff8000100000000+1000]": ("SIGSEGV", "null-deref"),
    # kernel/signal.c in its four forms; kernel/auditsc.c.
    "python3/4711: potentially unexpected fatal signal 11.": ("SIGSEGV", None),
    "/usr/bin/python3.11: python3: potentially unexpected fatal signal 4.": ("SIGILL", "illegal-instruction"),
    'type=ANOM_ABEND msg=audit(1700000000.123:456): auid=1000 uid=1000 gid=1000 ses=3 pid=4711 comm="python3" exe="/usr/bin/python3.11" sig=4 res=1': ("SIGILL", "illegal-instruction"),
    'audit: type=1701 audit(1700000000.123:456): auid=1000 uid=1000 gid=1000 ses=3 subj=unconfined pid=4711 comm=707974686F6E33 reason="memory violation" sig=11': ("SIGSEGV", None),
    'audit: type=1326 audit(1700000000.123:456): auid=1000 uid=1000 gid=1000 ses=3 pid=4711 comm="python3" exe="/usr/bin/python3" sig=31 arch=c000003e syscall=435 compat=0 ip=0x7f12 code=0x80000000': ("SIGSYS", "seccomp-denied"),
    # mm/memory-failure.c.
    "Memory failure: 0x12345: Sending SIGBUS to python3:4711 due to hardware memory corruption": ("SIGBUS", "hardware-memory-error"),
    "MCE 0x12345: Killing python3:4711 due to hardware memory corruption": ("SIGBUS", "hardware-memory-error"),
    # systemd: src/core/service.c, mount.c, swap.c; src/run/run.c; src/coredump.
    "foo.service: Control process exited, code=killed, status=11/SEGV": ("SIGSEGV", "supervisor-worker-crashed"),
    "data.mount: Mount process exited, code=killed, status=9/KILL": ("SIGKILL", "killed-by-signal-9-unknown"),
    "Main processes terminated with: code=dumped/status=SEGV": ("SIGSEGV", None),
    "Main processes terminated with: code=killed, status=4/ILL": ("SIGILL", "illegal-instruction"),
    "Process 4711 (python3) of user 1000 terminated abnormally with signal 4/ILL, processing...": ("SIGILL", "illegal-instruction"),
    # launchd, XNU.
    "com.apple.xpc.launchd[1] (com.x.Service[4711]): Service exited due to signal: Illegal instruction: 4": ("SIGILL", "illegal-instruction"),
    "com.apple.xpc.launchd[1] (com.x.Service[4711]): Service exited due to SIGSEGV | sent by exc handler[4711]": ("SIGSEGV", None),
    'CODE SIGNING: process 4711[python3]: rejecting invalid page at address 0x102345000 from offset 0x0 in file "/x.dylib"': ("SIGKILL", "macos-code-signature"),
    # Launchers, pools, servers.
    "srun: error: n1: task 0: Bad system call": ("SIGSYS", "supervisor-worker-crashed"),
    "srun: error: n1: task 0: CPU time limit exceeded": ("SIGXCPU", "cpu-time-limit"),
    "flux-job: task(s) Segmentation fault": ("SIGSEGV", "supervisor-worker-crashed"),
    "flux-job: job shell Killed": ("SIGKILL", "killed-by-signal-9-unknown"),
    "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault: 11 (signal 11)": ("SIGSEGV", "supervisor-worker-crashed"),
    "DAMN ! worker 1 (pid: 4711) MYSTERIOUSLY killed by signal 11 :( trying respawn ...": ("SIGSEGV", "supervisor-worker-crashed"),
    "!!! uWSGI process 4711 got Floating Point Exception !!!": ("SIGFPE", "sigfpe-integer-divide"),
    "Moving job to FailedJobRegistry (work-horse terminated unexpectedly; waitpid returned 11)": ("SIGSEGV", "supervisor-worker-crashed"),
    "[2026-11-20T10:00:00.000+0000] ERROR - Process terminated by signal. For more information, see the documentation. signal=-4 signal_name=SIGILL": ("SIGILL", "supervisor-worker-crashed"),
    '{"level":"critical","event":"Process terminated by signal. Likely out of memory error (OOM).","signal":-9,"signal_name":"SIGKILL"}': ("SIGKILL", "killed-by-signal-9-unknown"),
    "{local_task_job.py:102} INFO - Task exited with return code -11": ("SIGSEGV", "supervisor-worker-crashed"),
    # Builds.
    "1/1 Test #1: t ................................Subprocess killed***Exception:   0.00 sec": ("SIGKILL", "killed-by-signal-9-unknown"),
    "g++: internal compiler error: Killed (program cc1plus)": ("SIGKILL", "killed-by-signal-9-unknown"),
    "clang: error: unable to execute command: Killed": ("SIGKILL", "killed-by-signal-9-unknown"),
    'Received "illegal instruction" signal': ("SIGILL", "illegal-instruction"),
    # Korn shells, C shells.
    "t.sh: line 1: 3877: Memory fault(coredump)": ("SIGSEGV", "supervisor-worker-crashed"),
    "t.sh[1]: 3877: Abort": ("SIGABRT", "self-abort"),
    "Memory fault(coredump)": ("SIGSEGV", None),
    "Floating exception": ("SIGFPE", "sigfpe-integer-divide"),
    "Trace/BPT trap": ("SIGTRAP", "trap-reached"),
}  # fmt: skip
NO_SIGNALS: dict[str, str] = {
    # mm/oom_kill.c and mm/memcontrol.c, today's and older forms; FreeBSD, OpenBSD; XNU.
    "Out of memory (oom_kill_allocating_task): Kill process 4711 (python3) score 0 or sacrifice child": "host-oom-cgroup",
    "Out of Memory: Killed process 4711 (python3).": "host-oom-cgroup",
    "Killed process 4711 (python3) vsz:123456kB, anon-rss:12345kB, file-rss:0kB": "host-oom-cgroup",
    "oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=(null),cpuset=x,mems_allowed=0,global_oom,task_memcg=/user.slice,task=python3,pid=4711,uid=1000": "host-oom-cgroup",
    "oom-kill:constraint=CONSTRAINT_MEMORY_POLICY,nodemask=0,cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/user.slice,task=python3,pid=4711,uid=1000": "host-oom-cgroup",
    "Task in /docker/abc killed as a result of limit of /docker/abc": "host-oom-cgroup",
    "Tasks in /kubepods.slice/x are going to be killed due to memory.oom.group set": "host-oom-cgroup",
    "pid 4711 (python3.9), jid 0, uid 1001, was killed: out of swap space": "host-oom-cgroup",
    "pid 4711 (python3.9), jid 0, uid 1001, was killed: failed to reclaim memory": "host-oom-cgroup",
    "UVM: pid 4711 (python3.9), uid 1001 killed: out of swap": "host-oom-cgroup",
    "memorystatus: killing_specific_process pid 4711 [python3] (per-process-limit 100 16s rf:-) 78848KB - memorystatus_available_pages: 121472": "host-oom-cgroup",
    "memorystatus: python3 [4711] exceeded mem limit: ActiveHard 2048 MB (fatal)": "host-oom-cgroup",
    # systemd, containers, Kubernetes, clouds.
    "foo.service: systemd-oomd killed 12 process(es) in this unit.": "host-oom-cgroup",
    "foo.service: systemd-oomd killed some process(es) in this unit.": "host-oom-cgroup",
    "Killed /user.slice/foo.scope due to memory used (15000000000) / total (16000000000) and swap used (7000000000) / total (8000000000) being more than 90.00%": "host-oom-cgroup",
    "foo.service: Failed with result 'watchdog'.": "timeout-service",
    "   Active: failed (Result: watchdog) since Mon 2026-11-20 10:00:00 UTC; 3s ago": "timeout-service",
    "foo.service: start operation timed out. Terminating.": "timeout-service",
    "unable to start container process: container init was OOM-killed (memory limit too low?): unknown": "host-oom-cgroup",
    'level=info msg="TaskOOM event container_id:\\"abc\\""': "host-oom-cgroup",
    "Warning  SystemOOM  3m  kubelet  System OOM encountered, victim process: python3, pid: 4711": "host-oom-cgroup",
    "Normal  Killing  3m  kubelet  Container app failed startup probe, will be restarted": "timeout-liveness-probe",
    "Max Memory Used: 129 MB Status: error Error Type: Runtime.OutOfMemory": "host-oom-cgroup",
    "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f Task timed out after 3.00 seconds": "timeout-task",
    "Function execution took 60001 ms, finished with status: 'timeout'": "timeout-task",
    "Job attempt duration exceeded timeout": "timeout-slurm-job",
    # Slurm, OpenPBS and Torque, LSF, HTCondor, Flux, YARN, MPI.
    "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-11-20T10:00:00 DUE to SIGNAL Terminated ***": "slurm-job-cancelled",
    "srun: error: Node failure on n1": "slurm-job-cancelled",
    "=>> PBS: job killed: walltime 3617 exceeded limit 3600": "timeout-slurm-job",
    "=>> PBS: job killed: cput 3617 exceeded limit 3600": "cpu-time-limit",
    "=>> PBS: job killed: pcput exceeded limit 3600": "cpu-time-limit",
    "=>> PBS: job killed: pvmem exceeded limit 1000": "host-oom-cgroup",
    "=>> PBS: job killed: mem job total 13000 kb exceeded limit 1000 kb": "host-oom-cgroup",
    "TERM_RUNLIMIT: job killed after reaching LSF run time limit.": "timeout-slurm-job",
    "TERM_CPULIMIT: job killed after reaching LSF CPU usage limit.": "cpu-time-limit",
    "TERM_SWAP: job killed after reaching LSF swap usage limit.": "host-oom-cgroup",
    "TERM_OWNER: job killed by owner.": "killed-by-sigterm",
    "Error from slot1@n1: Job has gone over cgroup memory limit of 1024 megabytes. Last measured usage: 1000 megabytes.": "host-oom-cgroup",
    "Error from slot1@n1: Worker node is out of memory": "host-oom-cgroup",
    "0.123s: job.exception type=timeout severity=0 resource allocation expired": "timeout-slurm-job",
    "Container [pid=4711,containerID=container_1] is running 1234B beyond the 'PHYSICAL' memory limit.": "host-oom-cgroup",
    "mpirun noticed that the job aborted, but has no info as to the process\nthat caused that situation.": "launcher-child-failed",
    # uWSGI; CI and builds.
    "*** HARAKIRI ON THE SPOOLER (pid: 4711) ***": "timeout-server-worker",
    "*** HARAKIRI ON MULE 1 HANDLING SIGNAL 17 (pid: 4711) ***": "timeout-server-worker",
    "##[error]The job running on runner GitHub Actions 2 has exceeded the maximum execution time of 360 minutes.": "timeout-task",
    "##[error]The job running on agent x ran longer than the maximum time of 60 minutes.": "timeout-task",
    "ERROR: Job failed: execution took longer than 1h0m0s seconds": "timeout-task",
    "Build timed out (after 60 minutes). Marking the build as failed.": "timeout-task",
    "##[error]The runner has received a shutdown signal. This can happen when the runner service is stopped, or a manually started runner is canceled.": "killed-by-sigterm",
    "xdist: maximum crashed workers reached: 4": "supervisor-worker-crashed",
    "The forked VM terminated without properly saying goodbye. VM crash or System.exit called?": "supervisor-worker-crashed",
    "Gradle build daemon disappeared unexpectedly (it may have been killed or may have crashed)": "supervisor-worker-crashed",
}  # fmt: skip
PREFIXES = (
    "",
    "[12345.678901] ",
    "Nov 20 10:00:00 host kernel: ",
    "2026-11-20T10:00:00.123456Z ",
    "2026-11-20 10:00:00,123 - app - ERROR - ",
)
OTHERS = (
    "the handler caught an unhandled exception: ValueError, retrying",
    "python3[4711]: unhandled exception in worker, restarting",
    "Unhandled fault: retrying request (3) at 10:00:00",
    "undefined instruction: see the manual",
    "illegal instruction (4) at startup is ignored",
    "type=1326 audit(1700000000.123:456): auid=1000 uid=1000 gid=1000 ses=3 pid=4711 comm=\"python3\" sig=0 arch=c000003e syscall=435",
    "type=SYSCALL msg=audit(1700000000.123:456): arch=c000003e syscall=62 success=yes a1=9 comm=\"bash\" exe=\"/bin/bash\"",
    "HugeTLB: killing the pool due to hardware memory limits",
    "Memory failure: 0x12345: recovery action for clean LRU page: Recovered",
    "memorystatus: killing_idle_process pid 4711 [Mail] (idle-exit 0) 200KB",
    "memorystatus: Mail [4711] exceeded mem limit: InactiveSoft 50 MB (non-fatal)",
    "pid 4711 (python3.9), jid 0, uid 1001: killed: by request",
    "Tasks in the queue are going to be killed by the scheduler tonight",
    "bounds ip:port of the index are checked",
    "foo.service: Main process exited, code=exited, status=0/SUCCESS",
    "foo.service: Failed with result 'exit-code'.",
    "foo.service: Watchdog enabled",
    "srun: job 1 queued and waiting for resources",
    "srun: warning: Node failure on its partition is reported by sinfo",
    "qsub: walltime 3600 is within the limit 7200",
    "TERM_OWNER is one of the reasons in the manual of bhist",
    "job.exception type=cancel severity=0",
    "flux-job: task(s) exited with exit code 1",
    "The test 'Task timed out after 3 retries' passed",
    "HARAKIRI: Skipping harakiri on worker 1. Listen queue is smaller than the threshold (0 < 10)",
    "Container app passed its startup probe",
    "Build timed out threads are listed below",
    "def test_subprocess_killed(self): pass",
    "clang: error: unable to execute command: No such file or directory",
    "Received \"hello\" signal",
    "memory fault tolerance: on",
    "Process terminated by signal handlers of the test: signal_name is checked",
    "The runner has received a shutdown request, and waits for its job",
)  # fmt: skip


def read(text: str, path: Path) -> tuple[Optional[str], Optional[str]]:
    path.write_text(text + "\n")
    try:
        found = read_log(path)
    except EvidenceError:
        return None, None
    findings = diagnose(crash_of_log(path, found), load_catalog()).findings
    return found.signal.name if found.signal else None, findings[0].id if findings else None


def with_prefix(prefix: str, text: str) -> str:
    return "\n".join(prefix + row for row in text.split("\n"))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_line_that_names_the_signal(prefix: str, tmp_path: Path) -> None:
    shells = ("t.sh", "Memory fault", "Floating exception", "Trace/BPT trap")
    texts = {text: expected for text, expected in FAULTS.items() if not (prefix and text.startswith(shells))}
    found = {text: read(with_prefix(prefix, text), tmp_path / "log") for text in texts}
    assert {text: one for text, one in found.items() if one != texts[text]} == {}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_line_that_names_the_reason(prefix: str, tmp_path: Path) -> None:
    found = {text: read(with_prefix(prefix, text), tmp_path / "log")[1] for text in NO_SIGNALS}
    assert {text: one for text, one in found.items() if one != NO_SIGNALS[text]} == {}


def test_each_is_a_line_of_its_own_among_others(tmp_path: Path) -> None:
    """In a log of many lines the words of people do not count: the lines must be known."""
    kinds = {text: Classifier().classify(text.split("\n")[0]) for text in (*FAULTS, *NO_SIGNALS)}
    assert [text for text, found in kinds.items() if found is None or found[0] in ("told", None)] == []


def test_what_only_looks_like_it(tmp_path: Path) -> None:
    classifier = Classifier()
    found = {text: classifier.classify(text) for text in OTHERS}
    assert {text: one for text, one in found.items() if one is not None and one[0] != "told"} == {}


@pytest.mark.parametrize("shell", ["bash", "dash", "ksh"])
def test_shells_of_this_machine(shell: str, tmp_path: Path) -> None:
    """What each says of a child that a signal ended: SIGTERM and the like are no crashes."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is missing")
    names = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGKILL")
    found = {}
    for name in names:
        script = tmp_path / "t.sh"
        script.write_text(f"ulimit -c 0\nsh -c 'kill -{signal.Signals[name].value} $$'\ntrue\n")
        said = subprocess.run([shell, "t.sh"], cwd=tmp_path, capture_output=True, text=True, check=False)
        found[name] = read(said.stderr.strip(), tmp_path / "log")[0]
    assert found == {name: name for name in names}
