"""Find cores as soon as they appear and preserve them: the kernel overwrites a core of the same name.

Before it writes, the kernel unlinks an existing file of that name (fs/coredump.c). So every core gets a second name as soon as
inotify reports its creation, while it is still being written: a hard link in the store, or next to the core if the store is on
another file system, or at least an open descriptor. Two processes that die in the same millisecond are faster than that; with
CAP_SYS_ADMIN, fanotify then still gives us a descriptor of the core that has lost its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import stat
import time
from typing import NamedTuple, Optional

from crashkit.collect.host import linux
from crashkit.collect.host.core_pattern import CorePattern, folder_glob, name_expression
from crashkit.crashfolder.work import Work
from crashkit.elf.core_head import CoreHead, read_head

_EVENTS = linux.IN_CREATE | linux.IN_MOVED_TO | linux.IN_CLOSE_WRITE | linux.IN_DELETE
_HIDDEN = ".crashkit-"
CORE_SUFFIX, POINTER_SUFFIX = ".core", ".elsewhere"
"""In the folder of a run: a core, and a symbolic link to one on another file system. `recover` finds them there if we are killed."""
_STILL = 2.0
"""Seconds without growth after which a core counts as written, if the file system has no leases."""


class SecondName(NamedTuple):
    """The name that we gave a core, next to the kernel's."""

    path: str
    inbox: int
    """Descriptor of the run's folder."""
    entry: str
    """In that folder: the second name itself, or a symbolic link to it."""
    in_store: bool

    def remove(self) -> None:
        """Remove it, if it is there."""
        if not self.in_store:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        with contextlib.suppress(OSError):
            os.unlink(self.entry, dir_fd=self.inbox)


class CoreFile:
    """A core file, from its creation on."""

    def __init__(self, original: str, descriptor: int, second: Optional[SecondName]) -> None:
        self.original = original
        self.descriptor = descriptor
        self.second = second
        self.head: Optional[CoreHead] = None
        self.is_ours_to_move = False
        """The kernel wrote it only because we raised the limit: it does not stay at its original name."""
        self._size = -1
        self._closed_at: Optional[int] = None
        self._since = time.monotonic()

    @property
    def size(self) -> int:
        """Current size in bytes."""
        return os.fstat(self.descriptor).st_size

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode number."""
        status = os.fstat(self.descriptor)
        return status.st_dev, status.st_ino

    def written(self) -> bool:
        """Whether the core is complete or its writer has closed it."""
        self.head = self.head or read_head(self.descriptor)
        size = self.size
        if size != self._size:
            self._size, self._since = size, time.monotonic()
        if self.head is not None and size >= self.head.expected:
            return True
        try:
            # A read lease is only given on a file that nobody has open for writing: fcntl(2).
            fcntl.fcntl(self.descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(self.descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            return True
        except BlockingIOError:
            return False
        except OSError:
            return time.monotonic() - self._since > _STILL

    def remove_original(self) -> None:
        """Remove the core's original name, unless it now belongs to another core."""
        with contextlib.suppress(OSError):
            status = os.lstat(self.original)
            if (status.st_dev, status.st_ino) == self.identity:
                os.unlink(self.original)

    @property
    def place(self) -> Optional[str]:
        """A path where the core is now; None if it has lost every name."""
        for path in (self.second and self.second.path, self.original):
            with contextlib.suppress(OSError):
                if path and os.path.samestat(os.lstat(path), os.fstat(self.descriptor)):
                    return path
        return None

    def is_same(self, status: os.stat_result) -> bool:
        """Whether a file with our identity is this core: after `close`, the inode number may be reused, with a later mtime."""
        return self._closed_at is None or self._closed_at == status.st_mtime_ns

    def close(self) -> None:
        """Close the descriptor; the files stay."""
        self._closed_at = os.fstat(self.descriptor).st_mtime_ns
        os.close(self.descriptor)

    def drop(self) -> None:
        """It is kept elsewhere, or not wanted: remove the second name and close it. The original name stays unless that is ours."""
        if self.is_ours_to_move:
            self.remove_original()
        if self.second is not None:
            self.second.remove()
        self.close()


class OlderCore(NamedTuple):
    """A core that was there before the command, at a name that the kernel gives to a new one."""

    path: str
    second: str

    def put_back(self) -> str:
        """Give it its name back if that is free, else leave it at the second one; a message if the kernel took the first."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.lstat(self.path), os.lstat(self.second)):
                os.unlink(self.second)
                return ""
        with contextlib.suppress(OSError):
            os.link(self.second, self.path, follow_symlinks=False)  # unlike rename, it replaces nothing
            os.unlink(self.second)
            return f"restored the older core {self.path}, which a new one had replaced"
        return f"renamed the older core {self.path} to {self.second}: a new one has its name"


class CoreWatch:
    """Watches the folders where core_pattern puts cores."""

    def __init__(self, pattern: CorePattern, inbox: Work, protect: bool) -> None:
        """`protect`: older cores are not to be overwritten, as without us the kernel would write none."""
        self.pattern = pattern
        self._protects = protect and not pattern.unique
        self._older: dict[str, OlderCore] = {}
        self.overwritten = 0
        """Number of cores that another core replaced before they could be preserved."""
        self._inbox = inbox
        self._name = name_expression(pattern)
        self._folder = folder_glob(pattern)
        self._inotify: Optional[linux.Inotify] = None
        self._watched: dict[int, str] = {}
        self._known: set[str] = set()
        self._writing: list[CoreFile] = []
        self._taken: dict[tuple[int, int], CoreFile] = {}
        self._count = 0
        self._began = time.time()
        self._written: Optional[linux.WrittenFiles] = None
        if pattern.kind == "file":
            with contextlib.suppress(OSError):
                self._inotify = linux.Inotify()
            if not pattern.unique:
                with contextlib.suppress(OSError):
                    self._written = linux.WrittenFiles()

    @property
    def descriptors(self) -> list[int]:
        """The descriptors to poll."""
        return [source.descriptor for source in (self._inotify, self._written) if source is not None]

    @property
    def busy(self) -> bool:
        """Whether a core is being written."""
        return bool(self._writing)

    @property
    def patience(self) -> float:
        """Seconds until the next check: the head of a core appears soon, its end takes longer."""
        return 0.002 if any(core.head is None for core in self._writing) else 0.02

    def identified(self) -> list[int]:
        """Pids of the cores whose headers became readable since the last call."""
        pids = []
        for core in self._writing:
            if core.head is None and (head := read_head(core.descriptor)) is not None:
                core.head = head
                pids.append(head.pid)
        return pids

    def folders(self, cwd: str) -> list[str]:
        """Folders where the core of a process with this working directory may appear."""
        if not self._folder:
            return [cwd]
        pattern = self._folder if self._folder.startswith("/") else f"{glob.escape(cwd)}/{self._folder}"
        return glob.glob(pattern) if "*" in pattern else [pattern]

    def watch(self, cwds: set[str]) -> None:
        """Also watch the folders for these working directories."""
        if self._inotify is None:
            return
        for cwd in cwds - self._known:
            self._known.add(cwd)
            for folder in self.folders(cwd):
                if self._protects:
                    self._protect(folder)
                with contextlib.suppress(OSError):
                    self._watched[self._inotify.watch(folder, _EVENTS)] = folder
                    if self._written is not None:
                        self._written.watch(folder)

    def take(self) -> None:
        """Preserve the cores that have appeared."""
        if self._inotify is not None:
            for number, mask, name in self._inotify.events():
                if mask & linux.IN_Q_OVERFLOW:
                    for folder in list(self._watched.values()):
                        self.search(folder)
                elif mask & (linux.IN_CREATE | linux.IN_MOVED_TO) and number in self._watched:
                    self._take(os.path.join(self._watched[number], name), created=True)

        for descriptor in self._written.closed() if self._written is not None else ():
            if not self._rescue(descriptor):
                os.close(descriptor)

    def _rescue(self, descriptor: int) -> bool:
        """Preserve a core that another one replaced before we could give it a second name: it has no name any more."""
        status = os.fstat(descriptor)
        if status.st_nlink or not stat.S_ISREG(status.st_mode):
            return False
        known = self._taken.get((status.st_dev, status.st_ino))
        if (known is not None and known.is_same(status)) or read_head(descriptor) is None:
            return False
        self.overwritten = max(0, self.overwritten - 1)
        self._taken[status.st_dev, status.st_ino] = CoreFile("", descriptor, None)
        self._writing.append(self._taken[status.st_dev, status.st_ino])
        return True

    def complete(self) -> list[CoreFile]:
        """The cores that are no longer being written; each is returned once."""
        done = [core for core in self._writing if core.written()]
        self._writing = [core for core in self._writing if core not in done]
        return done

    def search(self, folder: str) -> None:
        """Preserve new cores in a folder for which inotify may have missed events."""
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    if os.lstat(path).st_mtime >= self._began:
                        self._take(path, created=False)

    def _protect(self, folder: str) -> None:
        """Give older cores a second name, so that the kernel may take the first for a new core."""
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                if path not in self._older and self._matches(path) and os.lstat(path).st_mtime < self._began:
                    second = f"{path}.older-{os.getpid()}"
                    os.link(path, second, follow_symlinks=False)
                    self._older[path] = OlderCore(path, second)

    def _matches(self, path: str) -> bool:
        if self.pattern.relative:
            # Names below a working directory: compare as many components as the pattern has.
            depth = self.pattern.text.count("/") + 1
            path = "/".join(path.split("/")[-depth:])
        return self._name.fullmatch(path) is not None

    def _take(self, path: str, created: bool) -> None:
        name = os.path.basename(path)
        if name.startswith(_HIDDEN) or not self._matches(path) or any(path == older.second for older in self._older.values()):
            return
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            self.overwritten += created
            return
        except OSError:
            return
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino)
        known = self._taken.get(identity)
        taken = known is not None and known.is_same(status)
        if taken or not stat.S_ISREG(status.st_mode):
            self.overwritten += created and taken
            os.close(descriptor)
            return
        self._taken[identity] = CoreFile(path, descriptor, self._name_again(path, status))
        self._writing.append(self._taken[identity])

    def _name_again(self, path: str, status: os.stat_result) -> Optional[SecondName]:
        """Give a core a second name: in the store, or beside it."""
        self._count += 1
        inbox, entry = self._inbox.descriptor, f"{self._count}{CORE_SUFFIX}"
        with contextlib.suppress(OSError):
            os.link(path, entry, dst_dir_fd=inbox, follow_symlinks=False)
            if os.path.samestat(os.stat(entry, dir_fd=inbox, follow_symlinks=False), status):
                return SecondName(str(self._inbox.path / entry), inbox, entry, in_store=True)
            os.unlink(entry, dir_fd=inbox)  # it was overwritten in between
            return None
        beside = os.path.join(os.path.dirname(path), f"{_HIDDEN}{os.getpid()}-{self._count}.core")
        second = SecondName(beside, inbox, f"{self._count}{POINTER_SUFFIX}", in_store=False)
        with contextlib.suppress(OSError):  # first, so that there is no moment without: a link to nothing harms nobody
            os.symlink(os.path.abspath(beside), second.entry, dir_fd=inbox)
        with contextlib.suppress(OSError):
            os.link(path, beside, follow_symlinks=False)
            if os.path.samestat(os.lstat(beside), status):
                return second
        second.remove()
        return None

    def close(self) -> list[str]:
        """Stop watching; messages about older cores. Cores that are still being written keep their second name in the store."""
        for core in self._writing:
            core.close()
        self._writing = []
        return [message for older in self._older.values() if (message := older.put_back())]
