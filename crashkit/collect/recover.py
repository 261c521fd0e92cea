"""Finish what killed processes left in the store: crashes that were not published, and analyses that did not end.

A run that was killed leaves the folder where its cores arrived, and maybe one of a crash that it was about to publish. Both are ours
once we hold their locks. Nothing is deleted before the evidence in it has another place.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from typing import NamedTuple, Optional

from crashkit import __version__
from crashkit.collect.enable import adopt
from crashkit.collect.host.cuda import SUFFIXES
from crashkit.collect.inventory import inventory
from crashkit.collect.keep import PARTIAL, analyse_once, copy_core, ended_by, no_room, publish, remember, stacks_of_gdb
from crashkit.collect.supervise.core_watch import CORE_SUFFIX, POINTER_SUFFIX
from crashkit.crashfolder.files import open_regular
from crashkit.crashfolder.manifest import SCHEMA, Manifest, read_manifest, write_manifest
from crashkit.crashfolder.store import Store, StoredCrash
from crashkit.crashfolder.work import Work
from crashkit.descriptors import close_all_but
from crashkit.elf.core_head import CoreHead, read_head
from crashkit.errors import CollectError
from crashkit.secrets.text import Secrets

_MOST_INTERRUPTIONS = 2
"""An analysis that was killed this often is not started again: it may be what kills."""
_SAME_DEATH = 3600.0
"""Seconds within which a core and a crash of the same pid are of the same process."""
_NOTE = "crashkit was killed before it had saved everything about this crash; the rest was recovered later"


class Orphan(NamedTuple):
    """A piece of evidence in the folder of a run that is over."""

    run: Work
    entry: str
    """Path in that folder."""
    name: str
    """Its name in a crash folder."""
    pid: int
    """0 if unknown."""
    when: float
    head: Optional[CoreHead] = None

    @property
    def path(self) -> str:
        """For messages: where it is."""
        with contextlib.suppress(OSError):
            return os.readlink(self.entry, dir_fd=self.run.descriptor)
        return str(self.run.path / self.entry)

    def remove(self) -> None:
        """Remove it after it was copied: what cannot be removed is no evidence any more. Raises OSError if it would be found again."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.entry, dir_fd=self.run.descriptor)


def orphans(run: Work) -> Iterator[Orphan]:
    """The evidence in the folder of a run. Raises OSError if a folder cannot be read."""
    for folder, _, files, _ in os.fwalk(".", dir_fd=run.descriptor, onerror=_fail):
        for entry in sorted(files):
            found = _orphan(run, os.path.normpath(os.path.join(folder, entry)))
            if found is not None:
                yield found


def _fail(error: OSError) -> None:
    raise error


def _orphan(run: Work, entry: str) -> Optional[Orphan]:
    name = os.path.basename(entry)
    pointer = name.endswith(POINTER_SUFFIX)
    gpu = re.match(r"gpu\..*\.(\d+)\.[^.]+\.nvcudmp", name)
    stacks = re.fullmatch(r"(\d+)\.gdb\.txt", name)
    if not (pointer or gpu or stacks or name.endswith((CORE_SUFFIX, *SUFFIXES))):
        return None
    try:
        with open_regular(os.readlink(entry, dir_fd=run.descriptor)) if pointer else open_regular(entry, run.descriptor) as file:
            status = os.fstat(file.fileno())
            if not status.st_size:
                return None
            if named := stacks or gpu:
                return Orphan(run, entry, "gdb.txt" if stacks else name, int(named[1]), status.st_mtime)
            if name.endswith(SUFFIXES):
                return Orphan(run, entry, name, 0, status.st_mtime)
            head = read_head(file.fileno())
    except FileNotFoundError:
        return None
    except OSError:  # what cannot be read now is no less evidence
        return Orphan(run, entry, "core", 0, time.time())
    return Orphan(run, entry, "core", head.pid if head else 0, status.st_mtime, head)


def recover(store: Store) -> list[str]:
    """Publish every crash that a killed run left; messages about what was found. `enable.adopt` does so without a run."""
    said: list[str] = []
    left = store.abandoned("crash", "run")
    runs = [work for work in left if work.kind == "run"]
    loose: list[Orphan] = []
    for run in runs:
        with _told(said, str(run.path)):
            loose += orphans(run)
    for work in left:
        if work.kind == "crash":
            with _told(said, str(work.path)):
                manifest = read_manifest(work.descriptor)
                pids = {manifest.get("pid", 0), manifest.get("namespace_pid", 0)} - {0} if manifest else set()
                mine = [orphan for orphan in loose if orphan.pid in pids]
                loose = [orphan for orphan in loose if orphan not in mine]
                said += _finish(store, work, manifest, mine)
            work.close()
    while loose:
        mine = [orphan for orphan in loose if orphan is loose[0] or (orphan.pid and orphan.pid == loose[0].pid)]
        loose = [orphan for orphan in loose if orphan not in mine]
        with _told(said, mine[0].path):
            if late := _add_to_published(store, mine):
                said.append(late)
                continue
            work = store.begin("crash")
            try:
                said += _finish(store, work, None, mine)
            finally:
                work.close()
    for run in runs:
        with _told(said, str(run.path)):
            if not any(True for _ in orphans(run)):
                store.discard(run)
        run.close()
    return said


@contextlib.contextmanager
def _told(said: list[str], place: str) -> Iterator[None]:
    """A failure here deletes nothing: a message says where the evidence stays."""
    try:
        yield
    except (OSError, CollectError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        said.append(f"evidence of an earlier run stays at {place}: {reason}")


def _add_to_published(store: Store, mine: list[Orphan]) -> Optional[str]:
    """Add a core to the crash that was published without it, as there was no space then; a message if that was done."""
    for crash in store.crashes():
        pids = {crash.manifest.get("pid"), crash.manifest.get("namespace_pid")}
        if mine[0].pid not in pids or crash.core_state != "missing" or abs(crash.when - mine[0].when) > _SAME_DEATH:
            continue
        work = store.claim(crash.id, unmarked=True)
        if work is None:
            continue
        with contextlib.suppress(OSError):
            if not [orphan for orphan in mine if _take(orphan, work, store)]:
                manifest = crash.manifest
                manifest["files"] = inventory(work, manifest.get("files", ()))
                manifest["analysis"] = "none" if manifest.get("analysis") == "none" else "pending"
                write_manifest(work.descriptor, manifest)
                work.close()
                return f"added its core to {crash.id}"
        work.close()
    return None


def _finish(store: Store, work: Work, manifest: Optional[Manifest], mine: list[Orphan]) -> list[str]:
    """Gather the evidence of one crash in its folder and publish it; messages. Raises OSError and CollectError."""
    places = [place for orphan in mine if (place := _take(orphan, work, store))]
    if work.stat("core") is None and work.stat(PARTIAL) is not None:
        with contextlib.suppress(OSError):  # better than nothing: the report says what is missing
            os.rename(PARTIAL, "core", src_dir_fd=work.descriptor, dst_dir_fd=work.descriptor)
    work.remove(PARTIAL)
    if manifest is None and not inventory(work):
        store.discard(work)
        return [
            f"a core of an earlier run cannot be moved to the crash store; it stays at {place}{no_room(place, store)}" for place in places
        ]
    when = max([orphan.when for orphan in mine], default=os.fstat(work.descriptor).st_mtime)
    manifest = manifest or _from_evidence(work, when)
    manifest.setdefault("notes", []).append(_NOTE)
    publish(work, manifest, store, when)
    if manifest.get("analysis") != "pending":
        work.done()
    return [f"recovered {work.path.name} of an earlier run" + (f"; its core stays at {places[0]}" if places else "")]


def _take(orphan: Orphan, work: Work, store: Store) -> Optional[str]:
    """Move or copy one piece into the crash folder; where it stays if that fails."""
    place = orphan.path
    try:
        if work.stat(orphan.name) is not None:
            if not _is_copied(orphan, work):
                return place
            orphan.remove()
        elif orphan.entry.endswith(POINTER_SUFFIX):
            with open_regular(place) as source:
                if copy_core(source.fileno(), work, store) is not None:
                    return place
            orphan.remove()
        elif orphan.name == "gdb.txt":
            work.write(orphan.name, Secrets().text(stacks_of_gdb(orphan.run, orphan.entry) or "").encode())
            orphan.remove()
        else:
            os.rename(orphan.entry, orphan.name, src_dir_fd=orphan.run.descriptor, dst_dir_fd=work.descriptor)
            os.chmod(orphan.name, 0o600, dir_fd=work.descriptor)
    except OSError:
        return place
    return None


def _is_copied(orphan: Orphan, work: Work) -> bool:
    """Whether the file in the crash folder is a copy of this core, which was not removed any more."""
    if orphan.head is None:
        return False
    with open_regular(orphan.path) as theirs, open_regular(orphan.name, work.descriptor) as ours:
        same_size = os.fstat(theirs.fileno()).st_size == os.fstat(ours.fileno()).st_size
        return same_size and read_head(ours.fileno()) == orphan.head


def _from_evidence(work: Work, when: float) -> Manifest:
    """A manifest from the core's own notes, where nothing else was written down."""
    manifest: Manifest = {
        "schema": SCHEMA,
        "crashkit": __version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when)),
        "analysis": "pending",
    }
    with contextlib.suppress(OSError), open_regular("core", work.descriptor) as file:
        head = read_head(file.fileno())
        if head is not None:
            manifest.update(ended_by(head.signal))
            manifest["pid"], manifest["ppid"], manifest["name"] = head.pid, head.ppid, head.name
            manifest["argv"] = Secrets().arguments(head.arguments.split())
    return manifest


# Analyses


def interrupted(store: Store) -> list[StoredCrash]:
    """Crashes whose analysis was killed: it is pending, and nobody works on it."""
    return [crash for crash in store.crashes() if crash.manifest.get("analysis") == "pending" and not store.is_busy(crash.id)]


def resume(store: Store, crash: StoredCrash) -> bool:
    """Analyze a crash whose analysis was killed; whether there is a report now. Leaves it alone if somebody else works on it."""
    work = store.claim(crash.id, unmarked=True)
    if work is None:
        return False
    try:
        done = _resume(work)
    except OSError:
        work.close()  # another time
        return False
    work.done()
    return done


def _resume(work: Work) -> bool:
    manifest = read_manifest(work.descriptor)
    if manifest is None or manifest.get("analysis") != "pending":
        return False
    # First, in case that this kills us too.
    manifest["interrupted"] = manifest.get("interrupted", 0) + 1
    if manifest["interrupted"] > _MOST_INTERRUPTIONS:
        manifest["analysis"] = "failed"
        manifest.setdefault("notes", []).append(f"the analysis was killed {manifest['interrupted']} times and is not restarted")
        write_manifest(work.descriptor, manifest)
        remember(work, manifest)
        return False
    write_manifest(work.descriptor, manifest)
    return analyse_once(work, manifest)


def in_background(store: Store) -> int:
    """Recover and resume in a process of its own, which outlives us and prints nothing; its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        os.nice(19)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        close_all_but(0, 1, 2, store.descriptor)
        adopt(store)
        recover(store)
        for crash in interrupted(store):
            resume(store, crash)
        status = 0
    finally:
        os._exit(status)
