"""What only a live process tells, and how a manifest keeps it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional


class OpenFile(NamedTuple):
    """What a file descriptor of a live process is."""

    kind: str
    """socket, pipe, file, terminal."""
    name: str
    process: Optional[int] = None
    """The other end's process, if it is known and there is one."""


class Living(NamedTuple):
    """What only a live process tells."""

    processor: Mapping[int, float] = {}
    """The share of the time in which each thread ran or was ready to, by tid."""
    files: Mapping[int, OpenFile] = {}
    """By descriptor."""
    children: tuple[int, ...] = ()
    opening_fifos: frozenset[int] = frozenset()
    """The threads that wait in open() for the other end of a FIFO."""
    awaited_children: Mapping[int, str] = {}
    """What those are that a thread waits for, by pid: `process 812 (sleep 60): it waits for a point in time`."""
    closed_polls: frozenset[int] = frozenset()
    """The epoll descriptors that watch nothing but pipes and sockets of which this process alone has both ends."""


def as_json(seen: Living) -> dict[str, Any]:
    """For a manifest."""
    return {
        "processor": {str(tid): share for tid, share in seen.processor.items()},
        "files": {str(number): list(file) for number, file in seen.files.items()},
        "children": list(seen.children),
        "opening_fifos": sorted(seen.opening_fifos),
        "closed_polls": sorted(seen.closed_polls),
        "awaited_children": {str(pid): words for pid, words in seen.awaited_children.items()},
    }


def of_json(told: object) -> Optional[Living]:
    """What a manifest says; None if it is something else, as anyone may have written it."""
    if not isinstance(told, dict):
        return None
    try:
        files = {
            int(number): OpenFile(str(kind), str(name), process if isinstance(process, int) else None)
            for number, (kind, name, process) in told["files"].items()
        }
        shares = {int(tid): float(share) for tid, share in told["processor"].items()}
        opening = frozenset(map(int, told.get("opening_fifos", ())))
        awaited = {int(pid): str(words) for pid, words in told.get("awaited_children", {}).items()}
        closed = frozenset(map(int, told.get("closed_polls", ())))
        return Living(shares, files, tuple(map(int, told["children"])), opening, awaited, closed)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
