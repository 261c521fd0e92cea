"""What fuzzing found once stays found: every file of fixtures/fuzz/ is read again, and so is a little of everything."""

from __future__ import annotations

import random

import pytest

from tests.fuzzing import FINDS, READERS, SECONDS, fails, seeds, smallest

FOUND = sorted(FINDS.glob("*-*"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_find(path):
    READERS[path.name.partition("-")[0]](path.read_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_seeds_and_their_beginnings(name):
    """Truncated at every 97th byte of the first ones: enough to know that the reader itself runs."""
    several = list(seeds(name))
    assert several
    for data in several[:3]:
        for length in range(0, min(len(data), 2000), 97):
            READERS[name](data[:length])
    chance = random.Random(1)
    for data in several[:10]:
        changed = bytearray(data[:2000])
        for _ in range(8):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        READERS[name](bytes(changed))


def test_finds_are_cut_down(monkeypatch):
    def broken(data: bytes) -> None:
        if b"\xff" in data and b"a" in data:
            raise ValueError

    monkeypatch.setitem(READERS, "broken", broken)
    assert fails("broken", b"a\xff") and not fails("broken", b"a")
    assert smallest("broken", b"x" * 100 + b"a" + b"y" * 33 + b"\xff" + b"z" * 9) == b"a\xff"
    assert SECONDS <= 10


def test_every_format_of_text_is_fuzzed():
    assert {"faulthandler", "traceback", "gdb_text", "csan", "asan", "compute_sanitizer", "log_lines"} <= READERS.keys()
    assert sum(name.startswith("opens_") for name in READERS) >= 10
