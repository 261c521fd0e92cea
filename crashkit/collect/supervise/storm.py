"""Limit the crashes that are kept: a burst, then one per interval. Pure."""

from __future__ import annotations


class Storm:
    """A token bucket: `burst` crashes at once, then one more every `seconds`."""

    def __init__(self, burst: int = 10, seconds: float = 60.0) -> None:
        self.burst = burst
        self.seconds = seconds
        self.dropped: dict[str, int] = {}
        self._tokens = float(burst)
        self._last = 0.0

    def keeps(self, what: str, now: float) -> bool:
        """Whether to keep this crash; if not, it is counted under `what`. `now` is in seconds and must not decrease."""
        if self._last:
            self._tokens = min(self.burst, self._tokens + (now - self._last) / self.seconds)
        self._last = now
        if self._tokens >= 1:
            self._tokens -= 1
            return True
        self.dropped[what] = self.dropped.get(what, 0) + 1
        return False

    def summary(self) -> str:
        """Such as `40 crashes were not kept (40 SIGSEGV)`; empty if none was dropped."""
        total = sum(self.dropped.values())
        kinds = ", ".join(f"{count} {what}" for what, count in sorted(self.dropped.items()))
        return f"{total} crash{'es were' if total > 1 else ' was'} not kept ({kinds})" if total else ""
