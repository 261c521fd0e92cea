"""Heaps made to keep the searches for stacks busy, and large ones: what is looked at is bounded, but reaches behind what malloc() has."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crashkit.elf.core_file import Laid, core_head
from crashkit.elf.headers import Word
from crashkit.evidence.core.core import Core
from crashkit.interpreter import running, upwards
from crashkit.interpreter.layouts import Layout, Version, layout_of
from crashkit.interpreter.objects import Objects
from crashkit.interpreter.search import Ranges
from crashkit.interpreter.view import View

_START, _PAGE, _PAGES = 0x1000_0000, 4096, 300
_MOST = 500


class Counting(View):
    """Counts what is read."""

    count = 0

    def word(self, address: int) -> int:
        self.count += 1
        return super().word(address)

    def words(self, address: int, count: int) -> tuple[int, ...]:
        self.count += 1
        return super().words(address, count)


def one_chain(page: int) -> int:
    """The second half of the parts follow each other; each in the first half leads to all of them."""
    following = max(page + 1, _PAGES // 2)
    return _START + following * _PAGE if following < _PAGES else 0


def no_chain(_page: int) -> int:
    return 0


def parts(layout: Layout, previous: Callable[[int], int]) -> bytes:
    """Each page begins a part of a data stack and has a frame that reaches to the next page's. The first one is the code object."""
    frame, code, chunk = layout.frame, layout.code, layout.chunk
    assert chunk is not None and frame.owner is not None and code.frame_slots is not None
    data = bytearray(_PAGE * _PAGES)
    struct.pack_into("<i", data, code.frame_slots, (_PAGE - frame.locals) // 8)
    for page in range(1, _PAGES):
        place = page * _PAGE
        struct.pack_into("<QQQ", data, place, previous(page), 1 << 21, 1)
        for start in (place + chunk.data, place + chunk.data + 8):
            struct.pack_into("<Q", data, start + frame.code, _START)
        # Somewhere else.
        struct.pack_into("<Q", data, place + chunk.data + 8 + frame.previous, _START)
    return bytes(data)


def written(data: bytes, folder: Path) -> Path:
    head, (position,) = core_head(62, Word(8, "<"), b"", [Laid(_START, len(data), 6, len(data))])
    path = folder / "core"
    path.write_bytes(head.ljust(position, b"\0") + data)
    return path


def objects_of(core: Core, version: Version) -> tuple[Counting, Objects]:
    layout, view = layout_of(version), Counting(core)
    assert layout is not None
    return view, Objects(view, layout, version)


@pytest.mark.parametrize("previous", [one_chain, no_chain])
@pytest.mark.parametrize("minor", [11, 12, 13, 14])
def test_data_stacks(minor: int, previous: Callable[[int], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = Version(3, minor)
    layout = layout_of(version)
    assert layout is not None
    path = written(parts(layout, previous), tmp_path)
    with path.open("rb") as source, Core(source, path, path.stat().st_size) as core:
        counts = []
        for most in (_MOST, 1 << 30):
            monkeypatch.setattr(upwards, "_MOST_PARTS", most)
            monkeypatch.setattr(upwards, "_MOST_FRAMES", most)
            view, objects = objects_of(core, version)
            found = upwards.newest_parts(view, layout, [])
            assert len(found) >= _PAGES // 2 - 1
            reader = upwards.Upwards(objects, Ranges(core).holds)
            for part in found:
                reader.frames(part)
            counts.append(view.count)
        assert counts[0] < 10 * (_MOST + _PAGES) < counts[1], "there is more than the bounds allow"


def test_frames_that_are_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = _START + 64
    path = written(struct.pack("<Q", kind) * (_PAGE * _PAGES // 8), tmp_path)
    with path.open("rb") as source, Core(source, path, path.stat().st_size) as core:
        monkeypatch.setattr(running, "_MOST_PLACES", _MOST)
        view, objects = objects_of(core, Version(3, 8))
        assert running.running_chains(objects, Ranges(core).holds, {kind}, set()) == []
        assert 0 < view.count < 10 * _MOST


def test_data_stacks_lie_behind_a_large_heap(tmp_path: Path) -> None:
    """A free-threaded build reserves a gigabyte and touches little of it."""
    size = 3 << 30
    head, (position,) = core_head(62, Word(8, "<"), b"", [Laid(_START, size, 6, size)])
    path = tmp_path / "core"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(position + size)
        file.seek(position + size - 4 * _PAGE)
        file.write(struct.pack("<QQQ", 0, 4 * _PAGE, 1))
    with path.open("rb") as source, Core(source, path, position + size) as core:
        view, objects = objects_of(core, Version(3, 12))
        began = time.process_time()
        assert upwards.newest_parts(view, objects.layout, []) == [_START + size - 4 * _PAGE]
        assert time.process_time() - began < 1.0
