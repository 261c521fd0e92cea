"""Entries that have not arrived in their index, as JSON files in a folder beside the crashes of the store.

Each entry is here before it is written to the index, and goes when it has arrived: whatever happens in between, it is delivered again,
which changes nothing. A file names its index by a digest of the address; passwords are not in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from crashkit.crashfolder.files import create, open_regular
from crashkit.history.entry import Entry
from crashkit.history.index import digest
from crashkit.prepared import prepared

SCHEMA = "crashkit.history/1"
_FOLDER = "history.spool"
_SUFFIX = ".json"
_MOST_BYTES = 64 << 20
_TRIES = 10


class _File(msgspec.Struct, frozen=True):
    schema: str
    entries: tuple[Entry, ...]


class Spool:
    """The waiting entries of one index in one store."""

    def __init__(self, home: Path, address: str) -> None:
        self.folder = home / _FOLDER
        self._index = digest(address)

    def put(self, entries: Sequence[Entry]) -> Path:
        """Write the entries to a file of their own, complete from the first moment. Raises OSError."""
        document = msgspec.json.encode(_File(SCHEMA, tuple(entries)))
        for _ in range(_TRIES):
            # Who delivers the last file removes the folder, maybe just now.
            with contextlib.suppress(FileNotFoundError):
                return self._put(document)
        return self._put(document)

    def _put(self, document: bytes) -> Path:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{self._index}-{time.time_ns():x}-{os.getpid()}{_SUFFIX}"
        unfinished = path.with_name(f".{path.name}")
        with create(unfinished) as file:
            file.write(document)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        return path

    def waiting(self) -> list[Path]:
        """The files, oldest first."""
        with contextlib.suppress(OSError):
            names = sorted(name for name in _names(self.folder) if name.startswith(f"{self._index}-"))
            return [self.folder / name for name in names]
        return []

    def take(self, path: Path) -> tuple[Entry, ...]:
        """The entries of a file; none if it is gone, or is not of this crashkit. It stays."""
        with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError), open_regular(path) as file:
            read = msgspec.json.decode(file.read(_MOST_BYTES), type=prepared(_File))
            return read.entries if read.schema == SCHEMA else ()
        return ()

    def remove(self, path: Path) -> None:
        """Its entries have arrived."""
        with contextlib.suppress(OSError):
            path.unlink()
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether no other process delivers what waits, for the time of the block: one is enough."""
        try:
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            yield False
            return
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield True
                return
            yield False
        finally:
            os.close(descriptor)


def waiting_anywhere(home: Path) -> int:
    """How many files wait in a store, whatever their index."""
    with contextlib.suppress(OSError):
        return len(_names(home / _FOLDER))
    return 0


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.suffix == _SUFFIX and not path.name.startswith(".")]
