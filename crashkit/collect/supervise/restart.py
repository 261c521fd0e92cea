"""When to start the command again after a crash: with growing pauses and a limit. Pure."""

from __future__ import annotations

from typing import Optional


class Restart:
    """Pauses of `delay` seconds, doubled up to `longest`; a run of at least `healthy` seconds resets the count."""

    def __init__(self, limit: int = 5, delay: float = 1.0, longest: float = 60.0, healthy: float = 60.0) -> None:
        self.limit = limit
        self.delay = delay
        self.longest = longest
        self.healthy = healthy
        self.count = 0

    def pause(self, lasted: float) -> Optional[float]:
        """Seconds to wait before the next start, after a run of `lasted` seconds; None when the limit is reached."""
        if lasted >= self.healthy:
            self.count = 0
        if self.count >= self.limit:
            return None
        self.count += 1
        return min(self.longest, self.delay * 2.0 ** (self.count - 1))
