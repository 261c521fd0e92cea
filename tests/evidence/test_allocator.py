"""Snapshots of torch's CUDA allocator: which block an address was in. Real ones, and one of which every byte is known."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import pytest

from crashkit.errors import EvidenceError
from crashkit.evidence.gpu.allocator import Snapshot, is_snapshot, read_snapshot
from crashkit.model import Crash, GpuMemory
from crashkit.pipeline import analyze
from crashkit.report import gpu_wording
from crashkit.report.html import render
from crashkit.report.json import decode, encode
from crashkit.report.text import summary
from tests.gpu_cores import data, gpu

RUNS = Path(__file__).parents[2] / "fixtures" / "gpu" / "runs"
# Where the program of each snapshot said that its tensor lay (torch_memory.py).
TENSORS = {
    "beyond": 0x7F8C32000000,
    "cached": 0x7F33A0000000,
    "freed-all": 0x7FE1E6000000,
    "freed-expandable": 0x302000000,
    "freed": 0x7F6D1A000000,
    "misaligned": 0x7FC77A000000,
}
SIZE = 64 << 20
BASE = 0x7F0000000000


def frames(line: int) -> list[dict[str, Any]]:
    return [
        {"name": "at::empty", "filename": "??", "line": 0},
        {"name": "ones", "filename": "/opt/venv/lib/python3.12/site-packages/torch/functional.py", "line": 7},
        {"name": "drop", "filename": "/srv/train.py", "line": line},
    ]


def block(address: int, size: int, requested: int, state: str, line: int = 1) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames(line)}


def event(action: str, address: int, size: int, line: int) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, "frames": frames(line)}


def document(base: int = BASE) -> dict[str, Any]:
    """A segment with a live block, one that was freed and is kept; another segment was given back to the driver."""
    gone = base + 0x10000000
    trace = [
        event("segment_alloc", base, 0x400000, 10),
        event("alloc", base, 1000, 11),
        event("alloc", base + 0x100000, 5000, 12),
        event("alloc", gone, 4096, 13),
        event("free_requested", base + 0x100000, 5000, 14),
        event("free_completed", base + 0x100000, 5000, 15),
        event("free_requested", gone, 4096, 16),
        event("free_completed", gone, 4096, 17),
        event("segment_free", gone, 0x200000, 18),
    ]
    blocks = [block(base, 1024, 1000, "active_allocated", 11), block(base + 1024, 0x400000 - 1024, 0, "inactive")]
    return {
        "segments": [{"device": 0, "address": base, "total_size": 0x400000, "segment_type": "small", "blocks": blocks}],
        "device_traces": [trace],
        "allocator_settings": {"expandable_segments": False},
    }


def snapshot(folder: Path, raw: Any) -> Snapshot:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(raw))
    with path.open("rb") as file:
        assert is_snapshot(file)
        return read_snapshot(file, str(path))


def line(marker: str) -> int:
    rows = (RUNS / "torch_memory.py").read_text().split("\n")
    (found,) = [number for number, row in enumerate(rows, 1) if row.endswith(f"# {marker}")]
    return found


def real(name: str) -> Snapshot:
    path = RUNS / "snapshots" / f"{name}.pickle"
    with path.open("rb") as file:
        assert is_snapshot(file)
        return read_snapshot(file, str(path))


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("freed", "freed"),
        ("freed-all", "freed"),
        ("freed-expandable", "freed"),
        ("cached", "cached"),
        ("beyond", "live"),
        ("misaligned", "live"),
    ],
)
def test_real_snapshots(name: str, state: str) -> None:
    """Of torch 2.11 on an H200: the state of the program's tensor, and the lines that made it and dropped it."""
    for offset in (0, 1024, SIZE - 1):
        found = real(name).memory(TENSORS[name] + offset)
        assert found is not None
        assert (found.state, found.address, found.size, found.offset) == (state, TENSORS[name], SIZE, offset)
        assert [(frame.function, frame.line) for frame in found.allocated[:1]] == [("__init__", line("allocated"))]
        dropped = [("drop", line("dropped"))] if state in ("freed", "cached") else []
        assert [(frame.function, frame.line) for frame in found.freed[:1]] == dropped


def test_behind_a_real_tensor() -> None:
    found = real("beyond").memory(TENSORS["beyond"] + SIZE + (2 << 20))
    assert found is not None
    assert (found.state, found.address, found.offset) == ("beyond", TENSORS["beyond"], 2 << 20)
    # What lay there is gone: the live block before it has nothing to do with it.
    assert real("freed").memory(TENSORS["freed"] + SIZE) is None


def told(found: GpuMemory | None) -> tuple[str, int, int, list[int | None], list[int | None]]:
    assert found is not None
    lines = [[frame.line for frame in one if frame.function == "drop"] for one in (found.allocated, found.freed)]
    return found.state, int(found.address), int(found.offset), lines[0], lines[1]


def test_states_of_memory(tmp_path: Path) -> None:
    known = snapshot(tmp_path, document())
    assert told(known.memory(BASE + 8)) == ("live", BASE, 8, [11], [])
    # The allocator rounds up: what was not asked for is not the tensor's.
    assert told(known.memory(BASE + 1000)) == ("beyond", BASE, 0, [11], [])
    assert told(known.memory(BASE + 0x100000 + 4999)) == ("cached", BASE + 0x100000, 4999, [12], [14])
    assert told(known.memory(BASE + 0x10000000 + 4)) == ("freed", BASE + 0x10000000, 4, [13], [16])
    assert known.memory(BASE + 0x400000) is None  # something else lay between
    assert known.memory(BASE - 1) is None
    assert known.memory(BASE + (1 << 32)) is None


def test_memory_that_was_handed_out_again_is_not_freed(tmp_path: Path) -> None:
    raw = document()
    raw["device_traces"][0].append(event("alloc", BASE + 0x10000000, 4096, 19))
    found = snapshot(tmp_path, raw).memory(BASE + 0x10000000 + 4)
    assert found is None or found.state == "beyond"


def test_without_history_the_state_alone_is_known(tmp_path: Path) -> None:
    """A snapshot of a program that did not call _record_memory_history."""
    raw = document()
    del raw["device_traces"]
    for segment in raw["segments"]:
        for one in segment["blocks"]:
            del one["frames"]
    known = snapshot(tmp_path, raw)
    assert told(known.memory(BASE + 8)) == ("live", BASE, 8, [], [])
    assert told(known.memory(BASE + 0x100000)) == ("cached", BASE + 1024, 0x100000 - 1024, [], [])


def test_only_python_frames_are_kept(tmp_path: Path) -> None:
    found = snapshot(tmp_path, document()).memory(BASE + 8)
    assert found is not None
    assert [frame.file for frame in found.allocated] == ["/opt/venv/lib/python3.12/site-packages/torch/functional.py", "/srv/train.py"]
    assert gpu_wording.memory(gpu("beyond").exceptions[0]) == []


@pytest.mark.parametrize(
    "raw",
    [
        {"segments": None, "device_traces": 5},
        {"segments": [None, {"blocks": [{}, 3, {"address": -1}]}], "device_traces": [[None, {"addr": "x"}], 7]},
        {"segments": [{"address": 1 << 80, "blocks": [{"size": True, "state": []}]}], "device_traces": []},
    ],
)
def test_what_is_no_snapshot_inside_tells_nothing(tmp_path: Path, raw: Any) -> None:
    assert snapshot(tmp_path, raw).memory(BASE) is None


class Evil:
    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> Any:
        return (Path.touch, (self.witness,))


def test_a_pickle_with_code_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [], "more": Evil(tmp_path / "ran")}))
    with path.open("rb") as file, pytest.raises(EvidenceError, match="more than plain data"):
        read_snapshot(file, str(path))
    assert not (tmp_path / "ran").exists()
    pickle.loads(path.read_bytes())
    assert (tmp_path / "ran").exists(), "the control"


def test_alone_it_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(document()))
    with pytest.raises(EvidenceError, match="snapshot of torch's allocator: it shows no crash"):
        analyze(path)


@pytest.mark.parametrize(
    ("name", "state", "offset"),
    [
        ("freed", "freed", 1024),
        ("freed-all", "freed", 1024),
        ("freed-expandable", "freed", 1024),
        ("cached", "cached", 4100),
        ("misaligned", "live", 4100),
        ("beyond", "beyond", 0),
    ],
)
def test_both_of_one_run(tmp_path: Path, name: str, state: str, offset: int) -> None:
    """The GPU core and the snapshot of the same process agree with what the program did (torch_memory.py)."""
    dump = tmp_path / "x.nvcudmp"
    dump.write_bytes(gzip.decompress((RUNS / "cores" / f"{name}.nvcudmp.gz").read_bytes()))
    crash = analyze([RUNS / "snapshots" / f"{name}.pickle", dump])
    exception = crash.gpu[0].exceptions[0]
    assert exception.memory is not None
    assert (exception.memory.state, exception.memory.address, exception.memory.offset) == (state, TENSORS[name], offset)
    assert exception.address == TENSORS[name] + offset + (SIZE if state == "beyond" else 0)
    freed = f"it was freed at /srv/runs/on-a-gpu/torch_memory.py:{line('dropped')} in drop"
    assert any(freed in fix for fix in crash.findings[0].fix) == (state == "freed")


def beside(folder: Path, base: int) -> Crash:
    """A real dump, and an allocator that had memory where it failed."""
    dump, path = folder / "x.nvcudmp", folder / "snapshot.pickle"
    dump.write_bytes(data("beyond"))
    path.write_bytes(pickle.dumps(document(base)))
    return analyze([dump, path])


def test_beside_a_gpu_core(tmp_path: Path) -> None:
    address = gpu("beyond").exceptions[0].address
    assert address is not None
    crash = beside(tmp_path, address - 0x10000000 - 16)
    memory = crash.gpu[0].exceptions[0].memory
    assert told(memory) == ("freed", address - 16, 16, [13], [16])
    assert memory is not None
    assert memory.snapshot == str(tmp_path / "snapshot.pickle")
    assert decode(encode(crash)) == crash
    words = "byte 16 of 4,096 bytes that were freed: a use after free"
    screen = "\n".join(summary(crash, tmp_path / "report.html", color=False, width=100))
    assert words in screen
    assert "freed at" in screen
    assert "train.py:16 in drop" in screen
    assert words in render(crash)
    (finding,) = crash.findings
    assert finding.id == "cuda-illegal-access"
    assert words in (finding.summary or "")
    assert finding.fix[0] == "Keep the tensor until the kernel has ended: it was freed at /srv/train.py:16 in drop."


def test_an_address_that_it_does_not_know(tmp_path: Path) -> None:
    crash = beside(tmp_path, 0x1000)
    assert crash.gpu[0].exceptions[0].memory is None
    assert crash.soft_errors == ()
    assert not any("was freed at" in fix for fix in crash.findings[0].fix)
