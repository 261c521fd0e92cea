"""Source in a zip file, as Python imports it: `/srv/app.pyz/work.py` is the member `work.py` of `/srv/app.pyz`."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Optional

from crashkit.crashfolder.files import is_planted, open_regular

_MOST_BYTES = 8 << 20
_LARGEST_ZIP = 256 << 20


def zipped_source(name: str, locate: Callable[[str], Optional[Path]]) -> Optional[tuple[io.BytesIO, float]]:
    """The member and when the zip file was changed, seconds since the epoch; None if there is no zip file above it, or not this member.

    `locate` finds a file of the crashed system. Only Python source is read, of at most 8 MiB. Raises OSError.
    """
    if not name.endswith((".py", ".pyw")):
        return None
    for folder in PurePosixPath(name).parents:
        place = locate(str(folder)) if folder.name else None
        if place is not None:
            return _member(place, str(PurePosixPath(name).relative_to(folder)))
    return None


def _member(place: Path, member: str) -> Optional[tuple[io.BytesIO, float]]:
    import zipfile  # most sources are in none
    import zlib

    real = Path(os.path.realpath(place, strict=True))
    with open_regular(real) as file:
        status = os.fstat(file.fileno())
        if is_planted(status, real) or status.st_size > _LARGEST_ZIP:
            return None
        try:
            with zipfile.ZipFile(file) as archive, archive.open(member) as source:
                content = source.read(_MOST_BYTES + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError, ValueError):
            # Damaged, encrypted, or not there.
            return None
    return (io.BytesIO(content), status.st_mtime) if len(content) <= _MOST_BYTES else None
