"""Stops a computation that takes too much processor time, such as a regular expression that a user's signature brings."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Optional


class TooSlow(Exception):
    """It took more processor time than it may."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TooSlow inside the block once it has used this much processor time.

    Python's regular expressions look for signals while they match (CPython, Modules/_sre/sre_lib.h), so a timer's signal stops them.
    Signals reach the main thread only: elsewhere, or with a timer of somebody else, nothing is limited. Blocks do not nest.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_VIRTUAL)[0]:
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _raise)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _raise(_number: int, _frame: Optional[FrameType]) -> None:
    raise TooSlow("it took too much processor time")
