"""Where crashes go while the crash store cannot be used."""

from __future__ import annotations

import os
import tempfile
from typing import Optional

SHARED_MEMORY = "/dev/shm"
"""Writable on most systems whose file systems are read-only."""


def temporary_parent() -> Optional[str]:
    """The temporary folder, or shared memory; None if neither can be written to."""
    try:
        candidates = [tempfile.gettempdir(), SHARED_MEMORY]
    except OSError:  # no usable temporary folder
        candidates = [SHARED_MEMORY]
    return next((folder for folder in candidates if os.access(folder, os.W_OK | os.X_OK)), None)
