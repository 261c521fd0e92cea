"""How a command ends when it is told to: what it began is cleaned up, then the signal takes its course."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Optional

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class _Ended(BaseException):
    """A signal told us to end. No `except Exception` holds it up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def cleaned_up() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP unwind as Ctrl-C does; then they end the process, so that its parent sees which signal it was.

    A signal that is ignored from the start (nohup) stays ignored. The first one counts: clean-up is not interrupted by another.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        if before[number] is signal.SIG_DFL:
            signal.signal(number, _end)
    try:
        yield
    except _Ended as ended:
        signal.signal(ended.number, signal.SIG_DFL)
        os.kill(os.getpid(), ended.number)
    finally:
        for number in _SIGNALS:
            if before[number] is not None:
                signal.signal(number, before[number])


def _end(number: int, _frame: Optional[FrameType]) -> None:
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise _Ended(number)
