"""What the kernel's log in a crash folder tells of the process, which shares it with everything else that runs on the host. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from crashkit.crashfolder.manifest import Manifest
from crashkit.evidence.text.log import LogEvidence
from crashkit.model import LogLine

SIGKILL = 9
_FAULTS = frozenset({"kernel-segfault", "kernel-trap"})
_OUT_OF_MEMORY = frozenset({"oom-cgroup", "oom-host", "oom-event"})


def of_process(evidence: LogEvidence, manifest: Manifest, said: Iterable[LogLine]) -> LogEvidence:
    """The evidence of a kernel's log without what it tells of other processes. `said`: the lines of the process's own logs.

    A fault is another process's if this one did not end by that signal. A kill for lack of memory is, if this one was not killed, or not by
    the kernel, and its own logs do not name the pid either, as a DataLoader does that of its worker. pids are not compared with the
    process's own: the kernel names threads, and in a PID namespace others.
    """
    lines, signal, number = evidence.lines, evidence.signal, manifest.get("signal")
    if number is None and manifest.get("exit_status") is None:
        return evidence
    if signal is not None and signal.number != number:
        lines = tuple(line for line in lines if line.kind not in _FAULTS)
        signal = None
    if not _ran_out_of_memory(lines, manifest, said):
        lines = tuple(line for line in lines if line.kind not in _OUT_OF_MEMORY)
    # The pid is a thread's, or another process's: the manifest knows it.
    return replace(evidence, lines=lines, signal=signal, process=None, threads=evidence.threads if signal is not None else ())


def _ran_out_of_memory(lines: Iterable[LogLine], manifest: Manifest, said: Iterable[LogLine]) -> bool:
    if manifest.get("signal") == SIGKILL:
        killed = manifest.get("killed")
        return killed is None or killed.get("by") == "oom"
    victims = {pid for line in lines if line.kind in _OUT_OF_MEMORY for name in ("pid", "pid2") if (pid := line.fields.get(name))}
    return any(victims & set(re.findall(r"\d+", line.text)) for line in said)
