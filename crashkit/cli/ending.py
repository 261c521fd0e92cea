"""How a command ends when it is told to: what it began is cleaned up, then the signal takes its course."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Optional

from crashkit import isolation, scratch
from crashkit.cli import INTERRUPTED

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_GRACE = 5.0
"""Seconds for a clean-up. An exception that comes at any moment can be lost (in a weak reference's callback), or leave a lock taken for
which another thread waits forever."""


class _Ended(BaseException):
    """A signal told us to end. No `except Exception` holds it up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def cleaned_up() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP unwind as Ctrl-C does; then they end the process, so that its parent sees which signal it was.

    A signal that is ignored from the start (nohup) stays ignored. The first one counts: clean-up is not interrupted by another. If it
    takes longer than a few seconds, what was started is killed and the process ends as it stands.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        if before[number] in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)
    told = sys.unraisablehook
    sys.unraisablehook = lambda lost: None if lost.exc_type in (_Ended, KeyboardInterrupt) else told(lost)
    try:
        yield
    except _Ended as ended:
        _die_of(ended.number)
    finally:
        sys.unraisablehook = told
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in _SIGNALS:
            if before[number] is not None:
                signal.signal(number, before[number])


def _end(number: int, _frame: Optional[FrameType]) -> None:
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: _end_now(number))
    signal.setitimer(signal.ITIMER_REAL, _GRACE)
    raise KeyboardInterrupt if number == signal.SIGINT else _Ended(number)


def _end_now(number: int) -> None:
    for process in isolation.running():
        isolation.kill(process)
    for folder in scratch.held():
        folder.close()
    if number == signal.SIGINT:
        os._exit(INTERRUPTED)
    _die_of(number)


def _die_of(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
