"""The evidence in a crash folder, as its manifest lists it."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterable

from crashkit.collect.host.cuda import RECORDING, SUFFIXES
from crashkit.crashfolder.files import open_regular
from crashkit.crashfolder.manifest import RECORDED, SNAPSHOT, SOURCE, File
from crashkit.crashfolder.work import Work
from crashkit.elf.core_head import read_head

KINDS = {
    "faulthandler.log": "faulthandler",
    "core": "core",
    "stderr.log": "log",
    "gdb.txt": "gdb",
    "dmesg.log": "kernel-log",
    "rank.log": "rank-log",
    "error.json": "error-file",
}


def inventory(work: Work, known: Iterable[File] = ()) -> list[File]:
    """The evidence that is in the folder; empty files are none. Raises OSError if the folder cannot be read.

    `known`: what the manifest says of them so far. Only it tells where copies of other files come from.
    """
    names = work.names()
    kinds = {name: kind for name, kind in KINDS.items() if name in names}
    kinds.update((name, "gpu-core") for name in names if name.endswith(SUFFIXES))
    kinds.update((name, RECORDED) for name in names if name.startswith(RECORDING))
    files: list[File] = []
    for name, kind in kinds.items():
        status = work.stat(name)
        if status is None or not status.st_size or not stat.S_ISREG(status.st_mode):
            continue
        entry: File = {"name": name, "kind": kind}
        if kind in ("core", "gpu-core"):
            entry["size"] = status.st_size
        if kind == "core":
            with contextlib.suppress(OSError), open_regular(name, work.descriptor) as file:
                head = read_head(file.fileno())
                if head is not None:
                    entry["expected"] = head.expected
        files.append(entry)
    return [*files, *(file for file in known if file.get("kind") in (SOURCE, SNAPSHOT) and file.get("name") in names)]
