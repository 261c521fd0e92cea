"""What gdb computed is kept for the next analysis: the report is the same, and nobody else can write there."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from crashkit.cli.analyze import command
from crashkit.debugger.gdb import kept
from crashkit.debugger.gdb.kept import bytecode_folder, cache_folder, forget_old, has_index, index_folder, is_wanted
from crashkit.debugger.gdb.process import Gdb
from tests.crashes import a_debuggable_interpreter, needs_gdb, python_crash


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "crashkit" / "gdb"


def report(core: Path) -> dict[str, Any]:
    done = CliRunner().invoke(command, [str(core), "--json", "--quiet"], standalone_mode=False)
    assert done.exception is None
    told: dict[str, Any] = json.loads(done.stdout)
    return {key: value for key, value in told.items() if key != "seconds"}


@pytest.fixture
def core() -> Path:
    return python_crash("threads.py", python=a_debuggable_interpreter()).core


@needs_gdb
@pytest.mark.slow
class TestAnalyses:
    def test_the_second_report_is_the_first_one(self, core: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        sent: list[str] = []
        send = Gdb.send
        monkeypatch.setattr(Gdb, "send", lambda self, text: sent.append(text) or send(self, text))
        first = report(core)
        indexes = {path: path.stat().st_mtime_ns for path in home.rglob("*.gdb-index")}
        assert indexes and any(path.suffix == ".pyc" for path in bytecode_folder(home).rglob("*"))
        assert any("-crashkit-keep" in text for text in sent)
        sent.clear()
        assert report(core) == first
        assert not any("-crashkit-keep" in text for text in sent)
        assert {path: path.stat().st_mtime_ns for path in home.rglob("*.gdb-index")} == indexes
        assert not [path for path in home.iterdir() if path.suffix]  # nothing unfinished

    def test_a_damaged_index_changes_nothing(self, core: Path, home: Path) -> None:
        first = report(core)
        for path in home.rglob("*.gdb-index"):
            path.write_bytes(path.read_bytes()[:100])
        assert report(core) == first  # gdb dies of it, and another one reads without it
        assert not list(home.rglob("*.gdb-index"))

    def test_where_nothing_can_be_kept_the_report_is_the_same(self, core: Path, home: Path) -> None:
        first = report(core)
        home.rename(home.with_name("away"))
        home.symlink_to("away")
        assert cache_folder() is None and report(core) == first


class TestFolder:
    def test_it_is_private(self, home: Path) -> None:
        assert cache_folder() == home and home.stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("which", ["crashkit", "crashkit/gdb"])
    @pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
    def test_one_that_others_can_write_does_not_count(self, home: Path, tmp_path: Path, which: str, mode: int) -> None:
        assert cache_folder()
        (tmp_path / "cache" / which).chmod(mode)
        assert cache_folder() is None

    @pytest.mark.parametrize("place", ["link", "file"])
    def test_nor_what_is_no_folder(self, home: Path, tmp_path: Path, place: str) -> None:
        home.parent.mkdir(parents=True)
        home.symlink_to(tmp_path) if place == "link" else home.write_text("")
        assert cache_folder() is None

    def test_nor_one_of_somebody_else(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert cache_folder()
        monkeypatch.setattr(kept.os, "geteuid", lambda: os.getuid() + 1)
        assert cache_folder() is None

    @pytest.mark.parametrize("environment", [{}, {"XDG_CACHE_HOME": "here"}, {"HOME": "here"}, {"XDG_CACHE_HOME": "/a\nb"}])
    def test_nor_one_without_a_usable_name(self, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("HOME", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert cache_folder() is None


class TestIndexes:
    def test_a_changed_file_has_another_folder(self, tmp_path: Path) -> None:
        """Though its size and its times are the same: a build-id is no proof."""
        file = tmp_path / "lib.so"
        file.write_bytes(b"one")
        before, times = index_folder(tmp_path, file), file.stat()
        while index_folder(tmp_path, file) == before:  # the clock of files ticks every few milliseconds
            file.write_bytes(b"two")
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert index_folder(tmp_path, tmp_path / "gone") is None

    def test_an_empty_folder_counts_for_a_day(self, tmp_path: Path) -> None:
        folder = tmp_path / "1-2-3-4"
        assert is_wanted(folder) and not has_index(folder)
        folder.mkdir()
        assert not is_wanted(folder) and not has_index(folder)
        os.utime(folder, (time.time() - 100_000, time.time() - 100_000))
        assert is_wanted(folder)
        (folder / "ab.gdb-index").touch()
        assert not is_wanted(folder) and has_index(folder)

    def test_what_was_used_last_stays(self, tmp_path: Path) -> None:
        bytecode_folder(tmp_path).mkdir()
        for number in range(20):
            (tmp_path / str(number)).mkdir()
            (tmp_path / str(number) / "x.gdb-index").touch()
            os.utime(tmp_path / str(number), (number, number))
        assert has_index(tmp_path / "0")  # it is used now
        forget_old(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {"bytecode", "0", *map(str, range(5, 20))}
