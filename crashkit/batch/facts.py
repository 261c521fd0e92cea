"""Reads of a piece of evidence what tells whose crash it is; nothing that takes a debugger."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Optional

from crashkit.batch.artefact import Facts
from crashkit.crashfolder.manifest import Manifest
from crashkit.elf.headers import of_file
from crashkit.evidence.core.core import Core, open_core
from crashkit.evidence.gpu import layout
from crashkit.evidence.gpu.describe import pid_of
from crashkit.evidence.gpu.dump import open_dump
from crashkit.evidence.input import Limits, open_input
from crashkit.evidence.text.log import LogEvidence
from crashkit.evidence.text.several import Part
from crashkit.naming.signals import signal_name

_ENOUGH = 64 << 20
"""Bytes of a compressed core that are unpacked for its notes, which stand at its beginning; those of a thousand threads take 15 MiB."""
_NUMBER = re.compile(r"(?<!\d)\d{2,7}(?!\d)")
_PIDS = ("pid", "tid", "process")


def of_core(path: Path) -> tuple[str, Facts]:
    """The kind, core or gpu-core, and the facts. Raises EvidenceError if it is neither."""
    with open_input(path, Limits(size=_ENOUGH)) as source:
        when = path.stat().st_mtime
        dump = open_dump(of_file(source.file), source.size)
        if dump is not None:
            pid = pid_of(path.name)
            tids = frozenset(row.value("tid") for row in dump.rows(layout.CONTEXTS)) - {0}
            return "gpu-core", Facts(pids=frozenset() if pid is None else frozenset({pid}), tids=tids, time=when)
        core = open_core(source.file, path, source.size)
        assert core is not None, "an ELF core"
        return "core", _of_core(core, when)


def _of_core(core: Core, when: float) -> Facts:
    idents = (core.architecture.pthread(thread.registers, thread.tid, core.read) for thread in core.threads())
    number = core.statuses[0].signal if core.statuses else None
    executable = core.executable()
    return Facts(
        pids=frozenset({core.process.pid}) if core.process else frozenset(),
        tids=frozenset(status.tid for status in core.statuses),
        idents=frozenset(ident for ident in idents if ident),
        signal=signal_name(number) if number else None,
        executable=executable,
        time=when,
        has_stack=True,
    )


def of_folder(manifest: Optional[Manifest], cores: Iterable[Facts], when: Optional[float]) -> Facts:
    """Of a crash folder: what its manifest and its cores say."""
    manifest = manifest or {}
    cores = list(cores)
    pids = {manifest.get("pid"), manifest.get("namespace_pid"), *chain.from_iterable(one.pids for one in cores)} - {None}
    return Facts(
        pids=frozenset(pid for pid in pids if pid is not None),
        tids=frozenset().union(*(one.tids for one in cores)),
        idents=frozenset().union(*(one.idents for one in cores)),
        signal=manifest.get("signal_name") or next((one.signal for one in cores), None),
        executable=manifest.get("executable") or next((one.executable for one in cores), None),
        time=when,
        has_stack=True,
    )


def of_log(part: Part, evidence: LogEvidence, name: str, when: float) -> Facts:
    """Of one crash of a log; `name` is the file's, which may hold a pid."""
    told = [evidence.process.pid] if evidence.process else []
    told += [int(text) for line in evidence.lines for field in _PIDS if (text := line.fields.get(field, "")).isdecimal()]
    told += [int(line.process) for line in evidence.lines if line.process and line.process.isdecimal()]
    told += [int(text) for text in _NUMBER.findall(name)]
    return Facts(
        pids=frozenset(pid for pid in told if pid),
        idents=part.threads,
        signal=evidence.signal.name if evidence.signal else None,
        time=when,
        has_stack=bool(evidence.threads),
    )
