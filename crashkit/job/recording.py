"""One rank's flight recorder: the collectives it came to, as torch's dump holds them."""

from __future__ import annotations

from typing import NamedTuple, Optional

from crashkit.model import PythonFrame


class Entry(NamedTuple):
    """One operation."""

    group: str
    """The process group's name."""
    description: str
    sequence: int
    """Of the collective in its group; several operations that were coalesced have the same one."""
    operation: str
    """Without the backend: all_reduce; for point-to-point operations send or recv."""
    is_p2p: bool = False
    peers: Optional[tuple[int, int]] = None
    """Point-to-point: sender and receiver, as ranks within the group."""
    sizes: tuple[tuple[int, ...], ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    state: Optional[str] = None
    retired: bool = False
    """True once the process had seen it complete."""
    frames: tuple[PythonFrame, ...] = ()
    """Innermost first."""
    created: Optional[int] = None
    """Nanoseconds since 1970, of the host's clock."""

    @property
    def is_completed(self) -> bool:
        """Gloo never sets the state: there, an operation is retired."""
        return self.retired or self.state == "completed"


class Recording(NamedTuple):
    """The dump of one rank."""

    rank: int
    path: str
    version: str
    groups: dict[str, tuple[str, tuple[int, ...]]]
    """Description and ranks by the group's name."""
    entries: tuple[Entry, ...]
    """In the order in which they were enqueued."""
    is_whole: bool = True
    """False if older entries were overwritten, or some were not read."""

    def members(self, group: str) -> tuple[int, ...]:
        """The group's ranks; empty if the dump does not say. Gloo's dumps name the group of all otherwise (torch 2.13: '')."""
        if group in self.groups:
            return self.groups[group][1]
        return next(iter(self.groups.values()))[1] if len(self.groups) == 1 else ()
