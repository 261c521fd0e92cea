"""What the C library prints before it ends a process: all messages that this system's own file has. New versions bring new ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crashkit.evidence.text.log_patterns import Classifier

ALLOCATOR = re.compile(
    rb"\0([a-z_]{3,30}\(\): [a-z][^\0%]{5,80}|double free or corruption[^\0%]{0,20}"
    rb"|corrupted (?:size|double)[^\0%]{5,60}|invalid fastbin[^\0%]{5,60})\0"
)
"""The texts that malloc.c gives to malloc_printerr()."""
FATAL = re.compile(rb"\0((?:\*\*\* [%a-zA-Z][^\0]{5,80} \*\*\*|Fatal (?:glibc )?error: [^\0]{5,80}))\n?\0")
"""Those that others give to __libc_fatal()."""
OF_OTHERS = {
    "*** %s ***: terminated",  # with `stack smashing detected` or `buffer overflow detected`
    "*** procfs could not open ***",
}


def texts(pattern: re.Pattern[bytes]) -> list[str]:
    library = next((row.split()[-1] for row in Path("/proc/self/maps").read_text().splitlines() if row.endswith("/libc.so.6")), None)
    if library is None:
        pytest.skip("this Python runs on another C library than glibc")
    return sorted({text.decode() for text in pattern.findall(Path(library).read_bytes().replace(b"\0", b"\0\0"))})


def kind_of(text: str) -> str | None:
    found = Classifier().classify(text)
    return found[0] if found is not None else None


def test_what_malloc_finds() -> None:
    found = texts(ALLOCATOR)
    assert len(found) > 20
    assert [text for text in found if kind_of(text) not in ("heap-overflow", "double-free", "invalid-free")] == []


def test_what_ends_the_process() -> None:
    found = texts(FATAL)
    assert len(found) > 3
    assert [text for text in found if text not in OF_OTHERS and kind_of(text.replace("%s", "f")) is None] == []
