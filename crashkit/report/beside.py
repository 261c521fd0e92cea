"""Renders a format in a process of its own: Python runs one thread at a time, and while a debugger works, another processor may be idle.

The process is a fork, made before there are threads. It gets crashes as JSON, as report.json has them, and returns documents. Whatever
goes wrong with it, the format is rendered here instead, and what is wrong with the crash shows there.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, NoReturn, Optional

from crashkit.descriptors import close_all_but

_HEAD = struct.Struct("<?Q")
"""Before each message: whether an answer is wanted, and the bytes of what follows."""
_NICENESS = 10
"""Of the process: the debugger and the analysis go first."""
_ROOM = 1 << 20
"""Bytes that wait in a pipe; an unprivileged process gets no more (/proc/sys/fs/pipe-max-size)."""
_MOST_REHEARSED = _ROOM // 2
"""Bytes: we would wait for it with more."""


class Beside:
    """The process that renders the format of this name; a context manager that ends it. Raises OSError if there can be none."""

    def __init__(self, name: str) -> None:
        from_us, to_it = os.pipe()
        try:
            from_it, to_us = os.pipe()
        except OSError:
            os.close(from_us)
            os.close(to_it)
            raise
        for end in (to_it, to_us):
            with suppress(OSError):
                fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _ROOM)
        self._to, self._from = os.fdopen(to_it, "wb"), os.fdopen(from_it, "rb")
        try:
            self.pid = os.fork()
        except OSError:
            os.close(from_us)
            os.close(to_us)
            self._to.close()
            self._from.close()
            raise
        if self.pid == 0:
            _run(name, from_us, to_us)
        os.close(from_us)
        os.close(to_us)

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self._to, self._from):
            with suppress(OSError):  # what was not written yet
                stream.close()
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def rehearse(self, document: bytes) -> None:
        """Let it load what it needs, and render this preliminary crash, which makes the next one quicker."""
        if len(document) <= _MOST_REHEARSED:
            self._send(document, False)

    def begin(self, document: bytes) -> None:
        """Let it render this crash."""
        self._send(document, True)

    def result(self) -> Optional[bytes]:
        """What it rendered of the crash of `begin`; None if it failed."""
        return _received(self._from)[1]

    def _send(self, document: bytes, wanted: bool) -> None:
        with suppress(OSError, ValueError):  # it has ended: there will be no result either
            _send(self._to, document, wanted)


def _send(stream: BinaryIO, content: bytes, wanted: bool = False) -> None:
    stream.write(_HEAD.pack(wanted, len(content)))
    stream.write(content)
    stream.flush()


def _received(stream: BinaryIO) -> tuple[bool, Optional[bytes]]:
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return False, None
    wanted, size = _HEAD.unpack(head)
    content = stream.read(size)
    return wanted, content if len(content) == size else None


def _run(name: str, requests: int, answers: int) -> NoReturn:
    """The process's life. It ends with its parent, of which it keeps nothing open."""
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # as below nohup
                signal.signal(number, signal.SIG_DFL)
        close_all_but(requests, answers)
        os.nice(_NICENESS)
        with os.fdopen(requests, "rb") as incoming, os.fdopen(answers, "wb") as outgoing:
            _serve(name, incoming, outgoing)
        status = 0
    finally:
        os._exit(status)


def _serve(name: str, requests: BinaryIO, answers: BinaryIO) -> None:
    while True:
        wanted, document = _received(requests)
        if document is None:
            return
        rendered = _renderer(name)(document)
        if wanted:
            _send(answers, rendered)


def _renderer(name: str) -> Callable[[bytes], bytes]:
    from crashkit.report import json
    from crashkit.report.renderer import renderer

    one = renderer(name)
    return lambda document: one.render(json.decode(document))
