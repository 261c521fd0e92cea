"""Which Unix sockets are connected to each other: the kernel tells by netlink (sock_diag(7)), /proc/net/unix does not."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
"""linux/netlink.h, linux/sock_diag.h"""
_REQUEST_DUMP = 0x301
_DONE, _ERROR = 3, 2
_SHOW_PEER, _PEER = 4, 2
"""linux/unix_diag.h: UDIAG_SHOW_PEER, UNIX_DIAG_PEER"""
_HEAD = struct.Struct("=IHHII")
_MESSAGE = struct.Struct("=BBBBIII")
_ATTRIBUTE = struct.Struct("=HH")
_MOST_ANSWERS = 4096
_SECONDS = 1.0


def unix_peers() -> dict[int, int]:
    """The inode of the other end by that of each connected Unix socket of our network namespace; empty where the kernel does not tell."""
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_PEER, 0xFFFFFFFF, 0xFFFFFFFF)
    found: dict[int, int] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as asked:
            asked.settimeout(_SECONDS)
            asked.send(_HEAD.pack(_HEAD.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + request)
            for _ in range(_MOST_ANSWERS):
                more = False
                for kind, message in _pieces(asked.recv(1 << 16), _HEAD):
                    more = kind not in (_DONE, _ERROR)
                    if more and len(message) >= _MESSAGE.size:
                        inode = _MESSAGE.unpack_from(message)[4]
                        for name, value in _pieces(message[_MESSAGE.size :], _ATTRIBUTE):
                            if name == _PEER and len(value) >= 4:
                                found[inode] = struct.unpack_from("=I", value)[0]
                if not more:
                    break
    except OSError:
        pass
    return found


def _pieces(data: bytes, head: struct.Struct) -> Iterator[tuple[int, bytes]]:
    """The kind and contents of each piece; each begins with its length, its kind, and is padded to four bytes."""
    while len(data) >= head.size:
        size, kind = head.unpack_from(data)[:2] if head is _HEAD else head.unpack_from(data)
        if size < head.size:
            return
        yield kind, data[head.size : size]
        data = data[(size + 3) & ~3 :]
