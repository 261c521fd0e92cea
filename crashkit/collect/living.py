"""What only a live process tells, from /proc: which threads burn the processor, what its open files are, and who is at the other end."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, Optional

from crashkit.stacks.living import Living, OpenFile

SECONDS = 0.25
"""Over how long a time."""
_WOKEN = 1_000_000
"""Nanoseconds: a thread that ran for less was only woken to be looked at. On a busy machine it may have waited long for that."""
_MOST_FILES = 4096
_MOST_PROCESSES = 4096
_TICK = os.sysconf("SC_CLK_TCK")
_STATES = {"01": "established", "02": "connecting", "0A": "listening"}
"""include/net/tcp_states.h."""


class _Socket(NamedTuple):
    local: str
    remote: str
    state: str


class Spent(NamedTuple):
    """How long a thread ran, and how long it was ready but did not run because others did; nanoseconds."""

    ran: int
    ready: int = 0


class Watch:
    """Watches the threads of a process while something else is done."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = time.monotonic()
        self._before = _spent(pid)

    def shares(self, seconds: float = SECONDS) -> dict[int, float]:
        """The share of the time since the watch began, at least `seconds`, in which each thread ran or was ready to run."""
        time.sleep(max(0.0, self._began + seconds - time.monotonic()))
        took = time.monotonic() - self._began
        return {tid: share(self._before[tid], now, took) for tid, now in _spent(self._pid).items() if tid in self._before}


def share(before: Spent, after: Spent, seconds: float) -> float:
    """The share of these seconds in which a thread ran or, if it had work to do, waited for a processor."""
    ran, ready = after.ran - before.ran, after.ready - before.ready
    return min(1.0, (ran + (ready if ran >= _WOKEN else 0)) / 1e9 / seconds)


def living(pid: int, watch: Watch) -> Living:
    """Look at the process; what may not be read or is gone is left out."""
    return Living(processor={tid: round(share, 2) for tid, share in watch.shares().items()}, files=open_files(pid), children=children(pid))


def children(pid: int) -> tuple[int, ...]:
    """The processes that this one started and that still run."""
    found = []
    for tid in _numbers(f"/proc/{pid}/task"):
        found += [int(word) for word in _text(f"/proc/{pid}/task/{tid}/children").split()]
    return tuple(sorted(found))


def tree(pid: int) -> list[int]:
    """The process and all that descend from it, parents first."""
    found = [pid]
    for one in found:
        found += [child for child in children(one) if child not in found]
        if len(found) > _MOST_PROCESSES:
            break
    return found


def open_files(pid: int) -> dict[int, OpenFile]:
    """What each of its file descriptors is."""
    links = _links(pid)
    sockets = _sockets(pid) if any(target.startswith("socket:") for target in links.values()) else {}
    others = _ends(pid, [target for target in links.values() if target.startswith("pipe:")], sockets)
    return {descriptor: _described(target, sockets, others) for descriptor, target in links.items()}


def _described(target: str, sockets: Mapping[str, _Socket], others: Mapping[str, int]) -> OpenFile:
    process = others.get(target)
    to = f" to process {process}" if process is not None else ""
    if target.startswith("socket:"):
        known = sockets.get(target)
        if known is None:
            return OpenFile("socket", "a Unix socket", process)
        if known.state == "listening":
            return OpenFile("socket", f"listens on {known.local}")
        return OpenFile("socket", f"{known.local} to {known.remote}" + (f", process {process}" if process is not None else ""), process)
    if target.startswith("pipe:"):
        return OpenFile("pipe", f"a pipe{to}", process)
    return OpenFile("terminal" if re.match(r"/dev/(?:pts/|tty)", target) else "file", target, process)


def _ends(pid: int, pipes: Iterable[str], sockets: Mapping[str, _Socket]) -> dict[str, int]:
    """The process at the other end of each pipe and connection, as far as it runs on this machine and may be looked at."""
    wanted = set(pipes)
    # The same connection as the other side sees it.
    mirrored = {(one.remote, one.local): name for name, one in sockets.items() if one.state != "listening"}
    inodes = {other: mirrored[one.local, one.remote] for other, one in _sockets(pid).items() if (one.local, one.remote) in mirrored}
    found: dict[str, int] = {}
    if not wanted and not inodes:
        return found
    for other in _numbers("/proc")[:_MOST_PROCESSES]:
        if other in (pid, os.getpid()):
            continue
        for target in _links(other).values():
            name = inodes.get(target, target if target in wanted else None)
            if name is not None:
                found.setdefault(name, other)
    return found


def _links(pid: int) -> dict[int, str]:
    found = {}
    for descriptor in _numbers(f"/proc/{pid}/fd")[:_MOST_FILES]:
        with suppress(OSError):
            found[descriptor] = os.readlink(f"/proc/{pid}/fd/{descriptor}")
    return found


def _sockets(pid: int) -> dict[str, _Socket]:
    """TCP and UDP sockets of the process's network, by what /proc/PID/fd calls them (proc_pid_net(5))."""
    found = {}
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for line in _text(f"/proc/{pid}/net/{name}").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9:
                found[f"socket:[{fields[9]}]"] = _Socket(_address(fields[1]), _address(fields[2]), _STATES.get(fields[3], ""))
    return found


def _address(text: str) -> str:
    """`0100007F:1F90` is 127.0.0.1:8080: each word of the address in the byte order of the machine."""
    import ipaddress
    import sys

    words, _, port = text.partition(":")
    data = b"".join(int(words[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(words), 8))
    address = ipaddress.ip_address(data)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return f"[{address}]:{int(port, 16)}" if address.version == 6 else f"{address}:{int(port, 16)}"


def _spent(pid: int) -> dict[int, Spent]:
    """Of each thread (Documentation/scheduler/sched-stats.rst).

    Without those statistics only the time that it ran, which its stat counts in ticks.
    """
    found = {}
    for tid in _numbers(f"/proc/{pid}/task"):
        words = _text(f"/proc/{pid}/task/{tid}/schedstat").split()
        if len(words) > 1 and words[0].isdigit() and words[1].isdigit():
            found[tid] = Spent(int(words[0]), int(words[1]))
            continue
        text = _text(f"/proc/{pid}/task/{tid}/stat")
        fields = text[text.rfind(")") + 1 :].split()
        if len(fields) > 12:
            found[tid] = Spent((int(fields[11]) + int(fields[12])) * 1_000_000_000 // _TICK)
    return found


def _numbers(folder: str) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except OSError:
        return []


def _text(path: str, most: int = 4 << 20) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def command_of(pid: int) -> Optional[str]:
    """The command line of a process; None if it has ended."""
    return _text(f"/proc/{pid}/cmdline").replace("\0", " ").strip() or _text(f"/proc/{pid}/comm").strip() or None
