"""Points in time as reports write them."""

from __future__ import annotations

import time
from typing import Optional


def utc(seconds: Optional[float]) -> Optional[str]:
    """`2026-11-22T10:21:14Z` of seconds since 1970. None where no calendar has that year: evidence and file systems may say anything."""
    try:
        parts = time.gmtime(seconds) if seconds is not None else None
    except (OverflowError, ValueError, OSError):
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", parts) if parts is not None and 1000 <= parts.tm_year <= 9999 else None
