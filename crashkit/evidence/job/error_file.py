"""torchelastic's error files (`error.json`; torch/distributed/elastic/multiprocessing/errors/error_handler.py): one a rank."""

from __future__ import annotations

import re
from typing import Any, Optional

import msgspec

from crashkit.evidence.text import traceback
from crashkit.job.word import Who, Word

LARGEST = 4 << 20
"""Bytes of one file."""
_LONGEST = 1000


def words(content: bytes, path: str, who: Who) -> Optional[list[Word]]:
    """The exception that the file tells of; None if the file is none of these."""
    try:
        raw: Any = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    message = raw.get("message") if isinstance(raw, dict) else None
    if isinstance(message, str):
        return [Word(who, "exception", path, 1, message[:_LONGEST])]
    if not isinstance(message, dict) or not isinstance(message.get("message"), str):
        return None
    extra = message.get("extraInfo")
    stack = extra.get("py_callstack") if isinstance(extra, dict) else None
    rank = message.get("rank")
    if isinstance(rank, (int, str)) and re.fullmatch(r"\d{1,9}", str(rank)):
        who = who._replace(rank=int(rank))
    return [Word(who, "exception", path, 1, message["message"][:_LONGEST], thread=_thread(stack) if isinstance(stack, str) else None)]


def _thread(stack: str) -> Any:
    lines = stack.splitlines()
    reader = traceback.FORMAT.opens(lines[0]) if lines else None
    if reader is None:
        return None
    for line in lines[1:]:
        if not reader.feed(line):
            break
    return reader.thread() if reader.finish() is not None else None
