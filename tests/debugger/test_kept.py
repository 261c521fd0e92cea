"""What gdb computed is kept for the next analysis: the report is the same, and nobody else can write there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from crashkit import pipeline
from crashkit.cli.analyze import command
from crashkit.debugger.gdb import ahead, debugger, kept
from crashkit.debugger.gdb.kept import bytecode_folder, cache_folder, forget_old, has_index, index_folder, is_wanted
from crashkit.debugger.gdb.process import Gdb
from crashkit.elf.file import has_dwarf, read_build_id
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


def loaded_interpreter(core: Path) -> Path:
    """The file with the interpreter's debug info: the program, or libpython."""
    files = [Path(module["path"]) for module in report(core)["modules"]]
    return next(file for file in files if re.match(r"(?:lib)?python3", file.name) and file.is_file() and has_dwarf(file))


def compressed_debug_file(file: Path, root: Path) -> None:
    build_id = read_build_id(file)
    assert build_id is not None
    place = root / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    place.parent.mkdir(parents=True)
    subprocess.run(["objcopy", "--only-keep-debug", "--compress-debug-sections=zlib", file, place], check=True)


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

    def test_a_compressed_debug_file_is_kept_decompressed(
        self, core: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """That of the interpreter, which a distribution has in a package of its own."""
        root = tmp_path / "debug"
        for module in (ahead, debugger, pipeline):
            monkeypatch.setattr(module, "DEBUG_ROOT", str(root))
        compressed_debug_file(loaded_interpreter(core), root)
        first = report(core)
        copies = [*home.rglob("*.debug")]
        assert [copy.relative_to(copy.parents[2]) for copy in copies] == [path.relative_to(root) for path in root.rglob("*.debug")]
        sent: list[str] = []
        send = Gdb.send
        monkeypatch.setattr(Gdb, "send", lambda self, text: sent.append(text) or send(self, text))
        assert report(core) == first
        assert f"debug-file-directory {copies[0].parents[2]}:{root}" in sent[0]
        for copy in copies:
            copy.write_bytes(b"no ELF file")
        assert report(core) == first

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

    def test_a_path_with_spaces_is_kept_in_too(self, core: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a b"))
        report(core)
        assert list((tmp_path / "a b" / "crashkit" / "gdb").rglob("*.gdb-index"))

    def test_what_cannot_be_written_is_not_tried_again_at_once(self, core: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """gdb is told of a file that is not loaded, and has nothing to write."""
        send, sent = Gdb.send, []

        def failing(gdb: Gdb, text: str) -> int:
            sent.append(text)
            return send(gdb, "-crashkit-keep nowhere nowhere" if "-crashkit-keep" in text else text)

        monkeypatch.setattr(Gdb, "send", failing)
        first = report(core)
        assert any("-crashkit-keep" in text for text in sent) and not list(home.rglob("*.gdb-index"))
        sent.clear()
        assert report(core) == first and not any("-crashkit-keep" in text for text in sent)


class TestFolder:
    def test_one_that_others_can_replace_does_not_count(self, home: Path, tmp_path: Path) -> None:
        """By a folder further out: with its sticky bit, /tmp keeps what is in it for its owner."""
        assert cache_folder()
        tmp_path.chmod(0o777)
        assert cache_folder() is None
        tmp_path.chmod(0o1777)
        assert cache_folder() == home

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
    def test_root_makes_nothing_in_the_home_of_a_user(self, home: Path, tmp_path: Path) -> None:
        os.chown(tmp_path, 65534, 65534)
        assert cache_folder() is None and not (tmp_path / "cache").exists()

    @pytest.mark.parametrize("umask", [0, 0o002, 0o077])
    def test_it_is_made_so_that_it_counts(self, home: Path, umask: int) -> None:
        """Many distributions give users the umask 002."""
        before = os.umask(umask)
        try:
            assert cache_folder() == home and cache_folder() == home
        finally:
            os.umask(before)

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

    def test_what_a_killed_gdb_left_goes_after_a_day(self, tmp_path: Path) -> None:
        old, new = tmp_path / "1-2-3-4.77", tmp_path / "1-2-3-5.78"
        for folder in (old, new):
            folder.mkdir()
        os.utime(old, (time.time() - 100_000, time.time() - 100_000))
        forget_old(tmp_path)
        assert not old.exists() and new.exists()

    def test_bytecode_does_not_grow_for_good(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kept, "_MOST_SCRIPTS", 2)
        folder = bytecode_folder(tmp_path) / "srv"
        folder.mkdir(parents=True)
        for number in range(3):
            forget_old(tmp_path)
            (folder / f"{number}.pyc").touch()
        assert folder.exists()
        forget_old(tmp_path)
        assert not folder.exists()
