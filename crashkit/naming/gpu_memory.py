"""What torch's allocator knew of an address, in words: for reports and for findings. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from crashkit.model import GpuMemory, PythonFrame
from crashkit.naming.own_code import own_line

GONE = ("freed", "cached")
"""States of memory that was freed."""


def what(found: GpuMemory) -> str:
    """`byte 1,024 of 67,108,864 bytes that were freed: a use after free`."""
    of, offset = f"{found.size:,}", int(found.offset)
    if found.state in GONE:
        kept = ", and kept by torch's allocator" if found.state == "cached" else ""
        return f"byte {offset:,} of {of} bytes that were freed{kept}: a use after free"
    if found.state == "beyond":
        return f"{offset:,} bytes past the end of a block of {of} bytes"
    return f"byte {offset:,} of a {found.state} block of {of} bytes"


def telling(frames: Sequence[PythonFrame]) -> Optional[PythonFrame]:
    """The user's own line, else the innermost one."""
    return own_line(frames) or next(iter(frames), None)
