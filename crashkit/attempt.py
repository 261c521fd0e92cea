"""The net under every reader: whatever it raises becomes a soft error with the reader's name, never a lost report."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from crashkit.errors import CrashkitError
from crashkit.model import SoftError

_T = TypeVar("_T")

_HINT = "This is a bug in crashkit: please report it. The rest of the report is unaffected."


def attempt(stage: str, reader: str, call: Callable[[], _T], otherwise: _T, soft_errors: list[SoftError]) -> _T:
    """What `call` returns; `otherwise`, and a soft error, if it raises anything but an expected error (CrashkitError).

    MemoryError and RecursionError count too: hostile evidence causes them, and what asked for so much is gone when they arrive here.
    """
    try:
        return call()
    except CrashkitError:
        raise
    except Exception as error:
        soft_errors.append(failed(stage, reader, error))
        return otherwise


def failed(stage: str, reader: str, error: BaseException) -> SoftError:
    """The soft error for what a reader raised, with the place in the code for a bug report."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    words = " ".join(str(error).split())[:200]
    return SoftError(stage=stage, message=f"{reader} failed: {type(error).__name__}{': ' if words else ''}{words}{place}", hint=_HINT)
