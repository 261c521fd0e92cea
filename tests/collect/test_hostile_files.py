"""Files beside what crashed, and where handlers of cores leave theirs: anyone may put links, FIFOs and devices there."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from crashkit.collect.host import cuda, handlers
from crashkit.collect.host.core_pattern import parse
from crashkit.collect.host.snapshot import versions
from crashkit.evidence.python_version import version_in_file

APPORT = parse("|/usr/share/apport/apport -p%p")
SECRET = b"root:$6$secret:19000:0:99999:7:::"


def make(path: Path, kind: str, folder: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        (folder / "secret").write_bytes(SECRET)
        path.symlink_to(folder / "secret")


@pytest.mark.timeout(60)
class TestBesideAProgram:
    @pytest.mark.parametrize("kind", ["fifo", "device"])
    @pytest.mark.parametrize("name", ["pyvenv.cfg", "include/python3.11/patchlevel.h", "lib/python3.11/site-packages/torch/version.py"])
    def test_what_tells_versions(self, tmp_path: Path, name: str, kind: str) -> None:
        make(tmp_path / name, kind, tmp_path)
        (tmp_path / "bin").mkdir()
        found = versions(str(tmp_path / "bin/python3.11"), [str(tmp_path / "lib/python3.11/site-packages")])
        assert found.get("python", "3.11") == "3.11" and "cuda" not in found

    def test_only_the_beginning_is_read(self, tmp_path: Path) -> None:
        program = tmp_path / "bin/python3.11"
        for before, version in (("\n", "3.11.9"), ("\n" * (1 << 16), "3.11")):
            (tmp_path / "pyvenv.cfg").write_text(f"{before}version = 3.11.9\n")
            assert versions(str(program), [])["python"] == version

    @pytest.mark.parametrize("kind", ["fifo", "device"])
    def test_the_program_itself(self, tmp_path: Path, kind: str) -> None:
        make(tmp_path / "python3.11", kind, tmp_path)
        assert version_in_file(tmp_path / "python3.11", "3.11") is None


class TestApport:
    @pytest.fixture
    def unpacked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Where `apport-unpack` notes what it was given."""
        programs, asked = tmp_path / "bin", tmp_path / "asked"
        programs.mkdir()
        asked.touch()
        (programs / "apport-unpack").write_text(
            f'#!/bin/sh\necho "$1" >> {asked}\nmkdir "$2"\necho "Pid: 7" > "$2/ProcStatus"\necho core > "$2/CoreDump"\n'
        )
        (programs / "apport-unpack").chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        monkeypatch.setattr(handlers, "APPORT_REPORTS", tmp_path / "crash")
        monkeypatch.setattr(handlers, "APPORT_CORES", tmp_path / "cores")
        (tmp_path / "crash").mkdir()
        (tmp_path / "store").mkdir()
        return asked

    def fetch(self, tmp_path: Path, cwd: Path | None = None) -> str | None:
        return handlers.fetch(APPORT, 7, time.time() - 60, cwd and str(cwd), tmp_path / "store" / "core", patience=0)

    def test_a_report_of_our_own(self, unpacked: Path, tmp_path: Path) -> None:
        (tmp_path / "crash" / "own.crash").touch()
        assert self.fetch(tmp_path) is None
        assert (tmp_path / "store" / "core").read_text() == "core\n" and unpacked.read_text()

    @pytest.mark.timeout(60)
    @pytest.mark.parametrize("kind", ["fifo", "device", "link"])
    def test_what_is_no_report(self, unpacked: Path, tmp_path: Path, kind: str) -> None:
        make(tmp_path / "crash" / "own.crash", kind, tmp_path)
        assert "no report" in str(self.fetch(tmp_path))
        assert unpacked.read_text() == ""

    def test_one_of_another_death(self, unpacked: Path, tmp_path: Path) -> None:
        """One that is older, or of another process."""
        (tmp_path / "crash" / "own.crash").touch()
        assert "no report" in str(handlers.fetch(APPORT, 8, time.time() - 60, None, tmp_path / "store" / "core", patience=0))
        assert unpacked.read_text() and list((tmp_path / "store").iterdir()) == []
        unpacked.write_text("")
        os.utime(tmp_path / "crash" / "own.crash", (time.time() - 3600,) * 2)
        assert "no report" in str(self.fetch(tmp_path)) and unpacked.read_text() == ""

    def test_a_core_of_another_death(self, unpacked: Path, tmp_path: Path) -> None:
        (tmp_path / "cwd").mkdir()
        (tmp_path / "cwd" / "core").write_bytes(b"\x7fELF")
        os.utime(tmp_path / "cwd" / "core", (time.time() - 3600,) * 2)
        assert "no report" in str(self.fetch(tmp_path, tmp_path / "cwd"))
        assert not (tmp_path / "store" / "core").exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    def test_one_of_somebody_else(self, unpacked: Path, tmp_path: Path) -> None:
        (tmp_path / "crash" / "own.crash").touch()
        os.chown(tmp_path / "crash" / "own.crash", 65534, 65534)
        assert "no report" in str(self.fetch(tmp_path))
        assert unpacked.read_text() == ""

    @pytest.mark.timeout(60)
    @pytest.mark.parametrize("kind", ["fifo", "device", "link"])
    def test_a_core_that_is_something_else(self, unpacked: Path, tmp_path: Path, kind: str) -> None:
        """In the working directory of what crashed."""
        make(tmp_path / "cwd" / "core", kind, tmp_path)
        assert "no report" in str(self.fetch(tmp_path, tmp_path / "cwd"))
        assert not (tmp_path / "store" / "core").exists()
        (tmp_path / "cwd" / "core.7").write_bytes(b"\x7fELF")
        assert self.fetch(tmp_path, tmp_path / "cwd") is None


def test_a_link_is_no_dump_of_a_gpu(tmp_path: Path) -> None:
    """What is taken gets other permissions: through a link, the file behind it would."""
    make(tmp_path / "gpu.host.7.1.nvcudmp", "link", tmp_path)
    (tmp_path / "gpu.host.7.2.nvcudmp").touch()
    assert cuda.dumps(tmp_path, 7) == [tmp_path / "gpu.host.7.2.nvcudmp"]
