"""Types that msgspec may decode in several threads at once.

msgspec 0.22 lets other threads see what it learns of a type before it has learned all of it: two that decode the same structure for the
first time at the same moment can crash the process.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")
_lock = threading.Lock()
_known: set[Any] = set()


def prepared(kind: type[_T]) -> type[_T]:
    """The type itself, once msgspec knows all of it and of the types in it."""
    with _lock:
        if kind not in _known:
            msgspec.json.Decoder(kind)
            _known.add(kind)
    return kind
