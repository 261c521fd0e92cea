"""A crash store that is passed as evidence: its one crash is analyzed, and what belongs to the store itself is not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crashkit.crashfolder.manifest import SCHEMA
from crashkit.errors import EvidenceError
from crashkit.pipeline import Options, analyze

STDERR = (
    'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f00 (most recent call first):\n  File "/srv/a.py", line 3 in step\n'
)


def crash_in(store: Path, name: str) -> Path:
    folder = store / name
    folder.mkdir(parents=True)
    (folder / "stderr.log").write_text(STDERR)
    files = [{"name": "stderr.log", "kind": "log"}]
    (folder / "manifest.json").write_text(json.dumps({"schema": SCHEMA, "id": name, "pid": 7, "signal": 11, "files": files}))
    (store / "history.sqlite").write_bytes(b"SQLite format 3\0 SIGSEGV Segmentation fault\n")
    return folder


def test_its_only_crash(tmp_path: Path) -> None:
    folder = crash_in(tmp_path / "store", "20261122T164124-7-python3")
    alone, whole = (analyze(path, options=Options(gdb=None)) for path in (folder, tmp_path / "store"))
    assert whole.id == alone.id == folder.name and whole.threads == alone.threads and whole.log == alone.log


def test_one_of_several_has_to_be_passed(tmp_path: Path) -> None:
    crash_in(tmp_path / "store", "20261122T164124-7-python3")
    last = crash_in(tmp_path / "store", "20261122T170000-9-python3")
    with pytest.raises(EvidenceError, match="contains 2 crashes, not one") as raised:
        analyze(tmp_path / "store", options=Options(gdb=None))
    assert str(last) in (raised.value.hint or "")


def test_a_store_without_a_crash(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").write_bytes(b"SQLite format 3\0 SIGSEGV Segmentation fault\n")
    with pytest.raises(EvidenceError, match="contains no crash evidence"):
        analyze(tmp_path, options=Options(gdb=None))
