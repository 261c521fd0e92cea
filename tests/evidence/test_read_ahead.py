"""A core is read ahead by the block: the same bytes with fewer calls."""

from __future__ import annotations

import random

from crashkit.elf.headers import of_bytes
from crashkit.evidence.core import core
from crashkit.evidence.core.core import _by_blocks

SEED = random.randrange(1 << 32)


def test_the_bytes_are_the_same(monkeypatch):
    monkeypatch.setattr(core, "_MOST_BLOCKS", 3)
    chance = random.Random(SEED)
    data = chance.randbytes(5 * core._BLOCK + 100)
    plain, ahead = of_bytes(data), _by_blocks(of_bytes(data))
    for _ in range(3000):
        offset = chance.choice([chance.randrange(len(data) + 50), chance.randrange(6) * core._BLOCK + chance.randrange(-9, 9)])
        size = chance.choice([0, 1, 8, 100, core._BLOCK, core._BLOCK + 1, 3 * core._BLOCK])
        if offset >= 0:
            assert ahead(offset, size) == plain(offset, size), f"seed {SEED}"


def test_neighbours_are_read_once():
    asked = []
    ahead = _by_blocks(lambda offset, size: asked.append((offset, size)) or bytes(size))
    for offset in range(0, core._BLOCK, 8):
        assert ahead(offset, 8) == bytes(8)
    assert asked == [(0, core._BLOCK)]


def test_a_block_that_cannot_be_read_whole_hides_nothing():
    """The memory of a process that stands still is read as a core, too: what it has not mapped is missing."""
    data = bytes(range(256)) * 64

    def read(offset, size):
        return b"" if offset < 512 else data[offset : offset + size]

    ahead = _by_blocks(read)
    assert ahead(0, 8) == b"" and ahead(512, 8) == data[512:520]
