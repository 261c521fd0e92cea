"""The crash store: one folder per crash below `$CRASHKIT_HOME` (default `$XDG_STATE_HOME/crashkit`, else `~/.local/state/crashkit`).

    20261120T231200-5752-python3.11/
      manifest.json       what was recorded of the crash; the format is `Manifest`
      core, core.zst      the core, if there is one
      stderr.log          the last 256 KiB of the command's stderr, its secrets masked
      rank.log            a rank's own stderr, if its launcher sends that into a file
      error.json          the exception that ended a rank, as torch's @record wrote it
      others/             the other processes of the incident, each in a crash folder of its own: rank1-5753/, 5754/
      faulthandler.log    faulthandler's output, if it had its own file (crashkit.enable)
      gdb.txt             stacks taken by gdb at the fatal signal (--capture ptrace)
      dmesg.log           the kernel's messages since the command started, if readable
      *.nvcudmp           GPU core dumps
      nccl_trace_rank_N   the dump of torch's flight recorder of this rank (crashkit run --cuda)
      report.json, report.html, analysis.log

Folders are 0700, files 0600. The state of a crash shows in its folder:

    .crash-PID-TIME/      received: evidence is being moved in; what follows is one rename
    ID/ with a .lock      published: everything but the report is there
    ID/                   finished

`.run-PID-TIME` is the folder of a live `crashkit run`, where cores arrive; `.enabled-PID-TIME` that of a process that called
`crashkit.enable()`; `.removed-...` is on its way out. Whether somebody still works on a folder is told by its lock (`work`); what was
abandoned is finished by `collect.recover`. Beside the folders, `history.sqlite` is the store's history, and `history.spool` what has not
arrived in one yet. Contents are untrusted: links are not followed, and only regular files are opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.crashfolder import work
from crashkit.crashfolder.files import is_regular
from crashkit.crashfolder.ids import time_of
from crashkit.crashfolder.manifest import File, Manifest, read_manifest
from crashkit.crashfolder.temporary import temporary_parent
from crashkit.crashfolder.work import Work
from crashkit.errors import CollectError


class StoredCrash(NamedTuple):
    """One crash folder of the store, with its manifest."""

    path: Path
    manifest: Manifest

    @property
    def id(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def core(self) -> Optional[File]:
        """The manifest's entry for the core; None if there is none."""
        return next((file for file in self.manifest.get("files", []) if file.get("kind") == "core"), None)

    @property
    def core_state(self) -> str:
        """present, truncated, missing."""
        core = self.core
        if core is None or not is_regular(self.path / core.get("name", "core")):
            return "missing"
        return "truncated" if core.get("size", 0) < core.get("expected", 0) else "present"

    @property
    def size(self) -> int:
        """Bytes on disk; holes of a sparse core do not count."""
        return sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in _scan(self.path))

    @property
    def when(self) -> float:
        """Time of the crash in seconds since the epoch: from its id, else the folder's modification time."""
        told = time_of(self.id)
        if told is not None:
            return told
        with contextlib.suppress(OSError):
            return self.path.stat().st_mtime
        return 0.0

    def matches(self, text: str) -> bool:
        """Whether `text` is its pid, its signal's name or number, or part of its executable's name or its id."""
        manifest = self.manifest
        if text.isdecimal() and len(text) < 8:  # longer ones are the date of an id
            return int(text) in (manifest.get("pid"), manifest.get("namespace_pid"), manifest.get("signal"))
        name = manifest.get("signal_name", "")
        if text.upper() in (name, name.removeprefix("SIG")):
            return True
        return text in self.id or text in manifest.get("executable", "") or text in manifest.get("name", "")


def home() -> Path:
    """The store's folder, which may not exist."""
    given = os.environ.get("CRASHKIT_HOME")
    if given:
        return Path(given).expanduser().absolute()
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state and state.startswith("/") else Path("~/.local/state").expanduser()) / "crashkit"


_TEMPORARY = "crashkit-store-"
_TRIES = 10
_OLD = 86400.0
"""Seconds after which a folder without a lock file counts as abandoned."""


class Store:
    """The folder that contains all crash folders. It stays open, and is used through its descriptor."""

    def __init__(self, path: Optional[Path] = None) -> None:
        """Create the folder if it is missing. Raises CollectError if that fails or others may write to it."""
        self.path = path or home()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise CollectError(
                f"cannot create the crash store {self.path}: {error.strerror}", "Set CRASHKIT_HOME to a writable folder."
            ) from None
        status = os.fstat(self.descriptor)
        if not _is_private(status):
            os.close(self.descriptor)
            another = "Set CRASHKIT_HOME to another folder."
            if status.st_uid not in (os.geteuid(), 0):
                raise CollectError(f"the crash store {self.path} belongs to another user", another)
            may_change = os.geteuid() in (0, status.st_uid) and not os.statvfs(self.path).f_flag & os.ST_RDONLY
            mend = f"Run chmod 700 {self.path}, or set CRASHKIT_HOME to another folder." if may_change else another
            raise CollectError(f"the crash store {self.path} is writable by other users", mend)

    @property
    def is_there(self) -> bool:
        """Whether the path still leads to the folder that was opened, and nobody else may write to it."""
        opened = os.fstat(self.descriptor)
        with contextlib.suppress(OSError):
            return os.path.samestat(os.stat(self.path), opened) and _is_private(opened)
        return False

    @property
    def is_temporary(self) -> bool:
        """Whether `temporary_store` made it."""
        return self.path.name.startswith(_TEMPORARY)

    def begin(self, kind: str) -> Work:
        """Create a private folder for work in progress, `.KIND-PID-TIME`, locked by us. Raises OSError."""
        for _ in range(_TRIES):
            with contextlib.suppress(FileExistsError, FileNotFoundError, BlockingIOError):
                return work.begin(self.descriptor, self.path / f".{kind}-{os.getpid()}-{time.time_ns():x}")
        raise FileNotFoundError(errno.ENOENT, "the crash store was removed", str(self.path))

    def claim(self, name: str, unmarked: bool = False) -> Optional[Work]:
        """Take over an abandoned folder; see `work.claim`."""
        return work.claim(self.descriptor, self.path / name, unmarked)

    def is_busy(self, name: str) -> bool:
        """Whether a process works on this folder."""
        taken = self.claim(name)
        if taken is None:
            return is_regular(self.path / name / work.LOCK)
        taken.close()
        return False

    def abandoned(self, *kinds: str) -> list[Work]:
        """Take over the unpublished folders of these kinds whose process has ended; the caller closes them. Also completes removals."""
        found = []
        for entry in _scan(self.path):
            if entry.name.startswith(".removed-"):
                self._delete(entry.name)
            elif entry.name.startswith(tuple(f".{kind}-" for kind in kinds)):
                # Without a lock file: an empty folder, whose owner was killed just then, or one that crashkit 0.1.0 left.
                with contextlib.suppress(OSError):
                    os.rmdir(entry.name, dir_fd=self.descriptor)
                taken = self.claim(entry.name, unmarked=_is_old(entry))
                if taken is not None:
                    found.append(taken)
        return sorted(found, key=lambda taken: taken.path.name)

    def has_unfinished(self) -> bool:
        """Whether there is anything that a killed process left undone."""
        for entry in _scan(self.path):
            taken = self.claim(entry.name)
            if taken is not None:
                taken.close()
                return True
        return False

    def publish(self, folder: Work, identity: str) -> None:
        """Rename a work folder to its final name, numbered if the name is taken. Raises CollectError and OSError."""
        for attempt in range(1000):
            target = identity if not attempt else f"{identity}-{attempt + 1}"
            try:
                # Takes the place of nothing, or of an empty folder, which is nobody's crash.
                os.rename(folder.path.name, target, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    continue
                raise
            folder.path = self.path / target
            return
        raise CollectError(f"no free name for {identity} in {self.path}", "Remove old crashes with crashkit rm.")

    def discard(self, folder: Work) -> None:
        """Delete a work folder and close it; errors are ignored."""
        with contextlib.suppress(OSError):
            _empty(folder.descriptor, spare=work.LOCK)
        folder.done()
        with contextlib.suppress(OSError):
            os.rmdir(folder.path.name, dir_fd=self.descriptor)

    def crashes(self) -> list[StoredCrash]:
        """All stored crashes, newest first."""
        found = []
        for entry in _scan(self.path):
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                manifest = read_manifest(Path(entry.path))
                if manifest is not None:
                    found.append(StoredCrash(Path(entry.path), manifest))
        return sorted(found, key=lambda crash: (crash.manifest.get("time", ""), crash.id), reverse=True)

    def find(self, text: str) -> StoredCrash:
        """Find one crash by id, a unique part of an id, a pid, or `last`. Raises CollectError."""
        crashes = self.crashes()
        if text in ("last", "-1") and crashes:
            return crashes[0]
        exact = [crash for crash in crashes if crash.id == text]
        matching = exact or [crash for crash in crashes if text in crash.id or text == str(crash.manifest.get("pid"))]
        if len(matching) == 1:
            return matching[0]
        if not matching:
            raise CollectError(f"no crash matches {text!r} in {self.path}", "List the stored crashes with crashkit list.")
        raise CollectError(
            f"{len(matching)} crashes match {text!r}", "Pass more of the id: " + ", ".join(crash.id for crash in matching[:5])
        )

    def remove(self, crash: StoredCrash) -> None:
        """Delete a crash folder. Raises CollectError."""
        doomed = f".removed-{crash.id}"
        try:
            # One rename first: nobody meets a folder that is half gone.
            os.rename(crash.id, doomed, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
            self._delete(doomed)
        except OSError as error:
            raise CollectError(f"cannot remove {crash.path}: {error.strerror}", "Check the owner and mode of the crash store.") from None

    def _delete(self, name: str) -> None:
        """Delete a folder; another process may be doing the same."""
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.descriptor)
            try:
                _empty(descriptor)
            finally:
                os.close(descriptor)
            os.rmdir(name, dir_fd=self.descriptor)

    def free(self) -> int:
        """Free bytes on the store's disk for this user."""
        status = os.statvfs(self.descriptor)
        return status.f_bavail * status.f_frsize


def _is_old(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > _OLD
    return False


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022


def temporary_store() -> Optional[Store]:
    """A store in the temporary folder or, on a read-only system, in shared memory; None if neither is possible."""
    import tempfile

    parent = temporary_parent()
    if parent is not None:
        with contextlib.suppress(OSError, CollectError):
            return Store(Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=parent)))
    return None


def _empty(descriptor: int, spare: str = "") -> None:
    """Delete everything in an open folder, but the name `spare`. Links are not followed. Raises OSError."""
    for _, folders, files, at in os.fwalk(".", topdown=False, dir_fd=descriptor):
        for name in (*files, *folders):
            if name == spare:
                continue
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                    os.rmdir(name, dir_fd=at)
                else:
                    os.unlink(name, dir_fd=at)


class Retention(NamedTuple):
    """Limits of the store; crashes beyond any of them are removed, oldest first."""

    crashes: int = 50
    age: float = 30 * 86400
    """Seconds."""
    size: int = 20 << 30
    """Bytes."""


def overdue(crashes: list[tuple[str, float, int]], retention: Retention) -> list[str]:
    """Ids to remove from (id, age in seconds, size in bytes), newest first; never the newest. Pure."""
    doomed = []
    total = 0
    for index, (identity, age, size) in enumerate(crashes):
        total += size
        if index and (index >= retention.crashes or age > retention.age or total > retention.size):
            doomed.append(identity)
            total -= size
    return doomed


def prune(store: Store, retention: Retention, keep: frozenset[str] = frozenset()) -> list[str]:
    """Remove overdue crashes, except `keep`; return the removed ids."""
    crashes = store.crashes()
    by_id = {crash.id: crash for crash in crashes}
    gone = []
    now = time.time()
    for identity in overdue([(crash.id, now - crash.when, crash.size) for crash in crashes], retention):
        if identity not in keep and not store.is_busy(identity):
            with contextlib.suppress(CollectError):
                store.remove(by_id[identity])
                gone.append(identity)
    return gone


def _scan(path: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            yield from entries
    except OSError:
        return
