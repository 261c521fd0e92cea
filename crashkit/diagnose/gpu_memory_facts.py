"""What the numbers in torch's out-of-memory message tell: c10/cuda/CUDACachingAllocator.cpp. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Optional

import msgspec

from crashkit.diagnose.case import Case
from crashkit.diagnose.outcome import Outcome, no, unknown
from crashkit.model import Evidence
from crashkit.regex import regex

_SIZE = r"(\d{1,7}(?:\.\d{1,3})?) (bytes|[KMGT]i?B)"
_UNITS = {"bytes": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TRIED = regex(rf"Tried to allocate {_SIZE}")
_UNUSED = regex(rf"and {_SIZE} is reserved by PyTorch but unallocated")
# Before torch 2.1.
_ALLOCATED, _RESERVED = regex(rf"{_SIZE} already allocated"), regex(rf"{_SIZE} reserved in total")
_OTHER = regex(rf"Process \d{{1,9}} has {_SIZE} memory in use")


class _Numbers(msgspec.Struct, frozen=True):
    """In bytes; None where the message does not tell."""

    tried: Optional[float]
    unused: Optional[float]
    """Held by torch's allocator, and in none of its tensors."""
    others: float


def _size(pattern: re.Pattern[str], text: str) -> Optional[float]:
    match = pattern.search(text)
    return _bytes(match[1], match[2]) if match else None


def _bytes(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit if unit == "bytes" else unit[0]]


def _numbers(text: str) -> _Numbers:
    unused, reserved, allocated = _size(_UNUSED, text), _size(_RESERVED, text), _size(_ALLOCATED, text)
    if unused is None and reserved is not None and allocated is not None:
        unused = max(0.0, reserved - allocated)
    return _Numbers(_size(_TRIED, text), unused, sum(_bytes(*found) for found in _OTHER.findall(text)))


def fragmented(case: Case) -> Outcome:
    """torch's allocator held as much unused memory as it was asked for: only not in one piece."""
    return _as_much_as_asked_for(case, "torch's allocator", lambda numbers: numbers.unused or 0)


def used_by_others(case: Case) -> Outcome:
    """Other processes held as much of the GPU's memory as was asked for."""
    return _as_much_as_asked_for(case, "other processes", lambda numbers: numbers.others)


def _as_much_as_asked_for(case: Case, who: str, held: Callable[[_Numbers], float]) -> Outcome:
    for position, line in enumerate(case.crash.log):
        numbers = _numbers(line.text) if line.kind == "cuda-oom" else None
        if numbers is None or numbers.tried is None or numbers.unused is None:
            continue
        if held(numbers) < numbers.tried:
            return no(f"less than was asked for was held by {who}")
        return Outcome(True, (Evidence(text=line.text, log=position),))
    return unknown(f"how much memory {who} held")


GPU_MEMORY_FACTS = {"gpu-memory-fragmented": fragmented, "gpu-memory-used-by-others": used_by_others}
