"""Signals that a parent passes on: a loader or a wrapper whose child died of a signal raises the same one, so that its own parent sees it.

PyInstaller's loader does so, timeout(1), strace(1), perf(1) and sudo(8). That is no second crash.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

SECONDS = 10.0
"""Within which the parent follows its child."""


UNSEEN = -1
"""Parent of a process whose parent was gone before it was seen: that had a parent, too, which follows as well."""


class _Fallen(NamedTuple):
    pid: int
    parent: int
    signal: int
    when: float


class PassedOn:
    """Remembers who died of what. `now` is of time.monotonic()."""

    def __init__(self) -> None:
        self._fallen: list[_Fallen] = []

    def note(self, pid: int, parent: int, signal: int, now: float) -> None:
        """A process died of a fatal signal; its parent may be UNSEEN."""
        self._fallen = [one for one in self._fallen if now - one.when < SECONDS and one.pid != pid]
        self._fallen.append(_Fallen(pid, parent, signal, now))

    def child(self, pid: int, signal: int, now: float) -> Optional[int]:
        """The child of the process `pid`, or one of an unseen parent, that had died of this signal just before; None if there is none."""
        recent = [one for one in reversed(self._fallen) if one.signal == signal and one.pid != pid and now - one.when < SECONDS]
        return next((one.pid for parent in (pid, UNSEEN) for one in recent if one.parent == parent), None)
