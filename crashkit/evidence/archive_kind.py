"""Whether a file is an archive, by its contents. Every input is asked: what unpacks archives is imported only for them."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from crashkit.crashfolder.files import open_real
from crashkit.evidence.input import Damaged, plain_pieces

ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_TAR, _TAR_AT = b"ustar", 257
_HEAD = 512


def archive_kind(path: Path) -> Optional[str]:
    """tar (also compressed) or zip, by the file's contents; None if it is neither, no regular file, or cannot be read."""
    try:
        with open_real(path) as file:
            head = b""
            for piece in plain_pieces(file):
                head += piece
                if len(head) >= _HEAD:
                    break
    except (OSError, ValueError, Damaged, RuntimeError):
        return None
    return kind_of_head(head)


def kind_of_head(head: bytes) -> Optional[str]:
    """tar or zip, by the first 512 plain bytes."""
    if head.startswith(ZIP):
        return "zip"
    return "tar" if head[_TAR_AT:].startswith(_TAR) else None
