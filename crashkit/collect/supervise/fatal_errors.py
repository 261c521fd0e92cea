"""Fatal errors in the log, such as faulthandler's: a crash even if nobody sees how the process that printed them ends. Pure."""

from __future__ import annotations

from collections.abc import Callable

PATIENCE = 4.0
"""Seconds to wait for other traces of a crash after a fatal error, or after a tracer let go of the process."""


class FatalErrors:
    """Decides when a fatal error in the log is reported as a crash of its own. All times are in seconds of one clock."""

    def __init__(self) -> None:
        self.count = 0
        """How many were seen."""
        self._until = 0.0

    @property
    def awaited(self) -> bool:
        """Whether other traces of one are still waited for."""
        return self._until > 0

    def seen(self, count: int, now: float, is_told: bool) -> None:
        """So many are in the log now. `is_told`: there are other traces of a crash already."""
        if count > self.count:
            self.count = count
            if not is_told:
                self._until = now + PATIENCE

    def explained(self) -> None:
        """A death was seen: it is the one that the log tells of."""
        self._until = 0.0

    def is_due(self, now: float, is_held: Callable[[], bool]) -> bool:
        """Whether nothing else came; once. `is_held`: whether a tracer holds a process, which then dies only when it is let go."""
        if not self._until:
            return False
        if is_held():
            self._until = now + PATIENCE
        if now < self._until:
            return False
        self._until = 0.0
        return True
