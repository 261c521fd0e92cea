"""The crash store: one folder per crash below `$CRASHKIT_HOME` (default `$XDG_STATE_HOME/crashkit`, else `~/.local/state/crashkit`).

    20261120T231200-5752-python3.11/
      manifest.json       what was recorded of the crash; the format is `Manifest`
      core, core.zst      the core, if there is one
      stderr.log          the last 256 KiB of the command's stderr, scrubbed of secrets
      faulthandler.log    faulthandler's output, if it had its own file (crashkit.enable)
      gdb.txt             stacks taken by gdb at the fatal signal (--capture ptrace)
      dmesg.log           the kernel's messages since the command started, if readable
      *.nvcudmp           GPU core dumps
      report.json, report.html, analysis.log

Folders are 0700, files 0600; a folder gets its name by one rename once everything but the report is in it. Names that start with
a dot are work in progress. Contents are untrusted: links are not followed, and only regular files are opened.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional

from crashkit.crashfolder.files import is_regular
from crashkit.crashfolder.ids import time_of
from crashkit.crashfolder.manifest import File, Manifest, read_manifest
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
        if text.isdigit() and len(text) < 8:  # longer ones are the date of an id
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


class Store:
    """The folder that contains all crash folders."""

    def __init__(self, path: Optional[Path] = None) -> None:
        """Create the folder if it is missing. Raises CollectError if that fails or others may write to it."""
        self.path = path or home()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.path.stat()
        except OSError as error:
            raise CollectError(
                f"cannot create the crash store {self.path}: {error.strerror}", "set CRASHKIT_HOME to a writable folder"
            ) from None
        another = "set CRASHKIT_HOME to another folder"
        if status.st_uid not in (os.geteuid(), 0):
            raise CollectError(f"the crash store {self.path} belongs to another user", another)
        if status.st_mode & 0o022:
            may_change = os.geteuid() in (0, status.st_uid) and not os.statvfs(self.path).f_flag & os.ST_RDONLY
            mend = f"chmod 700 {self.path}, or {another}" if may_change else another
            raise CollectError(f"the crash store {self.path} is writable by other users", mend)

    def work_folder(self, name: str) -> Path:
        """Create a private folder for work in progress, `.NAME-PID-TIME`."""
        path = self.path / f".{name}-{os.getpid()}-{time.time_ns():x}"
        path.mkdir(mode=0o700)
        return path

    def publish(self, folder: Path, identity: str) -> Path:
        """Rename a finished work folder to its final name, numbered if the name is taken. Raises CollectError."""
        for attempt in range(1000):
            target = self.path / (identity if not attempt else f"{identity}-{attempt + 1}")
            try:
                os.mkdir(target, 0o700)
            except FileExistsError:
                continue
            os.rename(folder, target)  # onto the empty folder that is ours: nobody else can have taken the name
            return target
        raise CollectError(f"no free name for {identity} in {self.path}", "remove old crashes with crashkit rm")

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
            raise CollectError(f"no crash matches {text!r} in {self.path}", "list the stored crashes with crashkit list")
        raise CollectError(
            f"{len(matching)} crashes match {text!r}", "pass more of the id: " + ", ".join(crash.id for crash in matching[:5])
        )

    def remove(self, crash: StoredCrash) -> None:
        """Delete a crash folder. Raises CollectError."""
        try:
            # One rename first: nobody meets a folder that is half gone.
            doomed = self.path / f".removed-{os.getpid()}-{crash.id}"
            os.rename(crash.path, doomed)
            shutil.rmtree(doomed)
        except OSError as error:
            raise CollectError(f"cannot remove {crash.path}: {error.strerror}", "check the owner and mode of the crash store") from None

    def free(self) -> int:
        """Free bytes on the store's disk for this user."""
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def sweep(self) -> None:
        """Remove work folders whose process has ended."""
        for entry in _scan(self.path):
            match = re.match(r"\.(?:run|crash|removed)-(\d+)-", entry.name)
            if match and entry.is_dir(follow_symlinks=False) and not os.path.exists(f"/proc/{match.group(1)}"):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > 60:
                        shutil.rmtree(entry.path)


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
        # A crash whose analysis may still run is left alone.
        pending = by_id[identity].manifest.get("analysis") == "pending" and now - by_id[identity].when < 3600
        if identity not in keep and not pending:
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
