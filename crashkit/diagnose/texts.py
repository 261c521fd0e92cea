"""Fills a signature's texts with this crash's own names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

from crashkit.diagnose.view import View

_NAME = re.compile(r"\{(?P<name>[a-z_]\w*)(?:\|(?P<otherwise>[^{}]*))?\}")


# Braces of a value are no names.
_HIDE = str.maketrans("{}", "\ue000\ue001")
_SHOW = str.maketrans("\ue000\ue001", "{}")


def names(view: View) -> dict[str, str]:
    """What every text can use: signal, address, function, thread, python (the user's own line), source, executable."""
    crash = view.crash
    found: dict[str, Optional[str]] = {}
    if crash.signal is not None:
        found["signal"] = crash.signal.name
        found["address"] = str(crash.signal.address) if crash.signal.address is not None else None
        found["access"] = crash.signal.access
    if view.crashed is not None:
        found |= _of_crashed(view)
    if crash.process is not None:
        found["executable"] = crash.process.executable
        found["pid"] = str(crash.process.pid) if crash.process.pid is not None else None
    return {name: value for name, value in found.items() if value}


def _of_crashed(view: View) -> dict[str, Optional[str]]:
    stack = view.crashed
    if stack is None:
        return {}
    tid = stack.thread.tid
    found: dict[str, Optional[str]] = {"tid": str(tid) if tid is not None else None}
    found["who"] = f"thread {tid}" if tid is not None else None
    found["function"] = next((frame.name for frame in stack.failing if frame.name), None)
    found["module"] = next((frame.module for frame in stack.failing if frame.module), None)
    if (own := stack.own_python()) is not None:
        frame = own[1]
        found["python"] = f"{frame.file}:{frame.line} in {frame.function}"
        found["source"] = frame.source
    return found


def fill(text: str, known: dict[str, str]) -> Optional[str]:
    """The text with its names replaced; None where one is not known and has no text of its own."""
    missing = False

    def replace(match: re.Match[str]) -> str:
        nonlocal missing
        value = known.get(match["name"])
        if value is not None:
            return value.translate(_HIDE)
        missing = missing or match["otherwise"] is None
        return match["otherwise"] or ""

    # From the inside out: {name|{other|text}}.
    while (filled := _NAME.sub(replace, text)) != text:
        text = filled
    return None if missing else text.translate(_SHOW)


def fill_all(texts: Iterable[str], known: dict[str, str]) -> tuple[str, ...]:
    """Those texts of which every name is known."""
    return tuple(filled for text in texts if (filled := fill(text, known)) is not None)
