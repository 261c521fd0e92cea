"""What a crash's files are put into, and what is read of a process's own: both may be other things by then."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from crashkit.collect import keep
from crashkit.collect.host.snapshot import snapshot
from crashkit.collect.supervise.sighting import Sighting
from crashkit.crashfolder.manifest import SCHEMA, Manifest
from crashkit.crashfolder.store import Store
from crashkit.history.address import NONE


def test_a_folder_that_was_swapped_for_a_link_is_not_analyzed(tmp_path: Path) -> None:
    """The analysis would write its report through the link."""
    work = Store(tmp_path / "store").begin("crash")
    work.write("stderr.log", b"Segmentation fault\n")
    manifest: Manifest = {"schema": SCHEMA, "files": [{"name": "stderr.log", "kind": "log", "size": 19}]}
    elsewhere = tmp_path / "elsewhere"
    work.path.rename(tmp_path / "moved")
    elsewhere.mkdir()
    (elsewhere / "stderr.log").write_text("Segmentation fault\n")
    work.path.symlink_to(elsewhere)
    assert not keep.analyse_once(work, manifest, index=NONE)
    assert [path.name for path in elsewhere.iterdir()] == ["stderr.log"]
    work.path.unlink()
    (tmp_path / "moved").rename(work.path)
    assert keep.analyse_once(work, manifest, index=NONE), "the control"
    work.close()


def test_a_core_leaves_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "store")
    work = store.begin("crash")
    (tmp_path / "core").write_bytes(bytes(range(256)) * 4096)
    with (tmp_path / "core").open("rb") as core:
        monkeypatch.setattr(keep, "_RESERVE", 1 << 62)
        assert "MiB free" in str(keep.copy_core(core.fileno(), work, store)) and work.stat("core") is None
        monkeypatch.setattr(keep, "_RESERVE", 0)
        assert keep.copy_core(core.fileno(), work, store) is None
    assert (work.path / "core").read_bytes() == (tmp_path / "core").read_bytes()
    work.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["file", "fifo", "link", "device"])
def test_only_a_file_is_read_where_a_rank_writes_its_errors(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    (tmp_path / "secret").write_text("secret")
    if kind == "file":
        path.write_text("gave up")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("secret" if kind == "link" else "/dev/zero")
    process = snapshot(os.getpid())
    assert process is not None
    seen = Sighting(0.0, process.pid, process.start, signal.SIGSEGV, False, False, process._replace(stderr=str(path)), None, b"", None)
    assert keep._own_stderr(seen) == (b"gave up" if kind == "file" else b"")
