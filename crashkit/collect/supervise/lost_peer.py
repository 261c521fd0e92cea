"""Whether a rank that ended with an error only lost its peers, by what it printed last or by torchelastic's error file. Pure."""

from __future__ import annotations

import json
import re
from typing import Optional

from crashkit.job.classes import PEER, of_exception

_LONGEST, _LONGEST_TRACEBACK, _MARK = 1 << 18, 1 << 15, 256
_HEAD = re.compile(rb"^(?P<rank>\[rank\d{1,9}\]: ?)?Traceback \(most recent call last\):", re.MULTILINE)


def only_lost_peers(stderr: bytes, error_file: bytes, rank: Optional[int], before: bytes = b"") -> bool:
    """`stderr`: what the rank wrote, or all ranks of its job; `before`: how it was when the job's first start failed."""
    if said := _of_error_file(error_file):
        return of_exception(said) == PEER
    known = before[-_MARK:]
    text = stderr[stderr.rfind(known) + len(known) :] if known and known in stderr else stderr
    own, nameless = _of_stderr(text[-_LONGEST:], rank)
    # What fails before torch knows the rank has no prefix: it may be any rank's.
    told = own[-1:] or nameless
    return bool(told) and all(of_exception(one) == PEER for one in told)


def _of_error_file(content: bytes) -> Optional[str]:
    try:
        message = json.loads(content)["message"]["message"]
        return str(message) if message else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _of_stderr(text: bytes, rank: Optional[int]) -> tuple[list[str], list[str]]:
    """The exceptions with the rank's own prefix, and those without one."""
    found: dict[bytes, list[str]] = {}
    for head in _HEAD.finditer(text):
        prefix = head["rank"] or b""
        for line in text[head.end() : head.end() + _LONGEST_TRACEBACK].split(b"\n")[1:]:
            if line.startswith(prefix) and (said := line[len(prefix) :]) and not said.startswith(b" "):
                found.setdefault(prefix.strip(), []).append(said.decode("utf-8", "replace"))
                break
    return found.get(b"[rank%d]:" % rank, []) if rank is not None else [], found.get(b"", [])
