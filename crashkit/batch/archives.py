"""Takes what is evidence out of the zip and tar archives of a run. They may be hostile; `evidence/archive.py` reads them.

Nothing is written under a name that the archive chose: its folders become numbered ones. Links and devices are not made. Only members
whose first bytes are evidence are written at all; a budget bounds members and bytes, whatever the headers claim.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, Optional, cast

from crashkit.batch.kinds import HEAD
from crashkit.evidence import archive
from crashkit.evidence.input import DISK_RESERVE, Limits, open_input
from crashkit.limits import DEEPEST_ARCHIVE, LONGEST_FILE_NAME, MOST_ARCHIVE_BYTES, MOST_MEMBERS_OF_A_RUN
from crashkit.model import SoftError

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
        with path.open("rb") as file:
            for member in archive.members(file, budget.size):
                taken = _member(member, shown, budget, wanted, problems)
                if taken:
                    yield taken
    except (_Spent, archive.Full) as error:
        problems.append(_problem(f"the rest of {shown} was left out: {error}", "Unpack it yourself, and pass the crash's own files."))
    # What it was made to read may be anything, so its readers raise many things.
    except Exception as error:
        problems.append(_problem(f"{shown} cannot be unpacked further: {_words(error)}", "Make the archive again, or pass its files."))


def first_members(path: Path, most: int, count: int = 1) -> list[tuple[str, bytes]]:
    """Names and contents of an archive's first files, `most` bytes of each. Raises what `evidence.archive.members` raises."""
    first = []
    with path.open("rb") as file, closing(archive.members(file, most * count)) as found:
        for member in islice((member for member in found if member.kind == "file"), count):
            with member.open() as content:
                first.append((member.name, content.read(most)))
    return first


def plain_head(path: Path) -> bytes:
    """The first bytes of a compressed file's contents. Raises EvidenceError."""
    # A little more than the head: the reader gives up whole blocks.
    with open_input(path, Limits(size=16 * HEAD)) as source:
        return source.file.read(HEAD)


def _member(member: archive.Member, shown: str, budget: Budget, wanted: Wanted, problems: list[SoftError]) -> Optional[Member]:
    """The member, if it is wanted; what is wrong with it alone is in `problems`."""
    budget.members -= 1
    if budget.members < 0:
        raise _Spent(f"the archives hold more than {MOST_MEMBERS_OF_A_RUN:,} files")
    if member.kind == "sparse":
        problems.append(_problem(f"{shown}!{member.name} was left out: it is a sparse member", "Make the archive without tar --sparse."))
    if member.kind != "file":
        return None
    try:
        with member.open() as source:
            return _take(source, member, shown, budget, wanted)
    except (*archive.MEMBER_BROKEN, *archive.MEMBER_UNREADABLE) as error:
        problems.append(_problem(f"{shown}!{member.name} cannot be unpacked: {_words(error)}", "Make the archive again."))
        return None


def _take(source: IO[bytes], member: archive.Member, shown: str, budget: Budget, wanted: Wanted) -> Optional[Member]:
    head = source.read(HEAD)
    if not wanted(member.name, head):
        return None
    path = budget.place(shown, member.name)
    room = shutil.disk_usage(budget.folder).free - DISK_RESERVE

    def took(chunk: bytes) -> None:
        budget.size -= len(chunk)
        if budget.size < 0:
            raise _Spent(f"{member.name} is too large")

    def wrote(size: int) -> None:
        nonlocal room
        room -= size
        if room < 0:
            raise _Spent(f"no space left in {budget.folder}")

    try:
        with path.open("xb") as file:
            archive.copy(cast(IO[bytes], _Ahead(head, source)), file, took, wrote)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    # When a core was written is when the process died.
    with suppress(OSError, OverflowError, ValueError):
        os.utime(path, (member.time, member.time))
    return Member(member.name, path)


class _Ahead:
    """A member of which some bytes were read."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int) -> bytes:
        if not self._head:
            return self._rest.read(size)
        head, self._head = self._head, b""
        return head


class _Spent(Exception):
    """The budget is used up."""


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _problem(message: str, hint: str) -> SoftError:
    return SoftError(stage="find", message=message, hint=hint)
