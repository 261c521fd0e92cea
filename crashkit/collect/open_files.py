"""What the open files of a live process are, and who has the other end of its pipes, FIFOs and connections, from /proc."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Optional

from crashkit.collect.host.proc import numbers, text_of
from crashkit.collect.unix_peers import unix_peers
from crashkit.stacks.living import OpenFile

_MOST_FILES = 4096
_MOST_PROCESSES = 4096
_MOST_NAMED = 3
_SECONDS = 2.0
"""Of processor time, at most, to look through the files of all processes."""
_STATES = {"01": "established", "02": "connecting", "0A": "listening"}
"""include/net/tcp_states.h."""
_READ, _WRITE = stat.S_IRUSR, stat.S_IWUSR
"""What a link in /proc/PID/fd says of how the file was opened (proc_pid_fd(5))."""
_HOW = {_READ: "for reading", _WRITE: "for writing"}
_TO_ITSELF = (
    "a Unix socket to this process itself",
    "a pipe that this process itself has open for writing",
    "a pipe that this process itself has open for reading",
)
_REMOTE = re.compile(r"nfs|cifs|smb|fuse|9p|ceph|lustre|gpfs|glusterfs|afs|beegfs|orangefs|ocfs|autofs")
"""File systems whose server may not answer: then even stat() would wait, and a FIFO there connects processes of this machine only."""


class _Socket(NamedTuple):
    local: str
    remote: str
    state: str


class _File(NamedTuple):
    target: str
    """What the link in /proc/PID/fd says."""
    mode: int
    """How it was opened, `_READ`, `_WRITE`."""
    pipe: Optional[object] = None
    """What is the same for all that have a pipe or a FIFO open."""


def open_files(pid: int) -> dict[int, OpenFile]:
    """What each of its file descriptors is."""
    files = _files(pid)
    ours = any(file.target.startswith("socket:") for file in files.values())
    sockets = _sockets(pid) if ours else {}
    peers = _peers(pid) if ours else {}
    ends = _ends(pid, files, sockets, peers)
    return {descriptor: _described(pid, file, sockets, peers, ends) for descriptor, file in files.items()}


def opening_fifos(pid: int) -> frozenset[int]:
    """The threads that wait in open() for the other end of a FIFO, by the function of the kernel that they sleep in (fs/pipe.c).

    Empty where the kernel does not tell (proc_pid_wchan(5)).
    """
    return frozenset(tid for tid in numbers(f"/proc/{pid}/task") if text_of(f"/proc/{pid}/task/{tid}/wchan") == "wait_for_partner")


def closed_polls(pid: int, files: Mapping[int, OpenFile]) -> frozenset[int]:
    """The epoll descriptors by which nobody else can wake the process: an event loop's that has no connection but that to itself.

    What each watches is in its fdinfo, as `tfd:` (proc_pid_fdinfo(5)).
    """
    found = set()
    for descriptor in files:
        lines = text_of(f"/proc/{pid}/fdinfo/{descriptor}").splitlines() if files[descriptor].name == "anon_inode:[eventpoll]" else []
        watched = [int(words[1]) for line in lines if (words := line.split())[:1] == ["tfd:"] and words[1].isdigit()]
        if watched and all((file := files.get(one)) is not None and file.name in _TO_ITSELF for one in watched):
            found.add(descriptor)
    return frozenset(found)


def _described(
    pid: int, file: _File, sockets: Mapping[str, _Socket], peers: Mapping[str, str], ends: Mapping[object, Mapping[int, int]]
) -> OpenFile:
    if file.pipe is not None:
        return _pipe(pid, file, ends.get(file.pipe, {}))
    target = file.target
    if not target.startswith("socket:"):
        return OpenFile("terminal" if re.match(r"/dev/(?:pts/|tty)", target) else "file", target)
    others = [one for one in ends.get(target, {}) if one != pid]
    process = others[0] if others else None
    known = sockets.get(target)
    if known is None:
        if others or target not in peers or pid not in ends.get(target, {}):
            return OpenFile("socket", f"a Unix socket to {_named(others)}" if others else "a Unix socket", process)
        return OpenFile("socket", _TO_ITSELF[0], process)
    if known.state == "listening":
        return OpenFile("socket", f"a new connection to {known.local}")
    return OpenFile("socket", f"{known.local} to {known.remote}" + (f", process {process}" if process is not None else ""), process)


def _pipe(pid: int, file: _File, ends: Mapping[int, int]) -> OpenFile:
    """`ends`: how each process has it open."""
    name = "a pipe" if file.target.startswith("pipe:") else f"a pipe ({file.target})"
    other = {_READ: _WRITE, _WRITE: _READ}.get(file.mode)
    if other is None:
        return OpenFile("pipe", name)
    having = [one for one, mode in ends.items() if mode & other]
    others = [one for one in having if one != pid]
    who = [*(["this process itself"] if pid in having else []), *([_named(others)] if others else [])]
    verb = "have" if len(having) > 1 else "has"
    says = f"{' and '.join(who)} {verb} open" if who else "nobody that may be looked at has open"
    return OpenFile("pipe", f"{name} that {says} {_HOW[other]}", others[0] if others else None)


def _named(processes: Sequence[int]) -> str:
    """`process 812 (cat)`, `processes 812 (cat), 813 (python3) and 7 more`."""
    shown = [f"{one} ({name})" if (name := text_of(f"/proc/{one}/comm").strip()) else str(one) for one in processes[:_MOST_NAMED]]
    if len(processes) > _MOST_NAMED:
        shown.append(f"{len(processes) - _MOST_NAMED} more")
    listed = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
    return f"process{'es' if len(processes) > 1 else ''} {listed}"


def _ends(pid: int, files: Mapping[int, _File], sockets: Mapping[str, _Socket], peers: Mapping[str, str]) -> dict[object, dict[int, int]]:
    """By pipe and connection: the processes that have the other end, or of a pipe any end, and how they have it open. As far as they run on
    this machine and may be looked at; the process itself is the last."""
    pipes = {file.pipe for file in files.values() if file.pipe is not None}
    fifos = frozenset(_last(file.target) for file in files.values() if file.pipe is not None)
    # The same connection as the other side sees it.
    places = {(one.local, one.remote): name for name, one in sockets.items() if one.state != "listening"}
    inodes = {name: places[one.remote, one.local] for name, one in sockets.items() if (one.remote, one.local) in places}
    inodes.update({peer: name for name, peer in peers.items() if any(file.target == name for file in files.values())})
    found: dict[object, dict[int, int]] = {}
    ends = time.thread_time() + _SECONDS
    for other in [*_others(pid), pid] if pipes or inodes else ():
        if time.thread_time() > ends:
            break
        for file in _files(other, fifos).values():
            key = file.pipe if file.pipe in pipes else inodes.get(file.target)
            if key is not None:
                known = found.setdefault(key, {})
                known[other] = known.get(other, 0) | file.mode
    return found


def _others(pid: int) -> Iterable[int]:
    return (other for other in numbers("/proc")[:_MOST_PROCESSES] if other not in (pid, os.getpid()))


def _files(pid: int, fifos: Optional[frozenset[str]] = None) -> dict[int, _File]:
    """`fifos`: only files of these names may be FIFOs."""
    found = {}
    local = _local_mounts(pid)
    for descriptor in numbers(f"/proc/{pid}/fd")[:_MOST_FILES]:
        path = f"/proc/{pid}/fd/{descriptor}"
        with suppress(OSError):
            target = os.readlink(path)
            mode = os.lstat(path).st_mode & (_READ | _WRITE)
            pipe: Optional[object] = target if target.startswith("pipe:") else None
            named = target.startswith("/") and (fifos is None or _last(target) in fifos)
            if named and _mount(text_of(f"/proc/{pid}/fdinfo/{descriptor}")) in local:
                known = os.stat(path)  # it is not opened
                pipe = (known.st_dev, known.st_ino) if stat.S_ISFIFO(known.st_mode) else None
            found[descriptor] = _File(target, mode, pipe)
    return found


def _local_mounts(pid: int) -> frozenset[str]:
    """The mounts of the process on file systems of this machine, by their ids (proc_pid_mountinfo(5))."""
    lines = (line.partition(" - ") for line in text_of(f"/proc/{pid}/mountinfo").splitlines())
    return frozenset(before.split(" ", 1)[0] for before, _, behind in lines if not _REMOTE.match(behind))


def _mount(information: str) -> str:
    return next((line.split()[-1] for line in information.splitlines() if line.startswith("mnt_id:")), "")


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _peers(pid: int) -> dict[str, str]:
    """Of Unix sockets, by what /proc/PID/fd calls them. Our own network has only its own."""
    with suppress(OSError):
        if os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
            return {f"socket:[{inode}]": f"socket:[{peer}]" for inode, peer in unix_peers().items()}
    return {}


def _sockets(pid: int) -> dict[str, _Socket]:
    """TCP and UDP sockets of the process's network, by what /proc/PID/fd calls them (proc_pid_net(5))."""
    found = {}
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for line in text_of(f"/proc/{pid}/net/{name}").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9:
                found[f"socket:[{fields[9]}]"] = _Socket(_address(fields[1]), _address(fields[2]), _STATES.get(fields[3], ""))
    return found


def _address(text: str) -> str:
    """`0100007F:1F90` is 127.0.0.1:8080: each word of the address in the byte order of the machine."""
    words, _, port = text.partition(":")
    data = b"".join(int(words[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(words), 8))
    address = ipaddress.ip_address(data)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return f"[{address}]:{int(port, 16)}" if address.version == 6 else f"{address}:{int(port, 16)}"
