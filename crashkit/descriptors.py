"""File descriptors of a forked process."""

from __future__ import annotations

import os

_MOST_DESCRIPTORS = 65536


def close_all_but(*descriptors: int) -> None:
    """Close all others, in a forked process: who waits for the end of a pipe that it inherited must not wait for it."""
    keep = sorted(set(descriptors))
    for before, after in zip([-1, *keep], [*keep, _MOST_DESCRIPTORS], strict=True):
        if before + 1 < after:  # an empty range from 0 on would be all of them (_Py_closerange in Python/fileutils.c)
            os.closerange(before + 1, after)
