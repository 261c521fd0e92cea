"""Crash folders of a job's processes, as `crashkit run` leaves them, and what a launcher says beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crashkit.crashfolder.manifest import SCHEMA, Manifest, write_manifest

HEAD = "torch/distributed/elastic/multiprocessing/api.py"


def launcher(stopped: int, failed: int, status: int = -11) -> str:
    """torchrun's log: rank 1 failed by itself, and another process was told to end."""
    return (
        f"W1121 21:52:33.468000 99 {HEAD}:1012] Sending process {stopped} closing signal SIGTERM\n"
        f"E1121 21:52:33.633000 99 {HEAD}:986] failed (exitcode: {status}) local_rank: 1 (pid: {failed}) of binary: /usr/bin/python3\n"
    )


def crash_folder(folder: Path, rank: int, pid: int, log: str, name: str = "stderr.log", kind: str = "log", **facts: Any) -> Path:
    """The folder of this rank's process, with its log. `facts` are further ones of its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(log)
    variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), **facts.pop("environment", {})}
    manifest: Manifest = {"schema": SCHEMA, "pid": pid, "environment": variables, "files": [{"name": name, "kind": kind}], **facts}  # type: ignore[typeddict-item]
    write_manifest(folder, manifest)
    return folder


def looked_at(folder: Path, name: str, pid: int, **facts: Any) -> None:
    """Beside the crash in this folder: a process that still lived as the crash was found."""
    other = folder / "others" / name
    other.mkdir(parents=True, exist_ok=True)
    manifest: Manifest = {"schema": SCHEMA, "pid": pid, "alive": "it lived", **facts}  # type: ignore[typeddict-item]
    write_manifest(other, manifest)
