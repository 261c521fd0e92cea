"""The note of a minimal core that says what the whole one was: debuggers pass over it.

Memory that was left out has no segment, so that a debugger says that it is missing instead of showing zeros. The note keeps the address
space, which explains faults, and what was read of memory that is too much to keep: the files of imported modules.
"""

from __future__ import annotations

import zlib
from typing import Optional

import msgspec

from crashkit.limits import MOST_SEGMENTS
from crashkit.prepared import prepared

NAME, NOTE = "CRASHKIT", 0x434B4D43
_MOST_BYTES = 16 << 20
"""Of JSON, which a few KB of the note may unpack to."""
_MOST_FILES = 20_000


class Space(msgspec.Struct, frozen=True, array_like=True):
    """A segment of the whole core."""

    start: int
    size: int
    flags: int
    """1 execute, 2 write, 4 read."""


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of the note: JSON, compressed with zlib. The first minimal cores have it plain."""

    schema: str = "crashkit.core/1"
    size: int = 0
    """Bytes of the whole core."""
    missing: int = 0
    """Bytes that the whole core lacked itself, because it was truncated."""
    masked: int = 0
    """How many places were overwritten with zeros because a secret stood there."""
    space: tuple[Space, ...] = ()
    loaded: tuple[str, ...] = ()
    """Files of what the process had imported, one for each package."""


def encode(left: Left) -> bytes:
    """The payload."""
    return zlib.compress(msgspec.json.encode(left), 9)


def decode(payload: bytes) -> Optional[Left]:
    """What the payload says; None if no crashkit can have written it."""
    try:
        plain = payload if payload[:1] == b"{" else zlib.decompressobj().decompress(payload, _MOST_BYTES)
        found = msgspec.json.decode(plain[:_MOST_BYTES], type=prepared(Left))
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if len(found.space) > MOST_SEGMENTS or len(found.loaded) > _MOST_FILES:
        return None
    fits = all(0 <= one.start < 1 << 64 and 0 <= one.size < (1 << 64) - one.start for one in found.space)
    return found if fits else None
