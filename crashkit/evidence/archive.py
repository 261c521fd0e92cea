"""Reads tar and zip archives, which may be hostile: `members` goes through one, `unpack` unpacks it into a private folder.

Only regular files and folders come out of an archive, under names that stay below the folder, and only so many of them
(`limits`). Links, devices and whatever else are left out, as is the second one of two members of a name; what was left out is told.
What cannot be unpacked completely (truncated, damaged, disk full) is unpacked as far as possible.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import stat
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, Optional, cast

from crashkit.crashfolder.files import create, open_real
from crashkit.evidence.archive_kind import ZIP
from crashkit.evidence.input import DISK_RESERVE, Damaged, plain_pieces
from crashkit.limits import LONGEST_FILE_NAME, LONGEST_PATH, MOST_MEMBERS, MOST_PATH_PARTS, unpacked_bytes
from crashkit.model import SoftError

_CHUNK = 1 << 20
_BLOCK = 16 << 10
_ZEROS = bytes(_BLOCK)
_MOST_HEADER = 64 << 10
"""Bytes of a tar header for a long name: PATH_MAX is 4096. tarfile reads it into memory at once, whatever size it claims."""
_MOST_DIRECTORY = 16 << 20
"""Bytes that zipfile may read at once: the table of contents of 20,000 long names."""
_MOST_AROUND = 256 << 20
"""Bytes of a tar around the contents of its members: headers, padding, and what follows its end."""
_HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_NAMED = 3
"""Names in one message."""

_ELSEWHERE = "their names lead out of the archive or cannot be used"
_NO_FILE = "they are links, devices or other special files"
_TWICE = "earlier members have the same names"
_DAMAGED = "their contents are damaged"
_UNREADABLE = "they cannot be unpacked"
TOO_MUCH = "it unpacks to too much"


class Unpacked(NamedTuple):
    """What came out of an archive."""

    files: dict[str, str]
    """SHA-256 in hexadecimal by the file's path below the folder, in the order of the archive."""
    soft_errors: tuple[SoftError, ...]


@dataclass
class Budget:
    """How much may still be unpacked: shared by the archives within an archive."""

    size: int
    """Bytes, counting holes."""
    members: int = MOST_MEMBERS
    """Files and folders."""

    @classmethod
    def of(cls, path: Path) -> Budget:
        """What an archive of this file's size is granted. Raises OSError."""
        return cls(unpacked_bytes(path.stat().st_size))


class Member(NamedTuple):
    """A member of an archive. Those of a tar can be opened only until the next one is asked for."""

    name: str
    """Untrusted."""
    kind: str
    """file, folder, sparse, other."""
    time: float
    """Seconds since the epoch."""
    open: Callable[[], IO[bytes]]


class Full(Exception):
    """A limit or the disk is reached."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


MEMBER_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, lzma.LZMAError)
"""What a damaged member of a zip raises; the next member does not depend on it. bz2 raises OSError."""
MEMBER_UNREADABLE = (RuntimeError, NotImplementedError)
"""What zipfile raises of an encrypted member, and of a compression that it does not know."""


def unpack(path: Path, folder: Path, budget: Budget) -> Unpacked:
    """Unpack the archive at `path` into the empty private `folder`, as far as the budget allows.

    Raises OSError if the archive cannot be opened.
    """
    with open_real(path) as file:
        target = _Target(path, folder, budget)
        target.fill(members(file, budget.size))
    return Unpacked(target.files, target.soft_errors())


def members(file: BinaryIO, size: int) -> Generator[Member, None, None]:
    """The members of an archive that was just opened, whatever their names and kinds, in its order.

    Of a tar so many bytes are read, also of members that nobody opens: then Full is raised. Where it is damaged, it raises what zipfile and
    tarfile raise: almost anything.
    """
    head = file.read(4)
    file.seek(0)
    return _of_zip(file) if head.startswith(ZIP) else _of_tar(file, size)


def copy(source: IO[bytes], target: BinaryIO, took: Callable[[bytes], None], wrote: Callable[[int], None]) -> None:
    """Copy a member into an empty file; `took` gets its bytes, `wrote` how many of them take room on the disk: zeros become holes.

    What they raise ends it; the file then has what was written before.
    """
    position = 0
    try:
        while chunk := source.read(_CHUNK):
            took(chunk)
            for start in range(0, len(chunk), _BLOCK):
                block = chunk[start : start + _BLOCK]
                if block != _ZEROS[: len(block)]:
                    wrote(len(block))
                    os.pwrite(target.fileno(), block, position + start)
            position += len(chunk)
    finally:
        target.truncate(position)


class _Target:
    """The folder that is filled, and what may still come into it."""

    def __init__(self, path: Path, folder: Path, budget: Budget) -> None:
        self.files: dict[str, str] = {}
        self._path = path
        self._folder = folder
        self._folders: set[tuple[str, ...]] = {()}
        self._budget = budget
        self._room = shutil.disk_usage(folder).free - DISK_RESERVE
        self._left_out: dict[str, list[str]] = {}
        self._ends: Optional[SoftError] = None

    def fill(self, found: Iterator[Member]) -> None:
        """Take one member after the other, until the archive or a limit ends it."""
        try:
            for member in found:
                self._take(member)
        except Full as full:
            self._ends = self._error(f"only the first {len(self.files)} files were unpacked: {full}", full.hint)
        except OSError:
            raise
        # For damaged data zipfile and tarfile raise errors of their own and many others: IndexError, NotImplementedError, zlib.error ...
        except Exception as error:
            what = str(error) or type(error).__name__
            hint = "Copy the archive again if you still have it."
            self._ends = self._error(f"the archive is damaged or truncated after {len(self.files)} files: {what}", hint)

    def soft_errors(self) -> tuple[SoftError, ...]:
        """What was left out, and why."""
        errors = []
        for why, names in self._left_out.items():
            hint = (
                "Pack plain files with relative names."
                if why in (_ELSEWHERE, _NO_FILE, _TWICE)
                else "Unpack it yourself and pass its files."
            )
            some = ", ".join(map(repr, names[:_NAMED])) + (", ..." if len(names) > _NAMED else "")
            count = "1 member was" if len(names) == 1 else f"{len(names):,} members were"
            errors.append(self._error(f"{count} left out, because {why}: {some}", hint))
        return (*errors, *([self._ends] if self._ends else []))

    def _error(self, message: str, hint: str) -> SoftError:
        return SoftError(stage="archive", message=f"{self._path}: {message}", hint=hint)

    def _take(self, member: Member) -> None:
        # Also what is left out costs time.
        self._count()
        parts = _parts(member.name)
        if parts is None:
            self._leave_out(member, _ELSEWHERE)
        elif member.kind not in ("file", "folder"):
            self._leave_out(member, _NO_FILE)
        else:
            try:
                self._make_folders(parts if member.kind == "folder" else parts[:-1])
                if member.kind == "file":
                    self._unpack_file(member, parts)
            except FileExistsError:
                self._leave_out(member, _TWICE)
            # What could be read of it is kept.
            except MEMBER_BROKEN:
                self._leave_out(member, _DAMAGED)
            except MEMBER_UNREADABLE:
                self._leave_out(member, _UNREADABLE)
            except OSError as error:
                self._leave_out(member, f"{_UNREADABLE} ({error.strerror})")

    def _leave_out(self, member: Member, why: str) -> None:
        self._left_out.setdefault(why, []).append(member.name[:LONGEST_FILE_NAME])

    def _count(self) -> None:
        if not self._budget.members:
            raise Full("it has too many files and folders", "Pass an archive of one crash, or unpack it yourself and pass its files.")
        self._budget.members -= 1

    def _make_folders(self, parts: tuple[str, ...]) -> None:
        for depth in range(1, len(parts) + 1):
            if parts[:depth] not in self._folders:
                self._count()
                self._folder.joinpath(*parts[:depth]).mkdir(mode=0o700)
                self._folders.add(parts[:depth])

    def _unpack_file(self, member: Member, parts: tuple[str, ...]) -> None:
        digest = hashlib.sha256()
        with member.open() as source, create(self._folder.joinpath(*parts)) as target:
            try:
                copy(source, target, partial(self._took, digest.update), self._wrote)
            finally:
                # It is there, if only in part.
                self.files["/".join(parts)] = digest.hexdigest()
                with suppress(OSError, OverflowError, ValueError):
                    os.utime(target.fileno(), (member.time, member.time))

    def _took(self, seen: Callable[[bytes], None], chunk: bytes) -> None:
        seen(chunk)
        self._budget.size -= len(chunk)
        if self._budget.size < 0:
            raise Full(TOO_MUCH, "Unpack it yourself and pass its files.")

    def _wrote(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise Full(f"no space left in {self._folder.parent}", "Set TMPDIR to a folder with more space.")


def _parts(name: str) -> Optional[tuple[str, ...]]:
    """The components of a relative name; None for one that leads elsewhere, or that no file can have."""
    if name.startswith("/") or "\0" in name:
        return None
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    try:
        lengths = [len(os.fsencode(part)) for part in parts]
    except UnicodeError:
        return None
    fits = len(parts) <= MOST_PATH_PARTS and max(lengths, default=0) <= LONGEST_FILE_NAME and sum(lengths) + len(parts) <= LONGEST_PATH
    return parts if parts and fits and ".." not in parts else None


class _Stream:
    """Pieces of bytes as what tarfile reads: it asks for a few kilobytes at a time, also to skip what nobody wants."""

    def __init__(self, pieces: Iterator[bytes], size: int) -> None:
        self._pieces = pieces
        self._left = size
        self._ahead = b""
        self._at = 0

    def read(self, size: int) -> bytes:
        found = self._ahead[self._at : self._at + size]
        self._at += len(found)
        while len(found) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            part = piece[: size - len(found)]
            self._ahead, self._at = piece, len(part)
            found += part
        self._left -= len(found)
        if self._left < 0:
            raise Full(TOO_MUCH, "Unpack it yourself and pass its files.")
        return found


class _Bounded(tarfile.TarInfo):
    """A header that does not make tarfile read gigabytes into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Bounded:
        return _checked(buf, lambda: super(_Bounded, cls).frombuf(buf, encoding, errors))

    @classmethod
    def _frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str, **options: Any) -> _Bounded:
        """What newer Pythons (3.14.10) call in place of `frombuf` while they read an archive."""
        return _checked(buf, lambda: super(_Bounded, cls)._frombuf(buf, encoding, errors, **options))  # type: ignore[misc]


def _checked(buf: bytes | bytearray, read: Callable[[], _Bounded]) -> _Bounded:
    if len(buf) != tarfile.BLOCKSIZE:
        raise Damaged("its end is missing")
    try:
        header = read()
    except tarfile.HeaderError as error:
        if any(buf):
            # tarfile would take that for the end.
            raise Damaged(str(error)) from error
        raise
    if header.size < 0 or (header.type in _HEADERS and header.size > _MOST_HEADER):
        raise Damaged(f"a header claims {header.size} bytes")
    return header


def _of_tar(file: BinaryIO, size: int) -> Generator[Member, None, None]:
    stream = cast(IO[bytes], _Stream(plain_pieces(file), size + _MOST_AROUND))
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Bounded, format=tarfile.PAX_FORMAT, errorlevel=2) as archive:
        for header in archive:
            if header.size < 0:
                raise Damaged(f"a header claims {header.size} bytes")
            # GNU's sparse files have a table of their own, which may claim anything.
            kind = "folder" if header.isdir() else "sparse" if header.issparse() else "file" if header.isreg() else "other"
            yield Member(header.name, kind, float(header.mtime), lambda header=header: _file_in(archive, header))  # type: ignore[misc]


def _file_in(archive: tarfile.TarFile, header: tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(header)
    if file is None:
        raise Damaged(f"{header.name!r} is not a file")
    return file


class _SmallReads:
    """A file of which zipfile does not read gigabytes into memory: it reads the table of contents at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > _MOST_DIRECTORY:
            raise Damaged(f"its table of contents claims {size} bytes")
        return self._file.read(size if size >= 0 else _MOST_DIRECTORY)


def _of_zip(file: BinaryIO) -> Generator[Member, None, None]:
    with zipfile.ZipFile(cast(BinaryIO, _SmallReads(file))) as archive:
        for entry in archive.infolist():
            mode = entry.external_attr >> 16
            plain = stat.S_IFMT(mode) in (0, stat.S_IFREG)
            kind = "folder" if entry.is_dir() else "file" if plain else "other"
            yield Member(entry.filename, kind, _zip_time(entry), lambda entry=entry: archive.open(entry))  # type: ignore[misc]


def _zip_time(entry: zipfile.ZipInfo) -> float:
    """A zip has local times, of nobody knows where."""
    try:
        return time.mktime((*entry.date_time, 0, 0, -1))
    except (OverflowError, ValueError):
        return 0.0
