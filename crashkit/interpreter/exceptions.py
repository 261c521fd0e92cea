"""The exceptions that a thread was handling: what each says, where it was raised, and which one it came from.

Sources: `PyBaseExceptionObject` (Include/cpython/pyerrors.h), `PyTracebackObject` (Include/cpython/traceback.h); the same from 3.6 to
3.14, but for `notes`, which came with 3.11.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Optional

import msgspec
from msgspec.structs import replace

from crashkit.interpreter.frames import Frames, FrameState
from crashkit.interpreter.objects import EXCEPTION, TYPE, Objects
from crashkit.interpreter.values import Values
from crashkit.interpreter.view import Unreadable, View

_MOST_CHAINED = 8
_MOST_ENTRIES = 2000
"""Of one traceback: a recursion leaves a thousand."""
_MOST_FRAMES = 40
_MOST_WORDS = 4
"""Of a C++ object that refers to an exception."""


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


def carried(objects: Objects, frames: Frames, values: Values, place: int) -> Optional[Raised]:
    """The exception that an exception of C++ at this address refers to, itself or by a structure of its own; None if there is none.

    pybind11's error_already_set has a pointer to such a structure since 2.10, and had the exception in itself before; nanobind's and
    torch's python_error have it in themselves. Which word it is depends on the version, so the first few are tried.
    """
    view, word = objects.view, objects.view.word_size
    # The first word is the table of virtual functions.
    own = list(_words(view, place + word, _MOST_WORDS))
    for words in (own, *(list(_words(view, pointer, _MOST_WORDS)) for pointer in own)):
        at = next((index for index, value in enumerate(words) if _is_exception(objects, value)), None)
        if at is not None:
            raised = chain(objects, frames, values, words[at])[0]
            # Up to 3.11 the traceback stands beside the exception until that reaches Python.
            beside = words[at + 1] if at + 1 < len(words) else 0
            return raised if raised.frames else _with_traceback(objects, frames, values, raised, beside)
    return None


def _with_traceback(objects: Objects, frames: Frames, values: Values, raised: Raised, traceback: int) -> Raised:
    with suppress(Unreadable):
        if traceback and values.type_name(objects.type_of(traceback)) == "traceback":
            entered, left_out = _traceback(objects, frames, traceback)
            return replace(raised, frames=entered, left_out=left_out)
    return raised


def _words(view: View, start: int, count: int) -> Iterator[int]:
    with suppress(Unreadable):
        for number in range(count):
            yield view.word(start + number * view.word_size)


def _is_exception(objects: Objects, address: int) -> bool:
    """Also of what may be no object at all."""
    if not address or address % objects.view.word_size:
        return False
    try:
        kind = objects.type_of(address)
        return objects.flags(objects.type_of(kind)) & TYPE != 0 and objects.flags(kind) & EXCEPTION != 0
    except Unreadable:
        return False


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
