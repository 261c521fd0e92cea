"""The exceptions that a thread was handling: what each says, where it was raised, and which one it came from.

Sources: `PyBaseExceptionObject` (Include/cpython/pyerrors.h), `PyTracebackObject` (Include/cpython/traceback.h); the same from 3.6 to
3.14, but for `notes`, which came with 3.11.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Optional

import msgspec

from crashkit.interpreter.frames import Frames, FrameState
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.values import Values
from crashkit.interpreter.view import Unreadable

_MOST_CHAINED = 8
_MOST_ENTRIES = 2000
"""Of one traceback: a recursion leaves a thousand."""
_MOST_FRAMES = 40


class Raised(msgspec.Struct, frozen=True):
    """One exception."""

    text: str
    """Its type and arguments."""
    frames: tuple[FrameState, ...]
    """Where it was raised, innermost first, up to the function that caught it."""
    left_out: int = 0
    """Outer frames besides."""
    relation: Optional[str] = None
    """How the exception before came from this one: cause (`raise ... from`), context (raised while this one was handled)."""


def chain(objects: Objects, frames: Frames, values: Values, exception: int) -> list[Raised]:
    """The exception at this address, then the one that it came from, and so on. What cannot be read is left out."""
    found: list[Raised] = []
    seen: set[int] = set()
    relation: Optional[str] = None
    view, word = objects.view, objects.view.word_size
    while exception and exception not in seen and len(found) < _MOST_CHAINED:
        seen.add(exception)
        places = exception + objects.head + word * (3 if objects.version >= (3, 11) else 2)
        following, how = 0, None
        entered: tuple[FrameState, ...] = ()
        left_out = 0
        with suppress(Unreadable):
            entered, left_out = _traceback(objects, frames, view.word(places))
        with suppress(Unreadable):
            context, cause = view.word(places + word), view.word(places + 2 * word)
            hides = view.byte(places + 3 * word) != 0
            following, how = (cause, "cause") if cause else (0 if hides else context, "context")
        found.append(Raised(values.text(exception), entered, left_out, relation))
        exception, relation = following, how
    return found


def _traceback(objects: Objects, frames: Frames, entry: int) -> tuple[tuple[FrameState, ...], int]:
    view, word = objects.view, objects.view.word_size
    last: deque[FrameState] = deque(maxlen=_MOST_FRAMES)
    seen: set[int] = set()
    with suppress(Unreadable):
        while entry and entry not in seen and len(seen) < _MOST_ENTRIES:
            seen.add(entry)
            own = entry + objects.head
            frame = view.word(own + word)
            if objects.version >= (3, 11):
                frame = view.word(frame + objects.head + word)  # `f_frame`
            last.append(frames.stood(frame, view.int32(own + 2 * word), view.int32(own + 2 * word + 4)))
            entry = view.word(own)
    return tuple(reversed(last)), max(0, len(seen) - len(last))
