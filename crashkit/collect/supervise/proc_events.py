"""The kernel's report of every process that ends with a status other than 0: the process events connector (linux/cn_proc.h).

It misses nothing, however short-lived a process is. It is available only on the host (not in another pid or network namespace), and to
every user only since Linux 6.6, which can also filter out successful exits. Without it, `process_tree` still sees longer-lived processes.
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
    """The end of a process."""

    pid: int
    parent: int
    status: int
    """As in wait(2), except the core bit, which only the crashed thread's event has."""


class ProcessEvents:
    """A connection to the connector; can be polled."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._socket.fileno()

    def exits(self) -> Iterator[Exit]:
        """Ended processes on the whole machine, without blocking. Events may be lost under load."""
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
    """The end of a process from a `struct proc_event`; None for anything else, such as the end of a thread."""
    if len(data) < _HEADERS + 40:
        return None
    what = struct.unpack_from("=I", data, _HEADERS)[0]
    pid, group, status, exit_signal, _, parent = struct.unpack_from("=6I", data, _HEADERS + 16)
    # A thread that does not lead its process sends no signal to the parent: -1.
    if what != _PROC_EVENT_EXIT or pid != group or exit_signal == 0xFFFFFFFF:
        return None
    return Exit(pid, parent, status)


def supported(release: str) -> bool:
    """Whether a kernel of this release lets any user listen to selected events."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return match is not None and (int(match.group(1)), int(match.group(2))) >= (6, 6)


def listen() -> Optional[ProcessEvents]:
    """Connect; None if the kernel does not support it. In another namespace, the connection works but delivers no events."""
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
