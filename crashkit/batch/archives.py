"""Takes files out of zip and tar archives that may be hostile.

Nothing is written under a name that the archive chose: its folders become numbered ones. Links and devices are not made. Only members
whose first bytes are evidence are written at all; a budget bounds members and bytes, whatever the headers claim.
"""

from __future__ import annotations

import bz2
import os
import re
import shutil
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, NamedTuple, Optional, cast

from crashkit.batch.kinds import ARCHIVES, HEAD, kind_of
from crashkit.evidence.input import DISK_RESERVE, Limits, open_input
from crashkit.limits import DEEPEST_ARCHIVE, LONGEST_FILE_NAME, MOST_ARCHIVE_BYTES, MOST_MEMBERS_OF_A_RUN
from crashkit.model import SoftError

_BLOCK = 64 << 10
_ZEROS = bytes(_BLOCK)
_MOST_HEADER = 1 << 20
"""Bytes of one read that a header may ask for: tarfile reads a whole extended header into memory."""
_UNFIT = re.compile(r"[^A-Za-z0-9._+=@,-]")

Wanted = Callable[[str, bytes], bool]
"""Whether a member of this name that begins with these bytes is taken."""


@dataclass
class Budget:
    """How much may still be unpacked; shared by all archives of a run."""

    folder: Path
    """Where members are written: one below it for each folder of an archive."""
    members: int = MOST_MEMBERS_OF_A_RUN
    size: int = MOST_ARCHIVE_BYTES
    depth: int = DEEPEST_ARCHIVE
    _folders: dict[tuple[str, str], Path] = field(default_factory=dict)

    def place(self, archive: str, name: str) -> Path:
        """A new path for the member: members of one folder of an archive lie together. Raises OSError."""
        parts = PurePosixPath(name.replace("\\", "/"))
        key = (archive, str(parts.parent))
        if key not in self._folders:
            self._folders[key] = self.folder / f"{len(self._folders):06d}"
            self._folders[key].mkdir(mode=0o700)
        plain = _UNFIT.sub("_", parts.name)[: LONGEST_FILE_NAME - 8].lstrip(".") or "member"
        path, number = self._folders[key] / plain, 1
        while os.path.lexists(path):
            number += 1
            path = self._folders[key] / f"{number}-{plain}"
        return path


class Member(NamedTuple):
    """A file that was taken out of an archive."""

    name: str
    """In the archive; untrusted."""
    path: Path


def members(path: Path, shown: str, budget: Budget, wanted: Wanted, problems: list[SoftError]) -> Iterator[Member]:
    """The wanted regular files of an archive, which may be compressed. What cannot be read is in `problems`; nothing is raised."""
    try:
        yield from _members(path, shown, budget, wanted, problems)
    except _Spent as error:
        problems.append(_problem(f"the rest of {shown} was left out: {error}", "Unpack it yourself, and pass the crash's own files."))
    # zipfile and tarfile raise many things for damaged data: zlib.error, struct.error, RuntimeError for a password, and so on.
    except Exception as error:
        problems.append(_problem(f"{shown} cannot be unpacked further: {_words(error)}", "Make the archive again, or pass its files."))


def first_member(path: Path, most: int) -> tuple[str, bytes]:
    """Name and content of an archive's first file, `most` bytes of it. Raises whatever a damaged archive makes zipfile or tarfile raise."""
    with _opened(path, 4 * most + (1 << 20), []) as archive:
        if isinstance(archive, zipfile.ZipFile):
            info = next(info for info in archive.infolist() if not info.is_dir())
            with archive.open(info) as member:
                return info.filename, member.read(most)
        entry = next(entry for entry in archive if entry.isreg())
        content = archive.extractfile(entry)
        assert content is not None, "a regular file has content"
        return entry.name, content.read(most)


def archive_kind(path: Path) -> Optional[str]:
    """zip, tar, or None. Raises OSError and EvidenceError."""
    with path.open("rb") as file:
        kind = kind_of(file.read(HEAD))
    if kind == "compressed":
        kind = kind_of(plain_head(path))
    return kind if kind in ARCHIVES else None


def plain_head(path: Path) -> bytes:
    """The first bytes of a compressed file's contents. Raises EvidenceError."""
    with path.open("rb") as file:
        if file.read(3) == b"BZh":
            file.seek(0)
            with bz2.BZ2File(file) as plain:
                return plain.read(HEAD)
    # A little more than the head: the reader gives up whole blocks.
    with open_input(path, Limits(size=16 * HEAD)) as source:
        return source.file.read(HEAD)


@contextmanager
def _opened(path: Path, size: int, problems: list[SoftError]) -> Iterator[zipfile.ZipFile | tarfile.TarFile]:
    """The archive, of which `size` bytes may be unpacked to read it."""
    with ExitStack() as stack:
        file: BinaryIO = stack.enter_context(path.open("rb"))
        head = file.read(HEAD)
        file.seek(0)
        if kind_of(head) == "zip":
            yield stack.enter_context(zipfile.ZipFile(file))
            return
        if head.startswith(b"BZh"):
            file = cast(BinaryIO, stack.enter_context(bz2.BZ2File(file)))
        elif kind_of(head) == "compressed":
            source = stack.enter_context(open_input(path, Limits(size=size)))
            problems += source.soft_errors
            file = source.file
        yield stack.enter_context(tarfile.open(fileobj=cast(IO[bytes], _Careful(file)), mode="r:"))


def _members(path: Path, shown: str, budget: Budget, wanted: Wanted, problems: list[SoftError]) -> Iterator[Member]:
    with _opened(path, budget.size, problems) as archive:
        if isinstance(archive, zipfile.ZipFile):
            yield from _of_zip(archive, shown, budget, wanted, problems)
        else:
            yield from _of_tar(archive, shown, budget, wanted)


def _of_zip(archive: zipfile.ZipFile, shown: str, budget: Budget, wanted: Wanted, problems: list[SoftError]) -> Iterator[Member]:
    for info in archive.infolist():
        _count(budget)
        special = (info.external_attr >> 16) & 0o170000 not in (0, 0o100000)
        if info.is_dir() or special:
            continue
        try:
            with archive.open(info) as member:
                taken = _take(member, info.filename, _seconds(info.date_time), shown, budget, wanted)
        except _Spent:
            raise
        except Exception as error:
            problems.append(_problem(f"{shown}!{info.filename} cannot be unpacked: {_words(error)}", "Make the archive again."))
            continue
        if taken:
            yield taken


def _of_tar(archive: tarfile.TarFile, shown: str, budget: Budget, wanted: Wanted) -> Iterator[Member]:
    for info in archive:
        _count(budget)
        member = archive.extractfile(info) if info.isreg() else None
        if member is None:
            continue
        with closing(member):
            taken = _take(member, info.name, float(info.mtime), shown, budget, wanted)
        if taken:
            yield taken


def _count(budget: Budget) -> None:
    budget.members -= 1
    if budget.members < 0:
        raise _Spent(f"the archives hold more than {MOST_MEMBERS_OF_A_RUN:,} files")


def _take(member: IO[bytes], name: str, when: float, archive: str, budget: Budget, wanted: Wanted) -> Optional[Member]:
    block = member.read(_BLOCK)
    if not wanted(name, block[:HEAD]):
        return None
    path = budget.place(archive, name)
    room = shutil.disk_usage(budget.folder).free - DISK_RESERVE
    with path.open("xb") as file:
        while block:
            budget.size -= len(block)
            room -= 0 if block == _ZEROS[: len(block)] else len(block)
            if budget.size < 0 or room < 0:
                file.close()
                path.unlink()
                raise _Spent(f"{name} is too large" if budget.size < 0 else f"no space left in {budget.folder}")
            if block == _ZEROS[: len(block)]:
                file.seek(len(block), os.SEEK_CUR)
            else:
                file.write(block)
            block = member.read(_BLOCK)
        file.truncate()
    # When a core was written is when the process died.
    with suppress(OSError, OverflowError, ValueError):
        os.utime(path, (when, when))
    return Member(name, path)


def _seconds(parts: tuple[int, int, int, int, int, int]) -> float:
    """A zip's time, which is that of some clock on a wall: ours, for want of a better one."""
    with suppress(OverflowError, ValueError):
        return time.mktime((*parts, 0, 0, -1))
    return 0.0


class _Careful:
    """A file for tarfile that refuses to read as much at once as no honest header needs."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _MOST_HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)


class _Spent(Exception):
    """The budget is used up."""


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _problem(message: str, hint: str) -> SoftError:
    return SoftError(stage="find", message=message, hint=hint)
