"""`crashkit demo` as a user runs it."""

from __future__ import annotations

import json
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from crashkit import demo_server
from tests.crashes import PATTERN, PATTERN_LOCK, cores_land_in_cwd, lock

pytestmark = pytest.mark.slow

SOURCE = Path(demo_server.__file__).read_text().splitlines()


def demo(folder: Path, hard_limit: int | None = None) -> subprocess.CompletedProcess[str]:
    limit = (0, resource.getrlimit(resource.RLIMIT_CORE)[1] if hard_limit is None else hard_limit)
    return subprocess.run(
        [sys.executable, "-m", "crashkit", "demo", "--out", folder / "demo"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, limit),
        timeout=120,
    )


def test_demo_crashes_for_real_and_shows_the_report(tmp_path):
    with cores_land_in_cwd():
        run = demo(tmp_path)
    assert run.returncode == 0, run.stderr
    folder = tmp_path / "demo"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert str(folder / "report.html") in run.stdout
    assert "null pointer" in run.stdout
    assert "return ctypes.string_at(start, self.width)" in run.stdout

    report = json.loads((folder / "report.json").read_text())
    assert report["signal"]["reason"] == "null-pointer"
    assert report["signal"]["address"] == "0x0000000000000200"
    assert report["signal"]["recovered"]
    crashed = next(thread for thread in report["threads"] if thread.get("crashed"))
    frames = [frame for frame in crashed["frames"] if frame["kind"] == "python"]
    assert [frame["function"] for frame in frames][:3] == ["string_at", "row", "brightness"]
    assert SOURCE[frames[1]["line"] - 1].strip() == "return ctypes.string_at(start, self.width)"
    assert len(report["threads"]) == 2 + demo_server.OTHERS


def test_demo_empties_no_folder_behind_a_link(tmp_path):
    """Anyone may have put the link into the working directory."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "core").write_bytes(b"precious")
    (tmp_path / "demo").symlink_to("work")
    run = demo(tmp_path)
    assert run.returncode == 1 and "is a link" in run.stderr and "--out DIR" in run.stderr
    assert (tmp_path / "work" / "core").read_bytes() == b"precious"


def test_demo_again_replaces_the_last_one(tmp_path):
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "core").write_bytes(b"old")
    with cores_land_in_cwd():
        run = demo(tmp_path)
    assert run.returncode == 0, run.stderr
    assert (folder / "core").read_bytes().startswith(b"\x7fELF")


def test_hard_limit_zero_is_told_with_what_to_change(tmp_path):
    with cores_land_in_cwd():
        run = demo(tmp_path, hard_limit=0)
    assert run.returncode == 1
    assert "hard limit" in run.stderr
    assert "ulimit -Hc" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_foreign_pipe_is_told_with_what_to_change(tmp_path):
    with lock(PATTERN_LOCK):
        before = PATTERN.read_text()
        try:
            PATTERN.write_text("|/bin/false")
        except OSError:
            pytest.skip("core_pattern cannot be written here")
        try:
            run = demo(tmp_path)
        finally:
            PATTERN.write_text(before)
    assert run.returncode == 1
    assert "|/bin/false" in run.stderr
    assert "core_pattern" in run.stderr
