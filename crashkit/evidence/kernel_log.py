"""What the kernel's log in a crash folder tells of the process, which shares it with everything else that runs on the host. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

from msgspec.structs import replace

from crashkit.crashfolder.manifest import Manifest
from crashkit.evidence.text.log import LogEvidence
from crashkit.evidence.text.log_signal import of_lines
from crashkit.model import LogLine

SIGKILL = 9
_FAULTS = frozenset({"kernel-segfault", "kernel-trap"})
_OUT_OF_MEMORY = frozenset({"oom-cgroup", "oom-host", "oom-event"})
_SHELL, _LAST_SIGNAL = 128, 64
_LONGEST_NAME = 15
"""Characters that the kernel keeps of a name: TASK_COMM_LEN."""
_PIDS = re.compile(r"\bpid\W{0,2}s?\W{0,4}(\d[\d, ]{0,400})", re.IGNORECASE)


def of_process(evidence: LogEvidence, manifest: Manifest, said: Iterable[LogLine]) -> LogEvidence:
    """The evidence of a kernel's log without what it tells of other processes. `said`: the lines of the process's own logs.

    A fault is another process's if this one was still alive, if it did not end by that signal and its status does not tell that of a
    child, or if the kernel's line has another name, unless it has this one's pid. A kill for lack of memory is, if this one was not killed,
    or not by the kernel, and its own logs do not name the pid either, as a DataLoader does that of its worker. pids are not compared with
    the process's own: the kernel names threads, and in a PID namespace others.
    """
    lines, signal, number = evidence.lines, evidence.signal, _ended_by(manifest)
    if number is None and not {"exit_status", "alive"} & manifest.keys():
        return evidence
    own = tuple(line for line in lines if not (line.kind in _FAULTS and _is_named_otherwise(line, manifest)))
    if len(own) < len(lines):
        lines, signal = own, of_lines(own, None)[0]
    if signal is not None and signal.number != number:
        lines = tuple(line for line in lines if line.kind not in _FAULTS)
        signal = None
    if not _ran_out_of_memory(lines, manifest, said):
        lines = tuple(line for line in lines if line.kind not in _OUT_OF_MEMORY)
    # The pid is a thread's, or another process's: the manifest knows it.
    return replace(evidence, lines=lines, signal=signal, process=None, threads=evidence.threads if signal is not None else ())


def _ran_out_of_memory(lines: Iterable[LogLine], manifest: Manifest, said: Iterable[LogLine]) -> bool:
    if _ended_by(manifest) == SIGKILL:
        killed = manifest.get("killed")
        return killed is None or killed.get("by") == "oom"
    victims = {pid for line in lines if line.kind in _OUT_OF_MEMORY for name in ("pid", "pid2") if (pid := line.fields.get(name))}
    return any(victims & _pids(line) for line in said)


def _ended_by(manifest: Manifest) -> Optional[int]:
    """The signal that ended the process, or a child of it that its status tells of, as a shell's does."""
    number, status = manifest.get("signal"), manifest.get("exit_status")
    if number is None and status is not None and 0 < status - _SHELL <= _LAST_SIGNAL:
        return status - _SHELL
    return number


def _is_named_otherwise(line: LogLine, manifest: Manifest) -> bool:
    """Of a child that ended by a signal the name is not known."""
    name, ours = line.fields.get("name"), manifest.get("name")
    if manifest.get("signal") is None or not name or not ours or line.fields.get("pid") == str(manifest.get("pid")):
        return False
    return name != ours[:_LONGEST_NAME]


def _pids(line: LogLine) -> set[str]:
    told = [*_PIDS.findall(line.text), line.fields.get("pid", ""), line.fields.get("pid2", "")]
    return {pid for text in told for pid in re.findall(r"\d+", text)}
