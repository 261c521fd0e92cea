"""The kernel's own word of every process that ends with a status other than 0: the process events connector (linux/cn_proc.h).

It misses nothing, however shortly a process lives, but it is only there on the host (not in another pid or network namespace), and for
everybody only since Linux 6.6, which can also leave the ordinary exits out. Without it, `process_tree` still sees what lives long enough.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple, Optional

_NETLINK_CONNECTOR = 11
_CN_IDX_PROC = _CN_VAL_PROC = 1
_PROC_CN_MCAST_LISTEN = 1
_PROC_EVENT_NONZERO_EXIT = 0x20000000
_PROC_EVENT_EXIT = 0x80000000
_NLMSG_DONE = 3
_KERNEL = 0
_HEADERS = 36
"""struct nlmsghdr (16 bytes) and struct cn_msg (20)."""


class Exit(NamedTuple):
    pid: int
    parent: int
    status: int
    """As of wait(2), but for the core bit, which stands with the thread that crashed."""


class ProcessEvents:
    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def fileno(self) -> int:
        return self._socket.fileno()

    def exits(self) -> Iterator[Exit]:
        """Of whole processes, on the whole machine, without blocking."""
        while True:
            try:
                data, (sender, _) = self._socket.recvfrom(65536)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENOBUFS:  # some were lost
                    continue
                return
            if sender == _KERNEL and (event := parse(data)) is not None:
                yield event


def parse(data: bytes) -> Optional[Exit]:
    """The end of a whole process; None for anything else. `struct proc_event`."""
    if len(data) < _HEADERS + 40:
        return None
    what = struct.unpack_from("=I", data, _HEADERS)[0]
    pid, group, status, exit_signal, _, parent = struct.unpack_from("=6I", data, _HEADERS + 16)
    # A thread that does not lead its process sends no signal to the parent: -1.
    if what != _PROC_EVENT_EXIT or pid != group or exit_signal == 0xFFFFFFFF:
        return None
    return Exit(pid, parent, status)


def supported(release: str) -> bool:
    """Whether a kernel of this release lets everybody listen to a choice of events."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return match is not None and (int(match.group(1)), int(match.group(2))) >= (6, 6)


def listen() -> Optional[ProcessEvents]:
    """None where the kernel does not offer it. Nothing comes where it is offered but not to our namespace."""
    if not supported(os.uname().release):
        return None
    try:
        connection = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, _NETLINK_CONNECTOR)
        connection.bind((0, _CN_IDX_PROC))
        request = struct.pack("=II", _PROC_CN_MCAST_LISTEN, _PROC_EVENT_NONZERO_EXIT)
        message = struct.pack("=IIIIHH", _CN_IDX_PROC, _CN_VAL_PROC, 0, 0, len(request), 0) + request
        connection.send(struct.pack("=IHHII", 16 + len(message), _NLMSG_DONE, 0, 0, os.getpid()) + message)
    except OSError:
        return None
    return ProcessEvents(connection)
